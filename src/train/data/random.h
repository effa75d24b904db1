// SPDX-License-Identifier: Apache-2.0
// Numbers that are the same on every machine. std::shuffle and the distributions of <random> differ between libraries.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

namespace hydrant::train {

// The finalizer of SplitMix64 (Steele, Lea, Flood 2014): a permutation of the 64-bit numbers.
inline uint64_t MixBits(uint64_t x) {
  x = (x ^ (x >> 30)) * 0xBF58476D1CE4E5B9;
  x = (x ^ (x >> 27)) * 0x94D049BB133111EB;
  return x ^ (x >> 31);
}

// SplitMix64: the n-th number is MixBits of seed + n * 0x9E3779B97F4A7C15, n from 1.
class Random {
 public:
  explicit Random(uint64_t seed) : state_(seed) {}
  // A generator whose seed is greater by n of these begins n numbers later.
  static constexpr uint64_t kStep = 0x9E3779B97F4A7C15;

  uint64_t Next() {
    state_ += kStep;
    return MixBits(state_);
  }
  // One of [0, count), all equally likely: numbers of the last, incomplete round are drawn again. 0 < count.
  uint64_t Below(uint64_t count);

 private:
  uint64_t state_;
};

// The numbers [0, count) in an order drawn by Fisher and Yates' shuffle: from the last place down to the second, each
// changes places with one of those up to itself.
std::vector<int32_t> ShuffledIndices(size_t count, Random& random);

}  // namespace hydrant::train
