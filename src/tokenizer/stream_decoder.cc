// SPDX-License-Identifier: Apache-2.0
#include "tokenizer/tokenizer.h"
#include "tokenizer/utf8.h"

namespace hydrant::tokenizer {

StreamDecoder::StreamDecoder(const Tokenizer* tokenizer, bool continues, bool skip_special)
    : tokenizer_(tokenizer), is_first_(!continues), skip_special_(skip_special) {}

std::string StreamDecoder::Push(int32_t id) {
  if (skip_special_ && tokenizer_->IsSpecial(id)) return "";
  held_ += tokenizer_->TokenBytes(id, is_first_);
  is_first_ = false;
  return TakeComplete(&held_);
}

std::string StreamDecoder::Flush() {
  const bool cut = !held_.empty();
  held_.clear();
  return cut ? std::string(kReplacement) : "";
}

}  // namespace hydrant::tokenizer
