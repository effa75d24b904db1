// SPDX-License-Identifier: Apache-2.0
// Tile registers in software and by instructions against the words of the definition.
#include <gtest/gtest.h>

#include <bit>
#include <cmath>
#include <cstring>
#include <random>
#include <vector>

#include "kernels/amx/tiles_software.h"
#include "kernels/cpu_features.h"
#include "kernels/test_util/test_util.h"
#if defined(__x86_64__)
#include <immintrin.h>

#include "kernels/amx/tiles_instructions.h"
#include "kernels/test_util/amx_trap.h"
#endif

namespace hydrant::kernels::tiles_test {
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

// signed_a: the first operand is signed and the second is not, else the other way round.
template <typename Tiles>
Bytes Multiply(const TileConfig& config, const Bytes& sums, const Bytes& a, const Bytes& b, bool signed_a) {
  Tiles tiles;
  Bytes out = Random(9);
  tiles.Configure(config);
  tiles.template Load<0>(sums.at);
  tiles.template Load<1>(a.at);
  tiles.template Load<2>(b.at);
  if (signed_a) {
    tiles.template MultiplyS8U8<0, 1, 2>();
  } else {
    tiles.template MultiplyU8S8<0, 1, 2>();
  }
  tiles.template Store<0>(out.at);
  tiles.Release();
  return out;
}

int32_t Factor(uint8_t byte, bool is_signed) { return is_signed ? (byte ^ 128) - 128 : byte; }

template <typename Tiles>
void ExpectDefinition(uint8_t rows, uint16_t columns, uint8_t quads, bool signed_a) {
  const Bytes sums = Random(1), a = Random(2), b = Random(3), untouched = Random(9);
  const Bytes out = Multiply<Tiles>(ConfigOf(rows, columns, quads), sums, a, b, signed_a);
  for (int64_t m = 0; m < kTileRows; ++m) {
    for (int64_t n = 0; n < 16; ++n) {
      auto sum = static_cast<uint32_t>(Word(sums, m, n));
      for (int64_t k = 0; k < 4 * quads; ++k) {
        const int32_t left = Factor(a.at[m * kTileRowBytes + k], signed_a);
        const int32_t right = Factor(b.at[k / 4 * kTileRowBytes + 4 * n + k % 4], !signed_a);
        sum += static_cast<uint32_t>(left * right);
      }
      const bool inside = m < rows && n < columns;
      ASSERT_EQ(Word(out, m, n), inside ? static_cast<int32_t>(sum) : Word(untouched, m, n))
          << +rows << " x " << columns << " x " << 4 * quads << (signed_a ? " signed" : "") << " at " << m << ", " << n;
    }
  }
}

// Fused, to nearest, denormals as zeros: by the processor where it can, else where no number is near them.
#if defined(__x86_64__)
__attribute__((target("fma"), noinline)) float FusedByHardware(float a, float b, float c) {
  return _mm_cvtss_f32(_mm_fmadd_ss(_mm_set_ss(a), _mm_set_ss(b), _mm_set_ss(c)));
}
bool FlushesByHardware() { return __builtin_cpu_supports("fma") != 0; }
float Fused(float a, float b, float c) {
  if (!FlushesByHardware()) return std::fma(a, b, c);
  const unsigned before = _mm_getcsr();
  _mm_setcsr(before | 0x8040U);  // flush results, take operands for zero
  const float out = FusedByHardware(a, b, c);
  _mm_setcsr(before);
  return out;
}
#else
bool FlushesByHardware() { return false; }
float Fused(float a, float b, float c) { return std::fma(a, b, c); }
#endif

float Bf16(const Bytes& bytes, int64_t line, int64_t i) {
  uint16_t word;
  std::memcpy(&word, bytes.at + line * kTileRowBytes + 2 * i, 2);
  return std::bit_cast<float>(static_cast<uint32_t>(word) << 16);
}

// Random bf16 or f32 whose exponents are in [low, high], now and then something special.
Bytes RandomNumbers(uint32_t seed, int64_t bytes_each, uint32_t low, uint32_t high, bool special) {
  std::mt19937 random(seed);
  Bytes bytes;
  for (int64_t i = 0; i < kTileBytes; i += bytes_each) {
    auto bits = static_cast<uint32_t>((low + random() % (high - low + 1)) << 23 | (random() & 0x807fffffU));
    const auto word = static_cast<uint32_t>(random());
    if (special && random() % 64 == 0) bits = (word & 0x80000000U) | (word % 2 == 0 ? 0 : 0x7f800000U);
    if (special && random() % 64 == 0) bits = word & 0x807fffffU;  // denormal
    std::memcpy(bytes.at + i, reinterpret_cast<const uint8_t*>(&bits) + 4 - bytes_each,
                static_cast<size_t>(bytes_each));
  }
  return bytes;
}

template <typename Tiles>
void ExpectBf16Definition(uint8_t rows, uint16_t columns, uint8_t pairs, uint32_t low, uint32_t high, bool special) {
  const Bytes sums = RandomNumbers(1, 4, low, high, special), a = RandomNumbers(2, 2, (low + 127) / 2, high, special),
              b = RandomNumbers(3, 2, (low + 127) / 2, high, special);
  Bytes out = Random(9);
  Tiles tiles;
  tiles.Configure(ConfigOf(rows, columns, pairs));
  tiles.template Load<0>(sums.at);
  tiles.template Load<1>(a.at);
  tiles.template Load<2>(b.at);
  tiles.template MultiplyBf16<0, 1, 2>();
  tiles.template Store<0>(out.at);
  tiles.Release();
  for (int64_t m = 0; m < rows; ++m) {
    for (int64_t n = 0; n < columns; ++n) {
      float even = 0, odd = 0;
      for (int64_t k = 0; k < pairs; ++k) {
        even = Fused(Bf16(a, m, 2 * k), Bf16(b, k, 2 * n), even);
        odd = Fused(Bf16(a, m, 2 * k + 1), Bf16(b, k, 2 * n + 1), odd);
      }
      const float expected = Fused(1.0F, std::bit_cast<float>(Word(sums, m, n)), Fused(1.0F, even, odd));
      const auto found = std::bit_cast<float>(Word(out, m, n));
      ASSERT_TRUE(SameBits(found, expected)) << +rows << " x " << columns << " x " << 2 * pairs << " at " << m << ", "
                                             << n << ": " << found << ", expected " << expected;
    }
  }
}

template <typename Tiles>
void ExpectLinesWork() {
  std::vector<uint8_t> memory(4096), to(4096, 0);
  for (size_t i = 0; i < memory.size(); ++i) memory[i] = static_cast<uint8_t>(i * 37 + i / 64);
  Tiles tiles;
  TileConfig config = FullTiles();
  config.rows[5] = 7;
  tiles.Configure(config);
  tiles.template LoadLines<5>(memory.data() + 64, 192);
  tiles.template StoreLines<5>(to.data() + 128, 256);
  tiles.Release();
  for (size_t i = 0; i < to.size(); ++i) {
    const bool inside = i >= 128 && i / 256 < 7 && i % 256 >= 128 && i % 256 < 192;
    ASSERT_EQ(to[i], inside ? memory[64 + i / 256 * 192 + i % 64] : 0) << i;
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
        for (const bool signed_a : {false, true}) {
          ExpectDefinition<Tiles>(static_cast<uint8_t>(rows), static_cast<uint16_t>(columns),
                                  static_cast<uint8_t>(quads), signed_a);
        }
      }
    }
  }
  ExpectZeroAndOffsetsWork<Tiles>();
  ExpectLinesWork<Tiles>();
  for (const int rows : {1, 16}) {
    for (const int pairs : {1, 5, 16}) {
      const auto m = static_cast<uint8_t>(rows), k = static_cast<uint8_t>(pairs);
      ExpectBf16Definition<Tiles>(m, 16, k, 120, 135, false);
      if (!FlushesByHardware()) continue;
      ExpectBf16Definition<Tiles>(m, 3, k, 1, 20, false);  // products around 2^-126
      ExpectBf16Definition<Tiles>(m, 16, k, 1, 254, true);
    }
  }
}

// Around the smallest normal number, where rounding to a denormal and rounding to 24 bits part.
TEST(AmxTilesTest, FusedResultsAreFlushedAsTheProcessorDoes) {
  if (!FlushesByHardware()) GTEST_SKIP() << "this machine has no FMA";
  std::mt19937 random(4);
  int kept = 0, flushed = 0;
  for (int i = 0; i < 300000; ++i) {
    const float sign = i % 2 == 0 ? 1.0F : -1.0F;
    // c is 2^-126 or a few units more, a * b takes up to 4 of these units away, often by eighths.
    const float c = 0x1p-126F + static_cast<float>(random() % 3) * 0x1p-149F;
    const float a = -static_cast<float>(128 + random() % 128) * 0x1p-76F;
    const float b = static_cast<float>(i % 3 == 0 ? 128 : 128 + random() % 128) *
                    std::ldexp(1.0F, -85 - static_cast<int>(random() % 6));
    const float expected = Fused(sign * a, b, sign * c);
    const float found = FlushFused(sign * a, b, sign * c, std::fma(sign * a, b, sign * c));
    ASSERT_EQ(std::bit_cast<uint32_t>(found), std::bit_cast<uint32_t>(expected)) << a << " * " << b << " + " << c;
    (found == 0 ? flushed : kept)++;
  }
  EXPECT_GT(kept, 10000);
  EXPECT_GT(flushed, 10000);
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
}  // namespace hydrant::kernels::tiles_test
