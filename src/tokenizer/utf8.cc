// SPDX-License-Identifier: Apache-2.0
#include "tokenizer/utf8.h"

#include <utf8proc.h>

namespace hydrant::tokenizer {
namespace {

// Bytes that follow a lead byte, and the range of the first of them (Unicode, table 3-7: no overlong forms, no
// surrogates, nothing above U+10FFFF).
struct Lead {
  size_t following;
  uint8_t low;
  uint8_t high;
  uint8_t bits;
};

Lead LeadOf(uint8_t byte) {
  if (byte >= 0xC2 && byte <= 0xDF) return {1, 0x80, 0xBF, 0x1F};
  if (byte == 0xE0) return {2, 0xA0, 0xBF, 0x0F};
  if (byte == 0xED) return {2, 0x80, 0x9F, 0x0F};
  if (byte >= 0xE1 && byte <= 0xEF) return {2, 0x80, 0xBF, 0x0F};
  if (byte == 0xF0) return {3, 0x90, 0xBF, 0x07};
  if (byte >= 0xF1 && byte <= 0xF3) return {3, 0x80, 0xBF, 0x07};
  if (byte == 0xF4) return {3, 0x80, 0x8F, 0x07};
  return {0, 0, 0, 0};
}

// Start of the last character of well-formed text.
size_t LastCharStart(std::string_view text) {
  size_t start = text.size() - 1;
  while (start > 0 && (static_cast<uint8_t>(text[start]) & 0xC0) == 0x80) --start;
  return start;
}

}  // namespace

Utf8Char NextChar(std::string_view text) {
  const auto first = static_cast<uint8_t>(text[0]);
  if (first < 0x80) return {first, 1, CharState::kValid};
  const Lead lead = LeadOf(first);
  if (lead.following == 0) return {0xFFFD, 1, CharState::kBad};
  char32_t code = first & lead.bits;
  for (size_t i = 1; i <= lead.following; ++i) {
    if (i >= text.size()) return {0xFFFD, i, CharState::kCut};
    const auto byte = static_cast<uint8_t>(text[i]);
    const uint8_t low = i == 1 ? lead.low : uint8_t{0x80};
    const uint8_t high = i == 1 ? lead.high : uint8_t{0xBF};
    if (byte < low || byte > high) return {0xFFFD, i, CharState::kBad};
    code = (code << 6) | (byte & 0x3F);
  }
  return {code, lead.following + 1, CharState::kValid};
}

void AppendUtf8(char32_t code, std::string* text) {
  const auto push = [text](char32_t byte) { text->push_back(static_cast<char>(static_cast<uint8_t>(byte))); };
  if (code < 0x80) {
    push(code);
  } else if (code < 0x800) {
    push(0xC0 | (code >> 6));
    push(0x80 | (code & 0x3F));
  } else if (code < 0x10000) {
    push(0xE0 | (code >> 12));
    push(0x80 | ((code >> 6) & 0x3F));
    push(0x80 | (code & 0x3F));
  } else {
    push(0xF0 | (code >> 18));
    push(0x80 | ((code >> 12) & 0x3F));
    push(0x80 | ((code >> 6) & 0x3F));
    push(0x80 | (code & 0x3F));
  }
}

bool IsValidUtf8(std::string_view text) {
  while (!text.empty()) {
    const Utf8Char next = NextChar(text);
    if (next.state != CharState::kValid) return false;
    text.remove_prefix(next.size);
  }
  return true;
}

std::string ReplaceInvalid(std::string_view text) {
  std::string clean;
  clean.reserve(text.size());
  while (!text.empty()) {
    const Utf8Char next = NextChar(text);
    clean += next.state == CharState::kValid ? text.substr(0, next.size) : kReplacement;
    text.remove_prefix(next.size);
  }
  return clean;
}

std::string TakeComplete(std::string* held) {
  std::string complete;
  std::string_view rest = *held;
  while (!rest.empty()) {
    const Utf8Char next = NextChar(rest);
    if (next.state == CharState::kCut) break;
    complete += next.state == CharState::kValid ? rest.substr(0, next.size) : kReplacement;
    rest.remove_prefix(next.size);
  }
  *held = std::string(rest);
  return complete;
}

std::string ReplaceAll(std::string_view text, std::string_view from, std::string_view to) {
  std::string replaced;
  replaced.reserve(text.size());
  size_t start = 0;
  for (size_t found = text.find(from); found != std::string_view::npos; found = text.find(from, start)) {
    replaced += text.substr(start, found - start);
    replaced += to;
    start = found + from.size();
  }
  replaced += text.substr(start);
  return replaced;
}

bool IsWhiteSpace(char32_t code) {
  return (code >= 0x09 && code <= 0x0D) || code == 0x20 || code == 0x85 || code == 0xA0 || code == 0x1680 ||
         (code >= 0x2000 && code <= 0x200A) || code == 0x2028 || code == 0x2029 || code == 0x202F || code == 0x205F ||
         code == 0x3000;
}

namespace {

bool IsPythonSpace(char32_t code) { return IsWhiteSpace(code) || (code >= 0x1C && code <= 0x1F); }

}  // namespace

std::string_view StripLeftLikePython(std::string_view text) {
  while (!text.empty()) {
    const Utf8Char next = NextChar(text);
    if (!IsPythonSpace(next.code)) break;
    text.remove_prefix(next.size);
  }
  return text;
}

std::string_view StripRightLikePython(std::string_view text) {
  while (!text.empty()) {
    const size_t start = LastCharStart(text);
    if (!IsPythonSpace(NextChar(text.substr(start)).code)) break;
    text.remove_suffix(text.size() - start);
  }
  return text;
}

std::string_view StripLikePython(std::string_view text) { return StripRightLikePython(StripLeftLikePython(text)); }

bool IsWordChar(char32_t code) {
  switch (utf8proc_category(static_cast<utf8proc_int32_t>(code))) {
    case UTF8PROC_CATEGORY_LU:
    case UTF8PROC_CATEGORY_LL:
    case UTF8PROC_CATEGORY_LT:
    case UTF8PROC_CATEGORY_LM:
    case UTF8PROC_CATEGORY_LO:
    case UTF8PROC_CATEGORY_MN:
    case UTF8PROC_CATEGORY_MC:
    case UTF8PROC_CATEGORY_ME:
    case UTF8PROC_CATEGORY_ND:
    case UTF8PROC_CATEGORY_NL:
    case UTF8PROC_CATEGORY_PC: return true;
    default: break;
  }
  // Join_Control, and the circled and squared letters that Unicode calls alphabetic.
  return code == 0x200C || code == 0x200D || (code >= 0x24B6 && code <= 0x24E9) ||
         (code >= 0x1F130 && code <= 0x1F149) || (code >= 0x1F150 && code <= 0x1F169) ||
         (code >= 0x1F170 && code <= 0x1F189);
}

bool StartsWithWordChar(std::string_view text) { return !text.empty() && IsWordChar(NextChar(text).code); }

bool EndsWithWordChar(std::string_view text) {
  return !text.empty() && IsWordChar(NextChar(text.substr(LastCharStart(text))).code);
}

size_t LeadingSpace(std::string_view text) {
  size_t size = 0;
  while (size < text.size()) {
    const Utf8Char next = NextChar(text.substr(size));
    if (!IsWhiteSpace(next.code)) break;
    size += next.size;
  }
  return size;
}

size_t TrailingSpace(std::string_view text) {
  size_t size = 0;
  while (size < text.size()) {
    const std::string_view rest = text.substr(0, text.size() - size);
    const size_t start = LastCharStart(rest);
    if (!IsWhiteSpace(NextChar(rest.substr(start)).code)) break;
    size = text.size() - start;
  }
  return size;
}

}  // namespace hydrant::tokenizer
