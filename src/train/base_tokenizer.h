// SPDX-License-Identifier: Apache-2.0
// The tokenizer files of a base model that is to be trained: new ones, or another model's.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <string>

#include "tokenizer/chat/chat_template.h"
#include "tokenizer/tokenizer.h"

namespace hydrant::train {

// Content by name: tokenizer.model, tokenizer_config.json, and others that say something about tokens.
using TokenizerFiles = std::map<std::string, std::string, std::less<>>;

// Of a tokenizer.model as TrainTokenizer makes it. The chat template is "vicuna", or empty for none; for others throws
// UserError: they need special tokens that a new tokenizer lacks, or their text is not at hand.
TokenizerFiles NewTokenizerFiles(std::string model, const std::string& template_name, int64_t max_positions);
// Throws UserError as NewTokenizerFiles does.
void CheckNewTemplate(const std::string& template_name);

// What a model's folder has of them. Throws FileError: for a folder without a tokenizer, and what LoadTokenizerOf does,
// by the names of the folder's files.
TokenizerFiles ReadTokenizerFiles(const std::string& folder, const std::string& template_name);

struct LoadedTokenizer {
  std::unique_ptr<tokenizer::Tokenizer> tokenizer;
  tokenizer::FolderTemplate chat;
};
// As a folder with these files has them. `template_name`: in place of the folder's own; empty: that. Throws FileError.
LoadedTokenizer LoadTokenizerOf(const TokenizerFiles& files, const std::string& template_name);

}  // namespace hydrant::train
