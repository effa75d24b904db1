// SPDX-License-Identifier: Apache-2.0
// The multiply peak of tiles (amx/tiles.h). Included inside an unnamed namespace.

// Four sums in turn hide the latency of a product.
template <typename Tiles>
PeakResult MultiplyTiles(int64_t rounds) {
  static constexpr TileConfig kConfig = FullTiles();
  alignas(64) uint8_t ones[kTileBytes];
  alignas(64) int32_t sums[4][kTileBytes / 4] = {};
  __builtin_memset(ones, 1, sizeof(ones));
  Tiles tiles;
  tiles.Configure(kConfig);
  tiles.template Load<4>(ones);
  tiles.template Load<5>(ones);
  for (int64_t n = 0; n < rounds; ++n) {
    tiles.template MultiplyU8S8<0, 4, 5>();
    tiles.template MultiplyU8S8<1, 4, 5>();
    tiles.template MultiplyU8S8<2, 4, 5>();
    tiles.template MultiplyU8S8<3, 4, 5>();
  }
  tiles.template Store<0>(sums[0]);
  tiles.template Store<1>(sums[1]);
  tiles.template Store<2>(sums[2]);
  tiles.template Store<3>(sums[3]);
  tiles.Release();
  int64_t total = 0;
  for (const auto& tile : sums) {
    for (const int32_t sum : tile) total += sum;
  }
  return {4 * 16 * kTileBytes * rounds, total};
}
