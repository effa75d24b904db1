// SPDX-License-Identifier: Apache-2.0
#include "checkpoint/crc32.h"

#include <array>

namespace hydrant::checkpoint {

uint32_t Crc32(std::string_view bytes) {
  constexpr auto kTable = [] {
    std::array<uint32_t, 256> table{};
    for (uint32_t i = 0; i < table.size(); ++i) {
      table[i] = i;
      for (int bit = 0; bit < 8; ++bit) table[i] = (table[i] >> 1) ^ ((table[i] & 1U) != 0 ? 0xEDB88320U : 0U);
    }
    return table;
  }();
  uint32_t crc = 0xFFFFFFFFU;
  for (const char c : bytes) crc = (crc >> 8) ^ kTable[(crc ^ static_cast<uint8_t>(c)) & 0xFFU];
  return ~crc;
}

}  // namespace hydrant::checkpoint
