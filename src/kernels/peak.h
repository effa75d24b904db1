// SPDX-License-Identifier: Apache-2.0
// What a target reaches at best: loops that only read, and loops that only multiply. `hydrant bench` prints every time
// beside the roofline that they give. Plain data: target files include this.
#pragma once

#include <cstdint>

namespace hydrant::kernels {

struct PeakResult {
  int64_t macs = 0;  // multiply-accumulates done
  // Sum of all the products, each of them 1 x 1, from the accumulators: it differs from `macs` if the loop did not do
  // its work.
  int64_t sum = 0;
};

// Every accumulator stays below 2^24, so that f32 sums count exactly.
inline constexpr int64_t kMaxPeakRounds = int64_t{1} << 20;

// How far ahead the reading loops prefetch, to the second-level cache. With it two threads read 5 to 8 % faster than
// with the hardware's prefetchers alone, while a distance of 16 KB lost 10 % (AMD Zen 4, 2 MB pages).
inline constexpr int64_t kPeakPrefetchBytes = 1024;

enum class PeakType : uint8_t { kF32, kBF16, kInt8 };

struct PeakLoop {
  PeakType type = PeakType::kF32;
  const char* instruction = "";  // "vpdpbusd"
  // `rounds` <= kMaxPeakRounds; operands stay in registers (portable: in the first-level cache).
  PeakResult (*run)(int64_t rounds) = nullptr;
};

struct PeakEntries {
  // Reads `bytes` (a multiple of 64, at an address that is one) and returns the sum of its 64-bit words, mod 2^64.
  uint64_t (*read_lines)(const uint8_t* data, int64_t bytes) = nullptr;
  const PeakLoop* loops = nullptr;
  int64_t num_loops = 0;
};

}  // namespace hydrant::kernels
