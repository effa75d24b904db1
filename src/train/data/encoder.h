// SPDX-License-Identifier: Apache-2.0
// A part of a file to tokens, and what of them is learned.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "tokenizer/tokenizer.h"
#include "train/data/documents.h"
#include "train/data/token_data.h"

namespace hydrant::train {

struct EncodedPart {
  std::vector<int32_t> tokens;
  std::vector<uint8_t> learned;     // of a document's first token it says nothing
  std::optional<LeftOut> left_out;  // then there are no tokens
};

// May be used by several threads at once.
class Encoder {
 public:
  // Throws UserError for an unknown template.
  Encoder(const tokenizer::Tokenizer& tokenizer, const ReadOptions& options);

  // `name` is the file's, for errors. Throws FileError.
  EncodedPart Encode(const FilePart& part, const std::string& name) const;

 private:
  EncodedPart EncodeJson(const FilePart& part, const std::string& where) const;
  EncodedPart EncodeMessages(const Example& example, const std::string& where) const;
  void AddPiece(std::string_view piece, bool begins, std::vector<int32_t>* tokens) const;
  EncodedPart Finish(std::vector<int32_t> tokens, bool ends) const;

  const tokenizer::Tokenizer& tokenizer_;
  const ReadOptions& options_;
  bool puts_space_;  // the tokenizer, before each text
};

}  // namespace hydrant::train
