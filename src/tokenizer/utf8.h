// SPDX-License-Identifier: Apache-2.0
// UTF-8 one character at a time, with the replacement rule of the Unicode standard: one U+FFFD per maximal bad part.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>

namespace hydrant::tokenizer {

inline constexpr std::string_view kReplacement = "\xEF\xBF\xBD";   // U+FFFD
inline constexpr std::string_view kWordBoundary = "\xE2\x96\x81";  // U+2581, the space of SentencePiece vocabularies

enum class CharState : uint8_t {
  kValid,
  kBad,  // can never become a character
  kCut,  // the text ends inside a character that is well-formed so far
};

struct Utf8Char {
  char32_t code;  // U+FFFD unless valid
  size_t size;    // bytes; of the maximal bad part where not valid
  CharState state;
};

// `text` must not be empty.
Utf8Char NextChar(std::string_view text);
void AppendUtf8(char32_t code, std::string* text);

bool IsValidUtf8(std::string_view text);
// Every maximal bad part becomes one U+FFFD.
std::string ReplaceInvalid(std::string_view text);
// Moves the complete characters at the front of `held` to the result; bad parts become U+FFFD, a cut tail stays.
std::string TakeComplete(std::string* held);

std::string ReplaceAll(std::string_view text, std::string_view from, std::string_view to);

// Unicode's White_Space, which lstrip and rstrip of added tokens swallow.
bool IsWhiteSpace(char32_t code);
// What str.strip() of Python removes: White_Space and U+001C to U+001F.
std::string_view StripLikePython(std::string_view text);
std::string_view StripLeftLikePython(std::string_view text);
std::string_view StripRightLikePython(std::string_view text);
// Regex \w: letters, marks, numbers (decimal and letter), connectors, joiners.
bool IsWordChar(char32_t code);

bool StartsWithWordChar(std::string_view text);
bool EndsWithWordChar(std::string_view text);  // well-formed text
// Bytes of white space at the front and at the end of well-formed text.
size_t LeadingSpace(std::string_view text);
size_t TrailingSpace(std::string_view text);

}  // namespace hydrant::tokenizer
