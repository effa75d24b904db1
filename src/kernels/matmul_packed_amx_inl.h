// SPDX-License-Identifier: Apache-2.0
// Low-bit weights times rows of int8 activations by tile registers, over Tiles (amx_tiles.h) and Vectors
// (matmul_packed_amx_vectors_*.h). Included inside each target's unnamed namespace.
//
// Weights are the first operand, 16 outputs x 64 inputs, as they lie in a panel (w8) or expanded into a buffer in L1
// (w4); activations are the second, [16 quads][16 rows][4]. Two adjacent panels go together, with one row block (up to
// 16 code rows: 6 tile loads for 4 products a step) or two (32 rows: 8 loads for 8 products).
//
// Up to 32 rows sums stay in registers for all inputs, and behind each product of a step an equal share of the next
// step is expanded: a tile load cannot take bytes from the store buffer. More rows go by chunks of a few steps, which
// are expanded once and then multiplied with two row blocks after the other, whose sums lie in memory meanwhile.
//
// The buffer is small, and activations are loaded without claiming a place in L1: expansion, tile loads and the stream
// of codes compete for it, and what it does not hold costs more than anything else here (low_bit_weights.md has
// figures).
//
// An odd last panel is multiplied twice and stored once: calls of even numbers of panels are best.

#define HYDRANT_INLINE __attribute__((always_inline)) inline

constexpr int64_t kChunkSteps = 4;
constexpr int64_t kExpandedStepBytes = 4 * kTileBytes;  // [panel][16 outputs][half][64]
constexpr int64_t kExpandParts = 4;                     // of a chunk's step: a prefetch follows each
constexpr int64_t kLeadSteps = 3;                       // prefetched ahead of what is expanded or loaded

// One call's place: two panels at a time.
struct TileRange {
  const PackedMatmulArgs& args;
  int64_t end;

  const uint8_t* Panel(int64_t panel, int64_t which) const {
    const int64_t p = panel + which < end ? panel + which : panel;
    return args.panels + p * args.panel_bytes;
  }
};

// Prefetches the lines of two panels, then of the next two, evenly over the slots that a pair's work has.
class StreamPrefetch {
 public:
  // near: to L1, else to L2.
  void Start(const TileRange& range, int64_t panel, int64_t lead_lines, bool near) {
    near_ = near;
    pair_lines_ = range.args.panel_bytes / kLineBytes;
    lead_ = lead_lines < pair_lines_ ? lead_lines : pair_lines_;
    Enter(range, panel);
    for (int64_t n = 0; n < lead_; ++n) Line(range);
  }
  // Before the work on the pair at `panel`, which will call Fetch `slots` times.
  void Begin(const TileRange& range, int64_t panel, int64_t slots) {
    if (panel_ >= range.end) return;
    const int64_t done = panel_ == panel ? pair_lines_ - left_ : 2 * pair_lines_ - left_;
    pace_ = ((pair_lines_ + lead_ - done) * kOne + slots - 1) / slots;
  }
  HYDRANT_INLINE void Fetch(const TileRange& range) {
    due_ += pace_;
    for (; due_ >= kOne; due_ -= kOne) Line(range);
  }

 private:
  static constexpr int64_t kOne = 256;  // the unit of pace_

  HYDRANT_INLINE void Line(const TileRange& range) {
    if (near_) {
      __builtin_prefetch(at_, 0, 3);
      __builtin_prefetch(at_ + distance_, 0, 3);
    } else {
      __builtin_prefetch(at_, 0, 2);
      __builtin_prefetch(at_ + distance_, 0, 2);
    }
    at_ += kLineBytes;
    if (--left_ == 0) Enter(range, panel_ + 2);
  }
  void Enter(const TileRange& range, int64_t panel) {
    panel_ = panel;
    left_ = pair_lines_;
    if (panel >= range.end) {
      pace_ = 0;
      due_ = 0;
      left_ = INT64_MAX;
      panel = range.end - 1;
    }
    at_ = range.Panel(panel, 0);
    distance_ = range.Panel(panel, 1) - at_;
  }

  bool near_ = false;
  int64_t pair_lines_ = 0, lead_ = 0;
  const uint8_t* at_ = nullptr;
  int64_t distance_ = 0, panel_ = 0, left_ = 0;
  int64_t pace_ = 0, due_ = 0;
};

template <int kValue>
struct Part {
  static constexpr int value = kValue;
};

template <typename Tiles, typename Vectors>
class TileMatmul {
 public:
  TileMatmul(const PackedMatmulArgs& args, int64_t end) : range_{args, end} {}

  // The configuration is loaded and released by each call: then no thread keeps tile state while it is parked, and none
  // depends on who used tiles before.
  void Run(int64_t begin) {
    static constexpr TileConfig kConfig = FullTiles();
    tiles_.Configure(kConfig);
    range_.args.type == PackedType::kW4 ? RunPanels<true>(begin) : RunPanels<false>(begin);
    tiles_.Release();
  }

 private:
  // A step of two panels, as it lies in memory.
  struct Source {
    const uint8_t *codes[2], *tables[2];
    template <bool kW4>
    HYDRANT_INLINE void Advance() {
      for (int which = 0; which < 2; ++which) {
        codes[which] += kW4 ? kTileBytes : 2 * kTileBytes;
        tables[which] += 2 * kPanelOutputs;
      }
    }
  };

  Source SourceOf(int64_t panel) const {
    Source source;
    for (int which = 0; which < 2; ++which) {
      source.tables[which] = range_.Panel(panel, which);
      source.codes[which] = source.tables[which] + range_.args.code_offset;
    }
    return source;
  }

  template <bool kW4>
  void RunPanels(int64_t begin) {
    const PackedMatmulArgs& args = range_.args;
    const bool by_chunks = args.num_blocks > 2;
    const int64_t products = args.num_blocks * 4, steps_ahead = kLeadSteps + (by_chunks ? kChunkSteps : 0);
    const int64_t lead_lines = (args.code_offset + steps_ahead * (kW4 ? 1 : 2) * kTileBytes) / kLineBytes;
    // Up to 32 rows to L1 is 2 to 4 % faster, where chunks need L1 for themselves 1 to 3 % slower.
    prefetch_.Start(range_, begin, lead_lines, !by_chunks);
    if (kW4 && !by_chunks) Expand<0, 1>(SourceOf(begin), args.dictionary, buffer_);
    for (int64_t panel = begin; panel < range_.end; panel += 2) {
      prefetch_.Begin(range_, panel, args.steps * (products + (kW4 && by_chunks ? kExpandParts : 0)));
      if (by_chunks) {
        Chunks<kW4>(panel);
      } else if (args.num_blocks == 2) {
        AllSteps<kW4, 2>(panel);
      } else {
        AllSteps<kW4, 1>(panel);
      }
    }
  }

  // An equal part of a step's 32 lines.
  template <int kPart, int kParts>
  HYDRANT_INLINE static void Expand(const Source& source, const uint8_t* dictionary, uint8_t* to) {
    constexpr int64_t kEach = 2 * kPanelOutputs / kParts;
#pragma GCC unroll 8
    for (int64_t n = kPart * kEach; n < (kPart + 1) * kEach; n += 4) {
      const int64_t which = n / kPanelOutputs, o = n % kPanelOutputs;
      Vectors::Expand(source.codes[which] + o * kLineBytes, source.tables[which] + 2 * o, dictionary,
                      to + which * 2 * kTileBytes + o * 2 * kLineBytes);
    }
  }

  // A step of one row block: a sum for each panel. a0, a1: the weights of either panel; b: [half][16][64].
  // between(Part<n>) follows product n of four.
  template <bool kW4, typename Between>
  HYDRANT_INLINE void MultiplyOne(const uint8_t* a0, const uint8_t* a1, const int8_t* b, const Between& between) {
    constexpr int64_t kHalf = kW4 ? kLineBytes : kTileBytes, kStride = kW4 ? 2 * kLineBytes : kLineBytes;
    tiles_.template LoadLines<4>(a0, kStride);
    tiles_.template LoadOnce<6>(b);
    tiles_.template MultiplyU8S8<0, 4, 6>();
    between(Part<0>());
    tiles_.template LoadLines<5>(a1, kStride);
    tiles_.template MultiplyU8S8<1, 5, 6>();
    between(Part<1>());
    tiles_.template LoadLines<4>(a0 + kHalf, kStride);
    tiles_.template LoadOnce<7>(b + kTileBytes);
    tiles_.template MultiplyU8S8<0, 4, 7>();
    between(Part<2>());
    tiles_.template LoadLines<5>(a1 + kHalf, kStride);
    tiles_.template MultiplyU8S8<1, 5, 7>();
    between(Part<3>());
  }

  // Two row blocks, one half of a step: sums 2 * panel + block.
  template <int kStride, int kFirst, typename Between>
  HYDRANT_INLINE void MultiplyHalf(const uint8_t* a0, const uint8_t* a1, const int8_t* b0, const int8_t* b1,
                                   const Between& between) {
    tiles_.template LoadLines<4>(a0, kStride);
    tiles_.template LoadOnce<6>(b0);
    tiles_.template MultiplyU8S8<0, 4, 6>();
    between(Part<kFirst>());
    tiles_.template LoadOnce<7>(b1);
    tiles_.template MultiplyU8S8<1, 4, 7>();
    between(Part<kFirst + 1>());
    tiles_.template LoadLines<5>(a1, kStride);
    tiles_.template MultiplyU8S8<2, 5, 6>();
    between(Part<kFirst + 2>());
    tiles_.template MultiplyU8S8<3, 5, 7>();
    between(Part<kFirst + 3>());
  }

  // A step of one or two row blocks.
  template <bool kW4, int kBlocks, typename Between>
  HYDRANT_INLINE void MultiplyStep(const uint8_t* a0, const uint8_t* a1, const int8_t* b0, const int8_t* b1,
                                   const Between& between) {
    constexpr int64_t kHalf = kW4 ? kLineBytes : kTileBytes;
    constexpr int kStride = kW4 ? 2 * kLineBytes : kLineBytes;
    if constexpr (kBlocks == 1) {
      MultiplyOne<kW4>(a0, a1, b0, between);
    } else {
      MultiplyHalf<kStride, 0>(a0, a1, b0, b1, between);
      MultiplyHalf<kStride, 4>(a0 + kHalf, a1 + kHalf, b0 + kTileBytes, b1 + kTileBytes, between);
    }
  }

  // Up to two row blocks, all inputs. The first step is in the buffer already; the next pair's is at the end.
  template <bool kW4, int kBlocks>
  void AllSteps(int64_t panel) {
    const PackedMatmulArgs& args = range_.args;
    const uint8_t* const dictionary = args.dictionary;
    const int8_t* b0 = args.blocks[0].codes;
    const int8_t* b1 = kBlocks == 2 ? args.blocks[1].codes : b0;
    Source source = SourceOf(panel);
    ZeroSums();
    for (int64_t step = 0; step < args.steps; ++step) {
      const uint8_t *a0 = source.codes[0], *a1 = source.codes[1];
      uint8_t* to = nullptr;
      if constexpr (kW4) {
        a0 = buffer_ + slot_ * kExpandedStepBytes;
        a1 = a0 + 2 * kTileBytes;
        slot_ ^= 1;
        to = buffer_ + slot_ * kExpandedStepBytes;
      }
      source.template Advance<kW4>();
      if (kW4 && step + 1 == args.steps) source = SourceOf(panel + 2 < range_.end ? panel + 2 : panel);
      MultiplyStep<kW4, kBlocks>(
          a0, a1, b0, b1, [&](auto part) __attribute__((always_inline)) {
            if constexpr (kW4) Expand<part.value, 4 * kBlocks>(source, dictionary, to);
            prefetch_.Fetch(range_);
          });
      b0 += 2 * kTileBytes;
      b1 += 2 * kTileBytes;
    }
    StoreSums<kBlocks>(sums_[0]);
    Finish<kBlocks>(panel, args.blocks, sums_[0]);
  }

  // More row blocks: a few steps by all of them, then the next.
  template <bool kW4>
  void Chunks(int64_t panel) {
    const PackedMatmulArgs& args = range_.args;
    Source source = SourceOf(panel);
    for (int64_t first = 0; first < args.steps; first += kChunkSteps) {
      const int64_t steps = args.steps - first < kChunkSteps ? args.steps - first : kChunkSteps;
      const uint8_t *a0 = kW4 ? buffer_ : source.codes[0], *a1 = kW4 ? buffer_ + 2 * kTileBytes : source.codes[1];
      for (int64_t step = 0; step < steps; ++step) {
        if constexpr (kW4) ExpandStep(source, buffer_ + step * kExpandedStepBytes);
        source.template Advance<kW4>();
      }
      for (int64_t block = 0; block < args.num_blocks; block += 2) {
        if (block + 1 < args.num_blocks) {
          Chunk<kW4, 2>(panel, first, steps, block, a0, a1);
        } else {
          Chunk<kW4, 1>(panel, first, steps, block, a0, a1);
        }
      }
    }
  }

  void ExpandStep(const Source& source, uint8_t* to) {
    const uint8_t* const dictionary = range_.args.dictionary;
    static_assert(kExpandParts == 4);
    Expand<0, 4>(source, dictionary, to);
    prefetch_.Fetch(range_);
    Expand<1, 4>(source, dictionary, to);
    prefetch_.Fetch(range_);
    Expand<2, 4>(source, dictionary, to);
    prefetch_.Fetch(range_);
    Expand<3, 4>(source, dictionary, to);
    prefetch_.Fetch(range_);
  }

  // `steps` steps from `first` of one or two row blocks, onto their sums.
  template <bool kW4, int kBlocks>
  void Chunk(int64_t panel, int64_t first, int64_t steps, int64_t block, const uint8_t* a0, const uint8_t* a1) {
    const PackedMatmulArgs& args = range_.args;
    int32_t(*sums)[256] = sums_[block / 2];
    const int8_t* b0 = args.blocks[block].codes + first * 2 * kTileBytes;
    const int8_t* b1 = kBlocks == 2 ? args.blocks[block + 1].codes + first * 2 * kTileBytes : b0;
    first == 0 ? ZeroSums() : LoadSums<kBlocks>(sums);
    for (int64_t step = 0; step < steps; ++step) {
      MultiplyStep<kW4, kBlocks>(
          a0, a1, b0, b1, [&](auto) __attribute__((always_inline)) { prefetch_.Fetch(range_); });
      a0 += kW4 ? kExpandedStepBytes : 2 * kTileBytes;
      a1 += kW4 ? kExpandedStepBytes : 2 * kTileBytes;
      b0 += 2 * kTileBytes;
      b1 += 2 * kTileBytes;
    }
    StoreSums<kBlocks>(sums);
    if (first + steps == args.steps) Finish<kBlocks>(panel, args.blocks + block, sums);
  }

  HYDRANT_INLINE void ZeroSums() {
    tiles_.template Zero<0>();
    tiles_.template Zero<1>();
    tiles_.template Zero<2>();
    tiles_.template Zero<3>();
  }
  template <int kBlocks>
  HYDRANT_INLINE void LoadSums(const int32_t (*sums)[256]) {
    tiles_.template Load<0>(sums[0]);
    tiles_.template Load<1>(sums[1]);
    if constexpr (kBlocks == 1) return;
    tiles_.template Load<2>(sums[2]);
    tiles_.template Load<3>(sums[3]);
  }
  template <int kBlocks>
  HYDRANT_INLINE void StoreSums(int32_t (*sums)[256]) {
    tiles_.template Store<0>(sums[0]);
    tiles_.template Store<1>(sums[1]);
    if constexpr (kBlocks == 1) return;
    tiles_.template Store<2>(sums[2]);
    tiles_.template Store<3>(sums[3]);
  }

  template <int kBlocks>
  void Finish(int64_t panel, const RowBlock* blocks, const int32_t (*sums)[256]) {
    for (int64_t which = 0; which < 2 && panel + which < range_.end; ++which) {
      for (int64_t n = 0; n < kBlocks; ++n) {
        Vectors::Finish(range_.args, panel + which, blocks[n], sums[kBlocks * which + n]);
      }
    }
  }

  TileRange range_;
  StreamPrefetch prefetch_;
  int64_t slot_ = 0;
  Tiles tiles_;
  alignas(4096) uint8_t buffer_[kChunkSteps * kExpandedStepBytes];  // AllSteps: two steps in turn
  // [two row blocks][panel * blocks + block][16 outputs][16 rows]
  alignas(64) int32_t sums_[kMaxCodeRows / 32][4][256];
};

template <typename Tiles, typename Vectors>
void TilePackedMatmul(const PackedMatmulArgs& args, int64_t panel_begin, int64_t panel_end) {
  if (panel_begin >= panel_end || args.num_blocks == 0) return;
  TileMatmul<Tiles, Vectors>(args, panel_end).Run(panel_begin);
}
