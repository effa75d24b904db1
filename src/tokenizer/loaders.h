// SPDX-License-Identifier: Apache-2.0
// Tokenizers from bytes in memory, for LoadTokenizer and the fuzz targets. `file` names the file in errors.
#pragma once

#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "tokenizer/added_tokens.h"
#include "tokenizer/tokenizer.h"

namespace hydrant::tokenizer {

// What tokenizer_config.json says about a tokenizer; everything may be absent.
struct ConfigRules {
  std::optional<bool> add_bos_token;
  std::string bos_token;
  // LlamaTokenizer(Fast) puts BOS by add_bos_token whatever the post-processor of tokenizer.json says; other classes
  // leave it to the post-processor.
  bool is_llama_class = false;
  std::vector<AddedToken> added_tokens;  // added_tokens_decoder; used with tokenizer.model only
};
// The text of a tokenizer_config.json. Throws FileError for values of a wrong type.
ConfigRules ParseConfigRules(std::string_view text, const std::string& file);

std::unique_ptr<Tokenizer> LoadTokenizerJson(std::string_view text, const std::string& file,
                                             const ConfigRules& rules = {});
std::unique_ptr<Tokenizer> LoadSentencePiece(std::string_view bytes, const std::string& file,
                                             const ConfigRules& rules = {});

}  // namespace hydrant::tokenizer
