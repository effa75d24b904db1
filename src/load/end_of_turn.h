// SPDX-License-Identifier: Apache-2.0
// Which tokens end a reply. Files of one checkpoint name different ones: a fine-tuned model's config.json keeps its
// base's EOS while the chat template ends turns with another, or the other way round. Each of them ends a reply.
#pragma once

#include <string>
#include <vector>

#include "hydrant/engine.h"
#include "model/model_config.h"
#include "tokenizer/tokenizer.h"

namespace hydrant::load {

struct EndOfTurn {
  std::vector<EosToken> tokens;  // no id stands twice
  std::vector<std::string> warnings;
};

// By generation_config.json, config.json, the tokenizer's eos_token, and the end of a reply under the folder's own chat
// template where that is a known one; where none of these names any, by the default of the tokenizer's class. An EOS id
// of the first two that is the tokenizer's BOS is left out with a warning, unless it is the tokenizer's EOS as well, or
// one of several in generation_config.json. `tokenizer`: may be null.
EndOfTurn FindEndOfTurn(const model::ModelConfig& config, const tokenizer::Tokenizer* tokenizer,
                        const std::string& folder);

// The end of a reply under a template ("auto": the folder's own; "none"); -1 = none.
int32_t EndOfReplyId(const std::string& template_name, const tokenizer::Tokenizer* tokenizer,
                     const std::string& folder);

}  // namespace hydrant::load
