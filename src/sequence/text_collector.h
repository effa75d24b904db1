// SPDX-License-Identifier: Apache-2.0
// Tokens of one reply to text: streaming decode, stop strings, and what may be shown already.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "tokenizer/tokenizer.h"

namespace hydrant::sequence {

class TextCollector {
 public:
  // `tokenizer` may be null: then there is no text and `stop` must be empty.
  TextCollector(const tokenizer::Tokenizer* tokenizer, std::vector<std::string> stop);

  // Adds a token's text. True when a stop string is complete: the text is then cut before its earliest match and
  // closed.
  bool Push(int32_t id);
  // Adds a token without text (an EOS).
  void PushSilent();
  // No more tokens: an incomplete character becomes U+FFFD, and everything may be shown.
  void Close();

  const std::string& text() const { return text_; }
  int32_t num_tokens() const { return static_cast<int32_t>(token_end_.size()); }
  // Tokens whose text can no longer become part of a stop string: these may be shown.
  int32_t num_ready() const;
  // Text of token i (held-back bytes of a character belong to the token that completes it).
  std::string_view token_text(int32_t i) const;

 private:
  void Append(const std::string& piece);

  bool has_text_;
  const tokenizer::Tokenizer* tokenizer_;
  std::optional<tokenizer::StreamDecoder> decoder_;
  std::vector<std::string> stop_;
  size_t longest_stop_ = 0;
  std::string text_;
  std::vector<size_t> token_end_;  // end of each token's text in text_
  bool closed_ = false;
};

}  // namespace hydrant::sequence
