// SPDX-License-Identifier: Apache-2.0
// The "decoder" of a tokenizer.json: the bytes that each token stands for.
#pragma once

#include <string>
#include <string_view>

#include "base/json_fwd.h"

namespace hydrant::tokenizer {

struct DecodedToken {
  std::string bytes;
  bool is_byte = false;  // written as <0xXX>
};

class Decoder {
 public:
  // Accepts ByteLevel, or a Sequence of one Replace, ByteFallback, Fuse and Strip in this order as Llama tokenizers
  // have it. Others throw FileError.
  static Decoder Parse(const base::JsonView& json);

  DecodedToken Decode(std::string_view token) const;
  // The text begins without its first space.
  bool strips_first_space() const { return strips_first_space_; }

 private:
  void AddMember(const base::JsonView& json, int* stage);

  bool byte_level_ = false;
  bool byte_fallback_ = false;
  bool strips_first_space_ = false;
  std::string replace_from_;  // empty: nothing is replaced
  std::string replace_to_;
};

// The byte of "<0x0A>", or -1 when `token` is not written so.
int ParseByteToken(std::string_view token);

}  // namespace hydrant::tokenizer
