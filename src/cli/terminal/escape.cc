// SPDX-License-Identifier: Apache-2.0
#include "cli/terminal/escape.h"

#include <fmt/core.h>

#include <cstdint>

namespace hydrant::cli {
namespace {

// Bytes of the valid character at the front of `text`, which is not empty, and its number; 0 bytes: none is valid.
size_t Character(std::string_view text, uint32_t* number) {
  const auto byte = [&](size_t i) { return static_cast<uint32_t>(static_cast<unsigned char>(text[i])); };
  const uint32_t first = byte(0);
  *number = first;
  if (first < 0x80) return 1;
  const size_t length = first >= 0xF0 ? 4 : first >= 0xE0 ? 3 : 2;
  if (first < 0xC2 || first > 0xF4 || text.size() < length) return 0;
  *number = first & (0x7FU >> length);
  for (size_t i = 1; i < length; ++i) {
    if ((byte(i) & 0xC0) != 0x80) return 0;
    *number = (*number << 6) | (byte(i) & 0x3F);
  }
  constexpr uint32_t kSmallest[] = {0, 0, 0x80, 0x800, 0x10000};
  const bool surrogate = *number >= 0xD800 && *number <= 0xDFFF;
  return *number < kSmallest[length] || *number > 0x10FFFF || surrogate ? 0 : length;
}

bool IsControl(uint32_t number) { return number < 0x20 || (number >= 0x7F && number <= 0x9F); }

bool TurnsDirection(uint32_t number) {
  return number == 0x200E || number == 0x200F || (number >= 0x202A && number <= 0x202E) ||
         (number >= 0x2066 && number <= 0x2069);
}

std::string Escape(std::string_view text, std::string_view keep, bool directions) {
  std::string out;
  out.reserve(text.size());
  while (!text.empty()) {
    uint32_t number = 0;
    const size_t length = Character(text, &number);
    const bool kept = length == 1 && keep.find(text.front()) != std::string_view::npos;
    if (length == 0 || (number < 0x80 && IsControl(number) && !kept)) {
      out += fmt::format("\\x{:02x}", static_cast<unsigned char>(text.front()));
    } else if (number >= 0x80 && (IsControl(number) || (directions && TurnsDirection(number)))) {
      out += fmt::format("\\u{:04x}", number);
    } else {
      out += text.substr(0, length);
    }
    text.remove_prefix(length == 0 ? 1 : length);
  }
  return out;
}

}  // namespace

std::string Escaped(std::string_view text, std::string_view keep) { return Escape(text, keep, false); }

std::string EscapedName(std::string_view text, std::string_view keep) { return Escape(text, keep, true); }

}  // namespace hydrant::cli
