// SPDX-License-Identifier: Apache-2.0
// Tile registers in software and by instructions against the words of the definition.
#include <gtest/gtest.h>

#include <cstring>
#include <random>
#include <vector>

#include "kernels/amx_tiles_software.h"
#include "kernels/cpu_features.h"
#if defined(__x86_64__)
#include "kernels/amx_tiles_instructions.h"
#include "kernels/amx_trap_test_util.h"
#endif

namespace hydrant::kernels {
namespace {

struct alignas(64) Bytes {
  uint8_t at[kTileBytes];
};

Bytes Random(uint32_t seed) {
  std::mt19937 random(seed);
  Bytes bytes;
  for (uint8_t& byte : bytes.at) byte = static_cast<uint8_t>(random());
  return bytes;
}

int32_t Word(const Bytes& bytes, int64_t m, int64_t n) {
  int32_t word = 0;
  std::memcpy(&word, bytes.at + m * kTileRowBytes + 4 * n, 4);
  return word;
}

// Sums of `rows` x `columns`, inputs 4 * quads.
TileConfig ConfigOf(uint8_t rows, uint16_t columns, uint8_t quads) {
  TileConfig config = FullTiles();
  config.rows[0] = rows;
  config.row_bytes[0] = static_cast<uint16_t>(4 * columns);
  config.rows[1] = rows;
  config.row_bytes[1] = static_cast<uint16_t>(4 * quads);
  config.rows[2] = quads;
  config.row_bytes[2] = static_cast<uint16_t>(4 * columns);
  return config;
}

template <typename Tiles>
Bytes Multiply(const TileConfig& config, const Bytes& sums, const Bytes& a, const Bytes& b) {
  Tiles tiles;
  Bytes out = Random(9);
  tiles.Configure(config);
  tiles.template Load<0>(sums.at);
  tiles.template Load<1>(a.at);
  tiles.template Load<2>(b.at);
  tiles.template MultiplyU8S8<0, 1, 2>();
  tiles.template Store<0>(out.at);
  tiles.Release();
  return out;
}

template <typename Tiles>
void ExpectDefinition(uint8_t rows, uint16_t columns, uint8_t quads) {
  const Bytes sums = Random(1), a = Random(2), b = Random(3), untouched = Random(9);
  const Bytes out = Multiply<Tiles>(ConfigOf(rows, columns, quads), sums, a, b);
  for (int64_t m = 0; m < kTileRows; ++m) {
    for (int64_t n = 0; n < 16; ++n) {
      auto sum = static_cast<uint32_t>(Word(sums, m, n));
      for (int64_t k = 0; k < 4 * quads; ++k) {
        const int32_t left = a.at[m * kTileRowBytes + k];
        const int32_t right = (b.at[k / 4 * kTileRowBytes + 4 * n + k % 4] ^ 128) - 128;  // signed
        sum += static_cast<uint32_t>(left * right);
      }
      const bool inside = m < rows && n < columns;
      ASSERT_EQ(Word(out, m, n), inside ? static_cast<int32_t>(sum) : Word(untouched, m, n))
          << +rows << " x " << columns << " x " << 4 * quads << " at " << m << ", " << n;
    }
  }
}

template <typename Tiles>
void ExpectZeroAndOffsetsWork() {
  std::vector<Bytes> memory = {Random(4), Random(5)};
  Bytes out = Random(6);
  Tiles tiles;
  tiles.Configure(FullTiles());
  tiles.template Load<7, kTileBytes>(memory[0].at);
  tiles.template Store<7>(out.at);
  EXPECT_EQ(std::memcmp(out.at, memory[1].at, sizeof(out)), 0);
  tiles.template Zero<7>();
  tiles.template Store<7>(out.at);
  tiles.Release();
  for (const uint8_t byte : out.at) ASSERT_EQ(byte, 0);
}

template <typename Tiles>
void ExpectAll() {
  for (const int rows : {1, 7, 16}) {
    for (const int columns : {1, 5, 16}) {
      for (const int quads : {1, 3, 16}) {
        ExpectDefinition<Tiles>(static_cast<uint8_t>(rows), static_cast<uint16_t>(columns),
                                static_cast<uint8_t>(quads));
      }
    }
  }
  ExpectZeroAndOffsetsWork<Tiles>();
}

TEST(AmxTilesTest, TheSoftwareComputesTheDefinition) { ExpectAll<SoftwareTiles>(); }

#if defined(__x86_64__)
TEST(AmxTilesTest, TheInstructionsComputeTheDefinition) {
  if (!DetectCpuFeatures().amx) GTEST_SKIP() << "this machine has no AMX: trapped instead";
  ExpectAll<TileInstructions>();
}

TEST(AmxTilesTest, TheTrappedInstructionsComputeTheDefinition) {
  if (DetectCpuFeatures().amx) GTEST_SKIP() << "this machine has AMX: nothing to trap";
  const TileTrap trap;
  ExpectAll<TileInstructions>();
  EXPECT_GT(trap.products(), 0);
  EXPECT_FALSE(trap.configured());
}
#endif

void UseUnconfigured(bool released) {
  SoftwareTiles tiles;
  if (released) {
    tiles.Configure(FullTiles());
    tiles.Release();
  }
  tiles.Zero<0>();
}

void MultiplyUnequal() {
  TileConfig config = FullTiles();
  config.rows[2] = 8;  // 32 inputs in one operand, 64 in the other
  SoftwareTiles tiles;
  tiles.Configure(config);
  tiles.MultiplyU8S8<0, 1, 2>();
}

TEST(AmxTilesDeathTest, TheSoftwareTrapsWhereInstructionsWould) {
  GTEST_FLAG_SET(death_test_style, "threadsafe");
  EXPECT_DEATH(UseUnconfigured(false), "");
  EXPECT_DEATH(UseUnconfigured(true), "");
  EXPECT_DEATH(MultiplyUnequal(), "");
}

}  // namespace
}  // namespace hydrant::kernels
