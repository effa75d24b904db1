// SPDX-License-Identifier: Apache-2.0
// The added tokens of a tokenizer.json, joined with what the files beside it add, as transformers'
// PreTrainedTokenizerFast joins them.
#pragma once

#include <string>
#include <vector>

#include "base/json_fwd.h"
#include "tokenizer/added_tokens.h"
#include "tokenizer/json/bpe.h"
#include "tokenizer/tokenizer_config.h"

namespace hydrant::tokenizer {

// `list`: "added_tokens" of the tokenizer.json, or null. Throws FileError for tokens that contradict the vocabulary of
// their own file; between files tokenizer.json decides, but for the flags, which are the config's, and for an id whose
// token the config renames. What differs is added to `warnings`. None stands twice.
std::vector<AddedToken> JoinAddedTokens(const base::JsonView& list, const BpeModel& vocabulary,
                                        const ConfigRules& rules, std::vector<std::string>* warnings);

}  // namespace hydrant::tokenizer
