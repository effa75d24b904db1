// SPDX-License-Identifier: Apache-2.0
// Tile registers in plain C++: the twin of amx/tiles_instructions.h, with the same meaning bit for bit, including the
// rows and columns of the configuration. Where the instructions would raise an exception it traps.
#pragma once

#include <cstdint>

#include "kernels/amx/bf16.h"
#include "kernels/amx/tiles.h"

namespace hydrant::kernels {
namespace {

class SoftwareTiles {
 public:
  void Configure(const TileConfig& config) {
    Require(config.palette == 1 && config.start_row == 0);
    config_ = config;
    configured_ = true;
    for (Tile& tile : tiles_) Clear(tile);
  }
  void Release() { configured_ = false; }

  template <int kTile>
  void Zero() {
    Require(Usable(kTile));
    Clear(tiles_[kTile]);
  }

  template <int kTile, int kOffset = 0>
  void Load(const void* from) {
    LoadLines<kTile>(static_cast<const uint8_t*>(from) + kOffset, kTileRowBytes);
  }

  template <int kTile>
  void LoadOnce(const void* from) {
    Load<kTile>(from);
  }

  template <int kTile>
  void LoadLines(const void* from, int64_t stride) {
    Require(Usable(kTile));
    const int64_t rows = config_.rows[kTile], row_bytes = config_.row_bytes[kTile];
    const auto* lines = static_cast<const uint8_t*>(from);
    Tile& tile = tiles_[kTile];
    for (int64_t m = 0; m < rows; ++m) {
      for (int64_t i = 0; i < row_bytes; ++i) tile.bytes[m][i] = lines[m * stride + i];
    }
  }

  template <int kTile>
  void Store(void* to) {
    StoreLines<kTile>(to, kTileRowBytes);
  }

  template <int kTile>
  void StoreLines(void* to, int64_t stride) {
    Require(Usable(kTile));
    auto* lines = static_cast<uint8_t*>(to);
    for (int64_t m = 0; m < config_.rows[kTile]; ++m) {
      for (int64_t i = 0; i < config_.row_bytes[kTile]; ++i) lines[m * stride + i] = tiles_[kTile].bytes[m][i];
    }
  }

  void Apart() {}

  // What lies outside a register's rows and columns is zero since Configure, so whole registers may be multiplied.
  template <int kSum, int kA, int kB>
  void MultiplyU8S8() {
    RequireProduct<kSum, kA, kB>();
    MultiplyTiles<false>(tiles_[kA], tiles_[kB], tiles_[kSum]);
  }

  template <int kSum, int kA, int kB>
  void MultiplyS8U8() {
    RequireProduct<kSum, kA, kB>();
    MultiplyTiles<true>(tiles_[kA], tiles_[kB], tiles_[kSum]);
  }

  template <int kSum, int kA, int kB>
  void MultiplyBf16() {
    RequireProduct<kSum, kA, kB>();
    MultiplyBf16Tiles(tiles_[kA], tiles_[kB], config_.rows[kA], config_.rows[kB], tiles_[kSum]);
  }

 private:
  struct Tile {
    alignas(64) uint8_t bytes[kTileRows][kTileRowBytes];
  };

  static void Require(bool holds) {
    if (!holds) __builtin_trap();
  }
  bool Usable(int tile) const {
    return configured_ && config_.rows[tile] > 0 && config_.rows[tile] <= kTileRows && config_.row_bytes[tile] > 0 &&
           config_.row_bytes[tile] <= kTileRowBytes;
  }
  template <int kSum, int kA, int kB>
  void RequireProduct() const {
    static_assert(kSum != kA && kSum != kB && kA != kB);
    Require(Usable(kSum) && Usable(kA) && Usable(kB) && config_.rows[kSum] == config_.rows[kA] &&
            config_.row_bytes[kSum] == config_.row_bytes[kB] && config_.row_bytes[kA] == 4 * config_.rows[kB]);
  }
  static void Clear(Tile& tile) { __builtin_memset(tile.bytes, 0, sizeof(tile.bytes)); }
  static int32_t Factor(uint8_t byte, bool is_signed) { return is_signed ? (byte ^ 128) - 128 : byte; }
  // One operand is signed, the other not. Not inlined: one copy is enough.
  template <bool kSignedA>
  __attribute__((noinline)) static void MultiplyTiles(const Tile& a, const Tile& b, Tile& sum) {
    int16_t columns[4 * kTileRows][16];  // [k][n]: the order in which compilers multiply 16 columns at once
#pragma GCC unroll 1
    for (int64_t k = 0; k < 4 * kTileRows; ++k) {
      for (int64_t n = 0; n < 16; ++n)
        columns[k][n] = static_cast<int16_t>(Factor(b.bytes[k / 4][4 * n + k % 4], !kSignedA));
    }
#pragma GCC unroll 1
    for (int64_t m = 0; m < kTileRows; ++m) {
      uint32_t sums[16];
      __builtin_memcpy(sums, sum.bytes[m], sizeof(sums));
#pragma GCC unroll 1
      for (int64_t k = 0; k < 4 * kTileRows; k += 2) {
        const int32_t a0 = Factor(a.bytes[m][k], kSignedA), a1 = Factor(a.bytes[m][k + 1], kSignedA);
        for (int64_t n = 0; n < 16; ++n) {
          sums[n] += static_cast<uint32_t>(a0 * columns[k][n] + a1 * columns[k + 1][n]);
        }
      }
      __builtin_memcpy(sum.bytes[m], sums, sizeof(sums));
    }
  }

  // Both chains of 16 columns at once.
  __attribute__((noinline)) static void MultiplyBf16Tiles(const Tile& a, const Tile& b, int64_t rows, int64_t pairs,
                                                          Tile& sum) {
    float right[kTileRows][32];
#pragma GCC unroll 1
    for (int64_t k = 0; k < pairs; ++k) {
      for (int64_t i = 0; i < 32; ++i) right[k][i] = Bf16Factor(b.bytes[k] + 2 * i);
    }
#pragma GCC unroll 1
    for (int64_t m = 0; m < rows; ++m) {
      float chains[32] = {};
#pragma GCC unroll 1
      for (int64_t k = 0; k < pairs; ++k) {
        const float even = Bf16Factor(a.bytes[m] + 4 * k), odd = Bf16Factor(a.bytes[m] + 4 * k + 2);
        float next[32];
        uint32_t tiny = 0;
        for (int64_t i = 0; i < 32; ++i) {
          next[i] = __builtin_fmaf(i % 2 == 0 ? even : odd, right[k][i], chains[i]);
          tiny |= IsTiny(next[i]) ? 1U : 0U;
        }
        for (int64_t i = 0; i < 32 && tiny != 0; ++i) {
          next[i] = FlushFused(i % 2 == 0 ? even : odd, right[k][i], chains[i], next[i]);
        }
        __builtin_memcpy(chains, next, sizeof(chains));
      }
      float sums[16];
      __builtin_memcpy(sums, sum.bytes[m], sizeof(sums));
      for (int64_t n = 0; n < 16; ++n) {
        sums[n] = FlushDenormal(FlushDenormal(sums[n]) + FlushDenormal(chains[2 * n] + chains[2 * n + 1]));
      }
      __builtin_memcpy(sum.bytes[m], sums, sizeof(sums));
    }
  }

  TileConfig config_;
  bool configured_ = false;
  Tile tiles_[8];
};

}  // namespace
}  // namespace hydrant::kernels
