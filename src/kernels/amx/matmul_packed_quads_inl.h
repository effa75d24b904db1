// SPDX-License-Identifier: Apache-2.0
// Quads (packed.h) times rows of int8 activations by tile registers, over Tiles (amx/tiles.h) and Vectors
// (matmul_packed_vectors_*.h). Included inside each target's unnamed namespace.
//
// The second operand of a product is 64 inputs of a panel of quads as they lie, [16 quads][16 outputs][4]. The first is
// 64 codes of each row of a block. A product takes as many cycles as the first operand has lines: here rows, not 16
// outputs. Its sums are rows of outputs, with nothing to transpose. That counts where matrices have few inputs. Larger
// ones are better off as lines (amx/matmul_packed_inl.h), read as four streams: 1B w8a8 on Intel with AMX takes 42, 60
// and 98 ms with 1, 16 and 64 rows as quads, and 39, 43 and 57 ms as lines.
//
// A tile register is configured for a number of rows. A call's blocks have at most two different numbers, that of the
// first block and that of the last (PlanRowBlocksAvx512). So blocks go in pairs, one of either size as long as there
// are both. A panel's sums become outputs while the weights of the next panel are on their way. (In place of outputs of
// many panels at once: 0.69 -> 0.62 ms, embedded model, 16 rows. Two panels in lockstep, or prefetches at any distance,
// gain nothing or cost time.)

template <typename Tiles, typename Vectors>
class QuadTileMatmul {
 public:
  explicit QuadTileMatmul(const PackedMatmulArgs& args) : args_(args) {
    const RowBlock* last = args.blocks + args.num_blocks - 1;
    for (const int t : {0, 2}) config_.rows[t] = static_cast<uint8_t>(args.blocks->rows);
    for (const int t : {1, 3}) config_.rows[t] = static_cast<uint8_t>(last->rows);
    int64_t ones = 0;  // blocks as large as the first; half of all where all are
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
