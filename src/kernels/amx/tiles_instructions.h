// SPDX-License-Identifier: Apache-2.0
// Tile registers by AMX instructions. Own wrappers, because GCC 12's intrinsics declare no memory operand for a tile
// load: the compiler may then sink the stores that fill the tile below its load. Here every load and store of a compact
// tile names its 1024 bytes, the others all memory, and `volatile` keeps tile instructions in their order. Calls
// clobber all tiles: no call between Configure and Release but to functions of the same file that are inlined.
//
// TDPBUSD and TDPBSUD compute 16 x 16 x 64 products (TDPBF16PS half as many) in 16 cycles, fewer when the first operand
// has fewer lines, with a latency of about 52 according to Intel's manuals: hence at least four sums in turn. A tile
// load cannot be served from the store buffer: whoever writes a tile's bytes does so at least one step earlier.
//
// Each register in use costs time where the core's other hardware thread is busy, with tiles as it seems. Cycles of a
// load and a product in turn, beside such a neighbour (without one: 17 in all cases):
//   registers in use                            8          7          6          4
//   nothing between them                        79 to 82   57         41 to 44   31 to 33
//   four instructions behind each of the two    62         37 to 39   33 to 36   24 to 28
// What is inferred: both threads share few registers beyond the sixteen that they name, and a write needs a free one.
// So kernels use as few as they can; by renaming, one register takes operand after operand. Room between tile
// instructions helps as well. Products mostly have other work behind them; loads get empty instructions here
// (docs/benchmarks/tiles.md, "Tile registers beside a neighbour").
#pragma once

#include <cstdint>

#include "kernels/amx/tiles.h"

#define HYDRANT_APART "\n\t.rept 4\n\tnop\n\t.endr"

namespace hydrant::kernels {
namespace {

class TileInstructions {
 public:
  void Configure(const TileConfig& config) { __asm__ volatile("ldtilecfg %0" : : "m"(config)); }
  // Back to the initial state. Then a switch of this thread saves 8 KB less, and a parked core may clock up.
  void Release() { __asm__ volatile("tilerelease" : :); }

  template <int kTile>
  void Zero() {
    __asm__ volatile("tilezero %%tmm%c0" : : "i"(kTile));
  }

  template <int kTile, int kOffset = 0>
  void Load(const void* from) {
    const auto* tile = static_cast<const uint8_t*>(from) + kOffset;
    __asm__ volatile("tileloadd %c3(%1,%2,1), %%tmm%c0" HYDRANT_APART
                     :
                     : "i"(kTile), "r"(from), "r"(kTileRowBytes), "i"(kOffset),
                       "m"(*reinterpret_cast<const Bytes*>(tile)));
  }

  template <int kTile>
  void LoadOnce(const void* from) {
    __asm__ volatile("tileloaddt1 (%1,%2,1), %%tmm%c0" HYDRANT_APART
                     :
                     : "i"(kTile), "r"(from), "r"(kTileRowBytes), "m"(*static_cast<const Bytes*>(from)));
  }

  template <int kTile>
  void Store(void* to) {
    __asm__ volatile("tilestored %%tmm%c1, (%2,%3,1)"
                     : "=m"(*static_cast<Bytes*>(to))
                     : "i"(kTile), "r"(to), "r"(kTileRowBytes));
  }

  template <int kTile>
  void LoadLines(const void* from, int64_t stride) {
    __asm__ volatile("tileloadd (%1,%2,1), %%tmm%c0" HYDRANT_APART : : "i"(kTile), "r"(from), "r"(stride) : "memory");
  }

  template <int kTile>
  void StoreLines(void* to, int64_t stride) {
    __asm__ volatile("tilestored %%tmm%c0, (%1,%2,1)" : : "i"(kTile), "r"(to), "r"(stride) : "memory");
  }

  void Apart() { __asm__ volatile(HYDRANT_APART HYDRANT_APART : :); }

  template <int kSum, int kA, int kB>
  void MultiplyU8S8() {
    __asm__ volatile("tdpbusd %%tmm%c2, %%tmm%c1, %%tmm%c0" : : "i"(kSum), "i"(kA), "i"(kB));
  }

  template <int kSum, int kA, int kB>
  void MultiplyS8U8() {
    __asm__ volatile("tdpbsud %%tmm%c2, %%tmm%c1, %%tmm%c0" : : "i"(kSum), "i"(kA), "i"(kB));
  }

  template <int kSum, int kA, int kB>
  void MultiplyBf16() {
    __asm__ volatile("tdpbf16ps %%tmm%c2, %%tmm%c1, %%tmm%c0" : : "i"(kSum), "i"(kA), "i"(kB));
  }

 private:
  using Bytes = uint8_t[kTileBytes];  // of a character type: may alias anything
};

}  // namespace
}  // namespace hydrant::kernels

#undef HYDRANT_APART
