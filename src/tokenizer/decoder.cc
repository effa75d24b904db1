// SPDX-License-Identifier: Apache-2.0
#include "tokenizer/decoder.h"

#include "base/json.h"
#include "hydrant/error.h"
#include "tokenizer/json/byte_level.h"
#include "tokenizer/utf8.h"

namespace hydrant::tokenizer {
namespace {

constexpr size_t kMaxMembers = 8;
constexpr size_t kMaxReplacementBytes = 16;

int HexDigit(char letter) {
  if (letter >= '0' && letter <= '9') return letter - '0';
  if (letter >= 'A' && letter <= 'F') return letter - 'A' + 10;
  if (letter >= 'a' && letter <= 'f') return letter - 'a' + 10;
  return -1;
}

}  // namespace

int ParseByteToken(std::string_view token) {
  if (token.size() != 6 || !token.starts_with("<0x") || token.back() != '>') return -1;
  const int high = HexDigit(token[3]);
  const int low = HexDigit(token[4]);
  return high < 0 || low < 0 ? -1 : high * 16 + low;
}

Decoder Decoder::Parse(const base::JsonView& json) {
  Decoder decoder;
  const base::JsonView type = json.At("type");
  const std::string name = type.String();
  if (name == "ByteLevel") {
    decoder.byte_level_ = true;
    return decoder;
  }
  if (name != "Sequence") type.Fail("ByteLevel or Sequence", "this decoder is not supported");
  const base::JsonView members = json.At("decoders");
  if (members.Size() > kMaxMembers) members.Fail("at most " + std::to_string(kMaxMembers) + " decoders");
  int stage = 0;
  for (size_t i = 0; i < members.Size(); ++i) decoder.AddMember(members.At(i), &stage);
  return decoder;
}

// `stage` counts along the one supported order; a member that would step back is refused.
void Decoder::AddMember(const base::JsonView& json, int* stage) {
  const base::JsonView type = json.At("type");
  const std::string name = type.String();
  int own_stage = 0;
  if (name == "Replace") {
    const base::JsonView pattern = json.At("pattern");
    if (!pattern.Has("String") || pattern.At("String").String().empty()) pattern.Fail("{\"String\": text}");
    if (json.At("content").String().size() > kMaxReplacementBytes) json.At("content").Fail("at most 16 bytes");
    if (!replace_from_.empty()) type.Fail("one Replace at most");
    replace_from_ = pattern.At("String").String();
    replace_to_ = json.At("content").String();
  } else if (name == "ByteFallback") {
    own_stage = 1;
    byte_fallback_ = true;
  } else if (name == "Fuse") {
    own_stage = 2;
  } else if (name == "Strip") {
    own_stage = 3;
    if (json.At("content").String() != " ") json.At("content").Fail("\" \"");
    json.At("stop").Int(0, 0);
    strips_first_space_ = json.At("start").Int(0, 1) == 1;
  } else {
    type.Fail("Replace, ByteFallback, Fuse or Strip", "this decoder is not supported");
  }
  // A Strip before Fuse would take a space from every token.
  if (own_stage < *stage || (own_stage == 3 && *stage != 2)) {
    type.Fail("the order Replace, ByteFallback, Fuse, Strip");
  }
  *stage = own_stage;
}

DecodedToken Decoder::Decode(std::string_view token) const {
  if (byte_level_) {
    std::optional<std::string> bytes = LettersToBytes(token);
    return {bytes.has_value() ? *std::move(bytes) : std::string(token), false};
  }
  std::string text = replace_from_.empty() ? std::string(token) : ReplaceAll(token, replace_from_, replace_to_);
  if (byte_fallback_) {
    const int byte = ParseByteToken(text);
    if (byte >= 0) return {std::string(1, static_cast<char>(static_cast<uint8_t>(byte))), true};
  }
  return {std::move(text), false};
}

}  // namespace hydrant::tokenizer
