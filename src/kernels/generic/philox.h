// SPDX-License-Identifier: Apache-2.0
// Philox4x32-10 (Salmon, Moraes, Dror, Shaw, "Parallel random numbers: as easy as 1, 2, 3", SC 2011): a counter in,
// four random words out, no state. Tested against the authors' known answers. Plain enough for target files.
#pragma once

#include <cstdint>

namespace hydrant::kernels {

struct PhiloxBlock {
  uint32_t word[4];
};

static inline PhiloxBlock Philox4x32(PhiloxBlock counter, uint32_t key0, uint32_t key1) {
  uint32_t c0 = counter.word[0], c1 = counter.word[1], c2 = counter.word[2], c3 = counter.word[3];
  for (int round = 0; round < 10; ++round) {
    const uint64_t product0 = uint64_t{0xD2511F53} * c0;
    const uint64_t product2 = uint64_t{0xCD9E8D57} * c2;
    c0 = static_cast<uint32_t>(product2 >> 32) ^ c1 ^ key0;
    c1 = static_cast<uint32_t>(product2);
    c2 = static_cast<uint32_t>(product0 >> 32) ^ c3 ^ key1;
    c3 = static_cast<uint32_t>(product0);
    key0 += 0x9E3779B9;  // golden ratio
    key1 += 0xBB67AE85;  // sqrt(3) - 1
  }
  return {{c0, c1, c2, c3}};
}

}  // namespace hydrant::kernels
