// SPDX-License-Identifier: Apache-2.0
// For tests: another tokenizer's tokens, so that a test changes what it wants to.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "tokenizer/tokenizer.h"

namespace hydrant::train {

class WrappedTokenizer : public tokenizer::Tokenizer {
 public:
  explicit WrappedTokenizer(const Tokenizer& other) : other_(other) {}

  std::vector<int32_t> Encode(std::string_view text, const tokenizer::EncodeOptions& options) const override {
    return other_.Encode(text, options);
  }
  std::string Decode(std::span<const int32_t> ids, bool skip_special) const override {
    return other_.Decode(ids, skip_special);
  }
  std::string TokenBytes(int32_t id, bool is_first) const override { return other_.TokenBytes(id, is_first); }
  int32_t vocab_size() const override { return other_.vocab_size(); }
  bool IsSpecial(int32_t id) const override { return other_.IsSpecial(id); }
  int32_t bos_id() const override { return other_.bos_id(); }
  bool adds_bos() const override { return other_.adds_bos(); }
  std::string TokenText(int32_t id) const override { return other_.TokenText(id); }
  int32_t IdOfToken(std::string_view text) const override { return other_.IdOfToken(text); }

 private:
  const Tokenizer& other_;
};

}  // namespace hydrant::train
