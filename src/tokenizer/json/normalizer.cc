// SPDX-License-Identifier: Apache-2.0
#include "tokenizer/json/normalizer.h"

#include <utf8proc.h>

#include <algorithm>
#include <array>

#include "base/check.h"
#include "base/json.h"
#include "hydrant/error.h"
#include "tokenizer/utf8.h"

namespace hydrant::tokenizer {
namespace {

constexpr size_t kMaxNormalizers = 16;
// Every step may lengthen the text; published files prepend and insert one character.
constexpr size_t kMaxInsertedBytes = 16;
// A chain of replacements could multiply the text again and again; published ones make at most 3 bytes of 1.
constexpr size_t kMaxGrowth = 16;
constexpr size_t kMaxGrownBytes = 1024;

// Nothing below U+0300 changes under NFC or takes part in a composition as a first mark.
bool IsBelowMarks(std::string_view text) {
  // U+0300 is CC 80; a smaller lead byte means a smaller character.
  return std::all_of(text.begin(), text.end(), [](char byte) {
    const auto value = static_cast<uint8_t>(byte);
    return value < 0xCC;
  });
}

int CombiningClass(utf8proc_int32_t code) { return utf8proc_get_property(code)->combining_class; }

std::vector<utf8proc_int32_t> Decompose(std::string_view text) {
  std::vector<utf8proc_int32_t> codes;
  codes.reserve(text.size());
  std::array<utf8proc_int32_t, 32> parts;  // the longest canonical decomposition has 4 characters
  while (!text.empty()) {
    const Utf8Char next = NextChar(text);
    int last_boundclass = 0;
    const utf8proc_ssize_t count = utf8proc_decompose_char(static_cast<utf8proc_int32_t>(next.code), parts.data(),
                                                           parts.size(), UTF8PROC_DECOMPOSE, &last_boundclass);
    HYDRANT_CHECK(count >= 0 && static_cast<size_t>(count) <= parts.size());
    codes.insert(codes.end(), parts.begin(), parts.begin() + count);
    text.remove_prefix(next.size);
  }
  return codes;
}

// Canonical ordering: marks between two starters stand by combining class, equal ones as they came.
void OrderMarks(std::vector<utf8proc_int32_t>* codes) {
  auto begin = codes->begin();
  while (begin != codes->end()) {
    begin = std::find_if(begin, codes->end(), [](auto code) { return CombiningClass(code) != 0; });
    const auto end = std::find_if(begin, codes->end(), [](auto code) { return CombiningClass(code) == 0; });
    std::stable_sort(begin, end, [](auto a, auto b) { return CombiningClass(a) < CombiningClass(b); });
    begin = end;
  }
}

void CheckSize(const base::JsonView& json) {
  if (json.String().size() > kMaxInsertedBytes) json.Fail("at most " + std::to_string(kMaxInsertedBytes) + " bytes");
}

}  // namespace

std::string ToNfc(std::string_view text) {
  // One before the first final consonant of Hangul: it composes with nothing, but utf8proc 2.8 takes it for "none" and
  // drops it after a syllable. So what stands before it and behind it is composed by itself.
  constexpr utf8proc_int32_t kNoFinal = 0x11a7;
  if (IsBelowMarks(text)) return std::string(text);
  std::vector<utf8proc_int32_t> codes = Decompose(text);
  OrderMarks(&codes);
  const auto options = static_cast<utf8proc_option_t>(UTF8PROC_STABLE | UTF8PROC_COMPOSE);
  std::string composed;
  composed.reserve(text.size());
  for (auto begin = codes.begin(); begin != codes.end();) {
    const auto end = std::find(begin, codes.end(), kNoFinal);
    const utf8proc_ssize_t count = utf8proc_normalize_utf32(&*begin, end - begin, options);
    HYDRANT_CHECK(count >= 0 && count <= end - begin);
    for (auto code = begin; code != begin + count; ++code) AppendUtf8(static_cast<char32_t>(*code), &composed);
    begin = end;
    if (begin == codes.end()) break;
    AppendUtf8(kNoFinal, &composed);
    ++begin;
  }
  return composed;
}

Normalizer Normalizer::Parse(const base::JsonView& json) {
  Normalizer normalizer;
  if (!json.is_null()) normalizer.Add(json);
  return normalizer;
}

void Normalizer::Add(const base::JsonView& json) {
  if (steps_.size() >= kMaxNormalizers) json.Fail("at most " + std::to_string(kMaxNormalizers) + " normalizers");
  const base::JsonView type = json.At("type");
  const std::string name = type.String();
  if (name == "Sequence") {
    const base::JsonView members = json.At("normalizers");
    for (size_t i = 0; i < members.Size(); ++i) Add(members.At(i));
  } else if (name == "NFC") {
    steps_.push_back({Kind::kNfc, "", ""});
  } else if (name == "Prepend") {
    CheckSize(json.At("prepend"));
    steps_.push_back({Kind::kPrepend, "", json.At("prepend").String()});
  } else if (name == "Replace") {
    const base::JsonView pattern = json.At("pattern");
    if (!pattern.Has("String") || pattern.At("String").String().empty()) pattern.Fail("{\"String\": text}");
    CheckSize(json.At("content"));
    steps_.push_back({Kind::kReplace, pattern.At("String").String(), json.At("content").String()});
  } else {
    type.Fail("NFC, Prepend, Replace or Sequence", "this normalizer is not supported");
  }
}

std::string Normalizer::Apply(std::string_view text) const {
  std::string result(text);
  for (const Step& step : steps_) {
    if (step.kind == Kind::kNfc) result = ToNfc(result);
    if (step.kind == Kind::kPrepend && !result.empty()) result.insert(0, step.to);
    if (step.kind == Kind::kReplace) result = ReplaceAll(result, step.from, step.to);
    if (result.size() > kMaxGrowth * text.size() + kMaxGrownBytes) {
      throw UserError("the normalizer of the tokenizer makes more than " + std::to_string(result.size()) +
                          " bytes of a text of " + std::to_string(text.size()),
                      "tokenizer.json is damaged, or not meant for text");
    }
  }
  return result;
}

}  // namespace hydrant::tokenizer
