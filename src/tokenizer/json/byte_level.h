// SPDX-License-Identifier: Apache-2.0
// The alphabet of byte-level BPE: every byte is written as a printable character (GPT-2), so that a vocabulary is text.
#pragma once

#include <optional>
#include <string>
#include <string_view>

namespace hydrant::tokenizer {

// Bytes to their characters: 'A' stays, a space becomes U+0120.
std::string BytesToLetters(std::string_view bytes);
// Back; nothing when a character is not one of the 256.
std::optional<std::string> LettersToBytes(std::string_view letters);

}  // namespace hydrant::tokenizer
