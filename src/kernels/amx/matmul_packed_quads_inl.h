// SPDX-License-Identifier: Apache-2.0
// Quads (packed.h) times rows of int8 activations by tile registers, over Tiles (amx/tiles.h) and Vectors
// (matmul_packed_vectors_*.h). Included inside each target's unnamed namespace.
//
// 64 inputs of a panel of quads are the second operand of a product as they lie, [16 quads][16 outputs][4], and 64
// codes each of a block's rows the first. A product takes as many cycles as the first operand has lines, here rows and
// not 16 outputs, and its sums are rows of outputs, with nothing to transpose. That is what counts where matrices have
// few inputs; others are better off as lines (amx/matmul_packed_inl.h), read as four streams. (Intel with AMX, 1B w8a8,
// 1, 16, 64 rows: 42 60 98 ms, as lines 39 43 57.)
//
// A tile register is configured for a number of rows, and a call's blocks have two at most: that of the first and that
// of the last (PlanRowBlocksAvx512). So they go in pairs, one of each where there are both. A panel's sums become
// outputs while weights of the next one are on their way. (The embedded model, 16 rows, so in place of many panels'
// sums at once: .69 -> .62 ms. Two panels in lockstep and prefetches of whatever distance change nothing or cost.)

template <typename Tiles, typename Vectors>
class QuadTileMatmul {
 public:
  explicit QuadTileMatmul(const PackedMatmulArgs& args) : args_(args) {
    const RowBlock* last = args.blocks + args.num_blocks - 1;
    for (const int t : {0, 2}) config_.rows[t] = static_cast<uint8_t>(args.blocks->rows);
    for (const int t : {1, 3}) config_.rows[t] = static_cast<uint8_t>(last->rows);
    int64_t ones = 0;  // blocks as large as the first; where all are, half of them
    while (ones < args.num_blocks && args.blocks[ones].rows != last->rows) ++ones;
    if (ones == 0) ones = (args.num_blocks + 1) / 2;
    const int64_t others = args.num_blocks - ones;
    num_pairs_ = ones > others ? ones : others;
    for (int64_t p = 0; p < num_pairs_; ++p) {
      if (p < ones) pairs_[p].one = args.blocks + p;
      if (p < others) pairs_[p].other = args.blocks + ones + p;
    }
  }

  void Run(int64_t begin, int64_t end) {
    tiles_.Configure(config_);
    for (int64_t panel = begin; panel < end; ++panel) {
      for (int64_t p = 0; p < num_pairs_; ++p) MultiplyPair(pairs_[p], panel);
      if (panel > begin) Vectors::FinishPanel(args_, panel - 1, SumsOf(panel - 1));
    }
    tiles_.Release();
    Vectors::FinishPanel(args_, end - 1, SumsOf(end - 1));
  }

 private:
  // Blocks that go through a panel together: one as large as the first, one as large as the last, or both.
  struct Pair {
    const RowBlock *one = nullptr, *other = nullptr;
  };

  // [code_rows][16 outputs]
  int32_t* SumsOf(int64_t panel) { return sums_[panel % 2]; }

  void MultiplyPair(const Pair& pair, int64_t panel) {
    if (pair.other == nullptr) return Multiply<true, false>(pair, panel);
    if (pair.one == nullptr) return Multiply<false, true>(pair, panel);
    Multiply<true, true>(pair, panel);
  }

  // Registers 0 and 1: sums, 2 and 3: codes of either block, 4: weights.
  template <bool kOne, bool kOther>
  void Multiply(const Pair& pair, int64_t panel) {
    const uint8_t* weights = args_.panels + panel * args_.panel_bytes;
    const int8_t *one = kOne ? pair.one->codes : nullptr, *other = kOther ? pair.other->codes : nullptr;
    const int64_t one_bytes = kOne ? pair.one->rows * kLineBytes : 0;
    const int64_t other_bytes = kOther ? pair.other->rows * kLineBytes : 0;
    if constexpr (kOne) tiles_.template Zero<0>();
    if constexpr (kOther) tiles_.template Zero<1>();
    for (int64_t group = 2 * args_.steps; group > 0; --group) {
      tiles_.template Load<4>(weights);
      if constexpr (kOne) {
        tiles_.template LoadLines<2>(one, kLineBytes);
        tiles_.template MultiplyS8U8<0, 2, 4>();
      }
      if constexpr (kOther) {
        tiles_.template LoadLines<3>(other, kLineBytes);
        tiles_.template MultiplyS8U8<1, 3, 4>();
      }
      weights += kTileBytes;
      one += one_bytes;
      other += other_bytes;
    }
    int32_t* sums = SumsOf(panel);
    if constexpr (kOne) tiles_.template StoreLines<0>(sums + pair.one->first * kPanelOutputs, kLineBytes);
    if constexpr (kOther) tiles_.template StoreLines<1>(sums + pair.other->first * kPanelOutputs, kLineBytes);
  }

  const PackedMatmulArgs& args_;
  Tiles tiles_;
  TileConfig config_ = FullTiles(5);
  Pair pairs_[kMaxCodeRows];
  int64_t num_pairs_ = 0;
  alignas(64) int32_t sums_[2][kMaxCodeRows * kPanelOutputs];
};

template <typename Tiles, typename Vectors>
void TileQuadMatmul(const PackedMatmulArgs& args, int64_t panel_begin, int64_t panel_end) {
  if (panel_begin >= panel_end || args.num_blocks == 0) return;
  QuadTileMatmul<Tiles, Vectors>(args).Run(panel_begin, panel_end);
}
