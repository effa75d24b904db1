// SPDX-License-Identifier: Apache-2.0
#include "sequence/text_collector.h"

#include <algorithm>
#include <utility>

#include "base/check.h"

namespace hydrant::sequence {

TextCollector::TextCollector(const tokenizer::Tokenizer* tokenizer, std::vector<std::string> stop)
    : has_text_(tokenizer != nullptr), tokenizer_(tokenizer), stop_(std::move(stop)) {
  // A reply continues its prompt, so its first piece keeps its leading space.
  if (has_text_) decoder_.emplace(tokenizer, /*continues=*/true);
  HYDRANT_CHECK(has_text_ || stop_.empty());
  for (const std::string& text : stop_) longest_stop_ = std::max(longest_stop_, text.size());
}

bool TextCollector::Push(int32_t id) {
  // A model may have more rows than its tokenizer has tokens (padding): such an id has no text.
  const bool known = has_text_ && id < tokenizer_->vocab_size();
  const size_t before = text_.size();
  Append(known ? decoder_->Push(id) : std::string());
  size_t cut = std::string::npos;
  const size_t from = before < longest_stop_ ? 0 : before - longest_stop_ + 1;
  for (const std::string& stop : stop_) cut = std::min(cut, text_.find(stop, from));
  if (cut == std::string::npos) return false;
  text_.resize(cut);
  for (size_t& end : token_end_) end = std::min(end, cut);
  closed_ = true;
  return true;
}

void TextCollector::PushSilent() { token_end_.push_back(text_.size()); }

void TextCollector::Close() {
  if (closed_) return;
  closed_ = true;
  if (!has_text_) return;
  text_ += decoder_->Flush();
  if (!token_end_.empty()) token_end_.back() = text_.size();
}

int32_t TextCollector::num_ready() const {
  if (closed_ || stop_.empty()) return num_tokens();
  size_t held = 0;  // longest end of the text that begins a stop string
  for (const std::string& stop : stop_) {
    for (size_t length = std::min(stop.size() - 1, text_.size()); length > held; --length) {
      if (text_.compare(text_.size() - length, length, stop, 0, length) == 0) held = length;
    }
  }
  const size_t safe = text_.size() - held;
  int32_t ready = num_tokens();
  while (ready > 0 && token_end_[static_cast<size_t>(ready) - 1] > safe) --ready;
  return ready;
}

std::string_view TextCollector::token_text(int32_t i) const {
  const auto index = static_cast<size_t>(i);
  const size_t begin = index == 0 ? 0 : token_end_[index - 1];
  return std::string_view(text_).substr(begin, token_end_[index] - begin);
}

void TextCollector::Append(const std::string& piece) {
  text_ += piece;
  token_end_.push_back(text_.size());
}

}  // namespace hydrant::sequence
