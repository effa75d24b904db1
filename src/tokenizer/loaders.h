// SPDX-License-Identifier: Apache-2.0
// Tokenizers from bytes in memory, for LoadTokenizer and the fuzz targets. `file` names the file in errors.
#pragma once

#include <memory>
#include <string>
#include <string_view>

#include "tokenizer/tokenizer.h"
#include "tokenizer/tokenizer_config.h"

namespace hydrant::tokenizer {

std::unique_ptr<Tokenizer> LoadTokenizerJson(std::string_view text, const std::string& file,
                                             const ConfigRules& rules = {});
std::unique_ptr<Tokenizer> LoadSentencePiece(std::string_view bytes, const std::string& file,
                                             const ConfigRules& rules = {});

}  // namespace hydrant::tokenizer
