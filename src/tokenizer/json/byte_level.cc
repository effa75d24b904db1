// SPDX-License-Identifier: Apache-2.0
#include "tokenizer/json/byte_level.h"

#include <array>
#include <cstdint>

#include "tokenizer/utf8.h"

namespace hydrant::tokenizer {
namespace {

struct Alphabet {
  std::array<std::string, 256> letter_of_byte;
  std::array<int16_t, 324> byte_of_letter;  // by code point; the highest letter is U+0143, -1 = not a letter
};

// Printable Latin-1 stands for itself; the other bytes take U+0100, U+0101, ... in the order of their values.
Alphabet MakeAlphabet() {
  Alphabet alphabet;
  alphabet.byte_of_letter.fill(-1);
  char32_t next = 0x100;
  for (int byte = 0; byte < 256; ++byte) {
    const bool printable = (byte >= 0x21 && byte <= 0x7E) || (byte >= 0xA1 && byte <= 0xAC) || byte >= 0xAE;
    const char32_t code = printable ? static_cast<char32_t>(byte) : next++;
    AppendUtf8(code, &alphabet.letter_of_byte[static_cast<size_t>(byte)]);
    alphabet.byte_of_letter[code] = static_cast<int16_t>(byte);
  }
  return alphabet;
}

const Alphabet& TheAlphabet() {
  static const Alphabet alphabet = MakeAlphabet();
  return alphabet;
}

}  // namespace

std::string BytesToLetters(std::string_view bytes) {
  const Alphabet& alphabet = TheAlphabet();
  std::string letters;
  letters.reserve(bytes.size() * 2);
  for (const char byte : bytes) letters += alphabet.letter_of_byte[static_cast<uint8_t>(byte)];
  return letters;
}

std::optional<std::string> LettersToBytes(std::string_view letters) {
  const Alphabet& alphabet = TheAlphabet();
  std::string bytes;
  while (!letters.empty()) {
    const Utf8Char next = NextChar(letters);
    if (next.code >= alphabet.byte_of_letter.size() || alphabet.byte_of_letter[next.code] < 0) return std::nullopt;
    bytes.push_back(static_cast<char>(static_cast<uint8_t>(alphabet.byte_of_letter[next.code])));
    letters.remove_prefix(next.size);
  }
  return bytes;
}

}  // namespace hydrant::tokenizer
