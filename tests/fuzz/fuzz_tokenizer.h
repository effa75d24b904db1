// SPDX-License-Identifier: Apache-2.0
// What a fuzz target does with a tokenizer that loaded.
#pragma once

#include <array>
#include <cstdint>
#include <string_view>

#include "base/check.h"
#include "tokenizer/tokenizer.h"

namespace hydrant::fuzz {

inline constexpr std::array<std::string_view, 5> kTexts = {
    "", "Hello, world's 12 caf\xC3\xA9s <s> <|eot_id|>", "  \xE2\x96\x81 a\xCC\x81\xCC\xA3 \n\n \xE4\xBD\xA0",
    "aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaab", "\xFF\xE4\xBD x \xF0\x9F\x98\x80"};

// Encodes and decodes a few texts; ids must lie in the vocabulary.
inline void UseTokenizer(const tokenizer::Tokenizer& tokenizer) {
  for (const std::string_view text : kTexts) {
    const auto ids = tokenizer.Encode(text, {});
    for (const int32_t id : ids) HYDRANT_CHECK(id >= 0 && id < tokenizer.vocab_size());
    tokenizer.Decode(ids, true);
    tokenizer::StreamDecoder stream(&tokenizer, false);
    for (const int32_t id : ids) stream.Push(id);
    stream.Flush();
    tokenizer.Encode(text, {.parse_special = false, .add_bos = tokenizer.adds_bos()});
  }
}

}  // namespace hydrant::fuzz
