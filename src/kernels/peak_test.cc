// SPDX-License-Identifier: Apache-2.0
// The measuring loops do what they count: every target's reads add up, every product arrives.
#include <gtest/gtest.h>

#include <cstdlib>
#include <cstring>
#include <memory>
#include <random>
#include <string>

#include "kernels/kernels.h"

namespace hydrant::kernels::peak_test {
namespace {

struct Free {
  void operator()(uint8_t* data) const { std::free(data); }
};

TEST(PeakTest, EveryLineIsReadOnceOnEveryTarget) {
  constexpr size_t kLines = 67;
  // The loops prefetch past the end, which no memory need back.
  const std::unique_ptr<uint8_t, Free> data(static_cast<uint8_t*>(std::aligned_alloc(64, kLines * 64)));
  std::mt19937 random(1);
  for (size_t i = 0; i < kLines * 64; ++i) data.get()[i] = static_cast<uint8_t>(random());
  for (const KernelTable* table : AvailableKernels()) {
    uint64_t sum = 0;
    for (size_t lines = 0; lines <= kLines; ++lines) {
      EXPECT_EQ(table->peak->read_lines(data.get(), static_cast<int64_t>(lines * 64)), sum)
          << table->name << ", " << lines << " lines";
      for (size_t word = 0; lines < kLines && word < 8; ++word) {
        uint64_t value = 0;
        std::memcpy(&value, data.get() + lines * 64 + word * 8, 8);
        sum += value;
      }
    }
  }
}

TEST(PeakTest, EveryProductIsCountedOnEveryTarget) {
  for (const KernelTable* table : AvailableKernels()) {
    EXPECT_GT(table->peak->num_loops, 0) << table->name;
    for (int64_t l = 0; l < table->peak->num_loops; ++l) {
      const PeakLoop& loop = table->peak->loops[l];
      for (const int64_t rounds : {int64_t{0}, int64_t{1}, int64_t{1000}}) {
        const PeakResult result = loop.run(rounds);
        EXPECT_EQ(result.sum, result.macs) << table->name << " " << loop.instruction << ", " << rounds << " rounds";
        EXPECT_EQ(result.macs > 0, rounds > 0);
      }
    }
  }
}

TEST(PeakTest, SumsAreExactUpToTheMostRounds) {
  const KernelTable& best = *AvailableKernels().back();
  for (int64_t l = 0; l < best.peak->num_loops; ++l) {
    const PeakResult result = best.peak->loops[l].run(kMaxPeakRounds);
    EXPECT_EQ(result.sum, result.macs) << best.name << " " << best.peak->loops[l].instruction;
  }
}

}  // namespace
}  // namespace hydrant::kernels::peak_test
