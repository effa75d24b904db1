// SPDX-License-Identifier: Apache-2.0
// Low-bit weights times rows of int8 activations by tile registers, over Tiles (amx_tiles.h) and Vectors
// (matmul_packed_amx_vectors_*.h). Included inside each target's unnamed namespace.
//
// Weights are the first operand, 16 outputs x 64 inputs, as they lie in a panel (w8) or expanded into a ring of four
// steps in L1 (w4); activations are the second, [16 quads][16 rows][4]. Two adjacent panels go together, with one row
// block (up to 16 code rows: 6 tile loads for 4 products a step, even and odd halves of a step in sums of their own) or
// two (32 rows: 8 loads for 8 products). More rows take more passes over the two panels, which then come from L2 and
// are expanded again: both operands of a product from L2 would need 64 bytes a cycle, more than it gives. Four sums at
// any time, kept in registers for all inputs.
//
// Software pipeline: behind each product of step s an equal share of the expansion of step s + 2, also across passes
// and panels, and of the prefetches of the weights' stream to L2. So a line of the ring is written at least one whole
// step before its tile load; a tile load cannot take bytes from the store buffer.
//
// An odd last panel is multiplied twice and stored once: calls of even numbers of panels are best.

#define HYDRANT_INLINE __attribute__((always_inline)) inline

constexpr uint64_t kRingSteps = 4;
constexpr uint64_t kRingStepBytes = 4 * kTileBytes;  // [panel][half][16][64]
constexpr uint64_t kExpandAhead = 2;                 // steps
constexpr int64_t kPairLines = 2 * kPanelOutputs;    // of w4 codes in one step of two panels
// Prefetch so far ahead in each of two panels. What hides 110 ns at 13.5 GB/s a core is 1.5 KB; the rest is for jitter.
constexpr int64_t kPrefetchBytes = 8192;
// With several passes the next two panels are prefetched evenly during all of them, if both pairs fit well into L2.
constexpr int64_t kSpreadPairBytes = 512 * 1024;

// One call's place: two panels at a time, `passes` times each.
struct TileRange {
  const PackedMatmulArgs& args;
  int64_t end;
  int64_t passes;

  const uint8_t* Panel(int64_t panel, int64_t which) const {
    const int64_t p = panel + which < end ? panel + which : panel;
    return args.panels + p * args.panel_bytes;
  }
};

// The step whose codes are expanded next. Runs through steps, passes and panels; at the end it stays on the last step,
// which is then expanded into a part of the ring that nobody reads.
struct ExpansionCursor {
  int64_t panel = 0, pass = 0, step = 0;

  void Advance(const TileRange& range) {
    if (++step < range.args.steps) return;
    step = 0;
    if (++pass < range.passes) return;
    pass = 0;
    if (panel + 2 < range.end) {
      panel += 2;
    } else {
      step = range.args.steps - 1;
      pass = range.passes - 1;
    }
  }
};

// What is done behind the products of one step besides them.
struct StepWork {
  const uint8_t *codes[2], *tables[2];  // to expand, of either panel
  uint8_t* to;                          // [panel][half][16][64]
  const uint8_t* lines[2];              // to prefetch
  uint64_t num_lines;                   // of each
};

// Which lines are fetched during which step.
class StreamPrefetch {
 public:
  void Start(const TileRange& range, int64_t panel) {
    const int64_t bytes = range.args.panel_bytes;
    spread_ = range.passes > 1 && 2 * bytes <= kSpreadPairBytes;
    const int64_t visits = spread_ ? range.passes * range.args.steps : range.args.steps;
    lines_ = (bytes / kLineBytes + visits - 1) / visits;
    for (int64_t offset = 0; offset < Ahead(range); offset += kLineBytes) {
      __builtin_prefetch(range.Panel(panel, 0) + offset, 0, 2);
      __builtin_prefetch(range.Panel(panel, 1) + offset, 0, 2);
    }
  }

  // Before pass `pass` over two panels.
  void Begin(const TileRange& range, int64_t panel, int64_t pass) {
    const bool more = panel + 2 < range.end;
    const int64_t bytes = range.args.panel_bytes, ahead = Ahead(range);
    next_left_ = 0;
    if (spread_) {
      const int64_t done = pass * range.args.steps * lines_ * kLineBytes;
      Set(range, panel + 2, done, more ? bytes - done : 0);
    } else {
      Set(range, panel, ahead, pass == 0 ? bytes - ahead : 0);
      if (more && pass == 0) next_left_ = ahead;
    }
    next_panel_ = panel + 2;
  }

  HYDRANT_INLINE void Step(const TileRange& range, StepWork& work) {
    if (left_ <= 0 && next_left_ > 0) {
      Set(range, next_panel_, 0, next_left_);
      next_left_ = 0;
    }
    work.num_lines = left_ > 0 ? static_cast<uint64_t>(lines_) : 0;
    for (int which = 0; which < 2; ++which) {
      work.lines[which] = at_[which];
      at_[which] += lines_ * kLineBytes;
    }
    left_ -= lines_ * kLineBytes;
  }

 private:
  static int64_t Ahead(const TileRange& range) {
    return range.args.panel_bytes < kPrefetchBytes ? range.args.panel_bytes : kPrefetchBytes;
  }
  void Set(const TileRange& range, int64_t panel, int64_t offset, int64_t left) {
    left_ = left;
    if (left <= 0) return;
    for (int which = 0; which < 2; ++which) at_[which] = range.Panel(panel, which) + offset;
  }

  bool spread_ = false;
  int64_t lines_ = 0;  // of each panel in one step
  const uint8_t* at_[2] = {};
  int64_t left_ = 0;  // bytes of each panel
  int64_t next_panel_ = 0, next_left_ = 0;
};

template <typename Tiles, typename Vectors>
class TileMatmul {
 public:
  TileMatmul(const PackedMatmulArgs& args, int64_t end) : range_{args, end, (args.num_blocks + 1) / 2} {}

  // The configuration is loaded and released by each call: about 200 cycles by the manuals against 10^5 and more of a
  // call, and then no thread keeps tile state while it is parked, and none depends on who used tiles before.
  void Run(int64_t begin) {
    static constexpr TileConfig kConfig = FullTiles();
    tiles_.Configure(kConfig);
    prefetch_.Start(range_, begin);
    if (range_.args.type == PackedType::kW4) {
      cursor_.panel = begin;
      for (uint64_t step = 0; step < kExpandAhead; ++step) ExpandStep(step);
    }
    for (int64_t panel = begin; panel < range_.end; panel += 2) {
      for (int64_t pass = 0; pass < range_.passes; ++pass) {
        prefetch_.Begin(range_, panel, pass);
        const bool two = 2 * pass + 1 < range_.args.num_blocks;
        if (range_.args.type == PackedType::kW4) {
          two ? Pass<true, 2>(panel, pass) : Pass<true, 1>(panel, pass);
        } else {
          two ? Pass<false, 2>(panel, pass) : Pass<false, 1>(panel, pass);
        }
      }
    }
    tiles_.Release();
  }

 private:
  HYDRANT_INLINE uint8_t* RingAt(uint64_t step) { return ring_ + step % kRingSteps * kRingStepBytes; }

  // Sources and target of the next expansion; `step` counts all steps of the call.
  HYDRANT_INLINE void PlanExpansion(uint64_t step, StepWork& work) {
    const PackedMatmulArgs& args = range_.args;
    for (int64_t which = 0; which < 2; ++which) {
      const uint8_t* panel = range_.Panel(cursor_.panel, which);
      work.tables[which] = panel + cursor_.step * kPairLines;
      work.codes[which] = panel + args.code_offset + cursor_.step * kTileBytes;
    }
    work.to = RingAt(step);
    cursor_.Advance(range_);
  }

  template <bool kW4, int kPart, int kParts>
  HYDRANT_INLINE static void Work(const StepWork& work, const uint8_t* dictionary) {
    if constexpr (kW4) {
      constexpr int64_t kEach = kPairLines / kParts;
#pragma GCC unroll 8
      for (int64_t n = kPart * kEach; n < (kPart + 1) * kEach; ++n) {
        const int64_t which = n / kPanelOutputs, o = n % kPanelOutputs;
        uint8_t* to = work.to + which * 2 * kTileBytes + o * kLineBytes;
        Vectors::Expand(work.codes[which] + o * kLineBytes, work.tables[which] + 2 * o, dictionary, to,
                        to + kTileBytes);
      }
    }
    const uint8_t* line = work.lines[0] + work.num_lines * kPart / kParts * kLineBytes;
    const uint8_t* end = work.lines[0] + work.num_lines * (kPart + 1) / kParts * kLineBytes;
    const int64_t distance = work.lines[1] - work.lines[0];
#pragma GCC unroll 1
    for (; line < end; line += kLineBytes) {
      __builtin_prefetch(line, 0, 2);
      __builtin_prefetch(line + distance, 0, 2);
    }
  }

  void ExpandStep(uint64_t step) {
    StepWork work{};
    PlanExpansion(step, work);
    Work<true, 0, 1>(work, range_.args.dictionary);
  }

  // One row block: sums 2 * panel + half. a0, a1: a step of either panel, [half][16][64]; in the ring the second
  // follows the first. b: [half][16][64].
  template <bool kW4>
  HYDRANT_INLINE void MultiplyOne(const uint8_t* a0, const uint8_t* a1, const int8_t* b, const StepWork& work,
                                  const uint8_t* dictionary) {
    constexpr int kSecond = kW4 ? 2 * kTileBytes : 0;
    tiles_.template Load<4>(a0);
    tiles_.template Load<6>(b);
    tiles_.template MultiplyU8S8<0, 4, 6>();
    Work<kW4, 0, 4>(work, dictionary);
    tiles_.template Load<5, kSecond>(a1);
    tiles_.template MultiplyU8S8<2, 5, 6>();
    Work<kW4, 1, 4>(work, dictionary);
    tiles_.template Load<4, kTileBytes>(a0);
    tiles_.template Load<7, kTileBytes>(b);
    tiles_.template MultiplyU8S8<1, 4, 7>();
    Work<kW4, 2, 4>(work, dictionary);
    tiles_.template Load<5, kSecond + kTileBytes>(a1);
    tiles_.template MultiplyU8S8<3, 5, 7>();
    Work<kW4, 3, 4>(work, dictionary);
  }

  // Two row blocks, one half of a step: sums 2 * panel + block.
  template <bool kW4, int kHalf>
  HYDRANT_INLINE void MultiplyTwo(const uint8_t* a0, const uint8_t* a1, const int8_t* b0, const int8_t* b1,
                                  const StepWork& work, const uint8_t* dictionary) {
    constexpr int kSecond = kW4 ? 2 * kTileBytes : 0, kOffset = kHalf * kTileBytes;
    tiles_.template Load<4, kOffset>(a0);
    tiles_.template Load<6, kOffset>(b0);
    tiles_.template MultiplyU8S8<0, 4, 6>();
    Work<kW4, 4 * kHalf, 8>(work, dictionary);
    tiles_.template Load<7, kOffset>(b1);
    tiles_.template MultiplyU8S8<1, 4, 7>();
    Work<kW4, 4 * kHalf + 1, 8>(work, dictionary);
    tiles_.template Load<5, kSecond + kOffset>(a1);
    tiles_.template MultiplyU8S8<2, 5, 6>();
    Work<kW4, 4 * kHalf + 2, 8>(work, dictionary);
    tiles_.template MultiplyU8S8<3, 5, 7>();
    Work<kW4, 4 * kHalf + 3, 8>(work, dictionary);
  }

  template <bool kW4, int kBlocks>
  void Pass(int64_t panel, int64_t pass) {
    const PackedMatmulArgs& args = range_.args;
    const RowBlock* blocks = args.blocks + 2 * pass;
    const int8_t* b0 = blocks[0].codes;
    const int8_t* b1 = kBlocks == 2 ? blocks[1].codes : nullptr;
    const uint8_t* codes[2] = {range_.Panel(panel, 0) + args.code_offset, range_.Panel(panel, 1) + args.code_offset};
    const uint8_t* const dictionary = args.dictionary;
    StepWork work{};
    tiles_.template Zero<0>();
    tiles_.template Zero<1>();
    tiles_.template Zero<2>();
    tiles_.template Zero<3>();
    for (int64_t step = 0; step < args.steps; ++step) {
      const int64_t offset = step * 2 * kTileBytes;
      const uint8_t* a0 = kW4 ? RingAt(ring_step_) : codes[0] + offset;
      const uint8_t* a1 = kW4 ? a0 : codes[1] + offset;
      if constexpr (kW4) PlanExpansion(ring_step_ + kExpandAhead, work);
      prefetch_.Step(range_, work);
      if constexpr (kBlocks == 1) {
        MultiplyOne<kW4>(a0, a1, b0 + offset, work, dictionary);
      } else {
        MultiplyTwo<kW4, 0>(a0, a1, b0 + offset, b1 + offset, work, dictionary);
        MultiplyTwo<kW4, 1>(a0, a1, b0 + offset, b1 + offset, work, dictionary);
      }
      ++ring_step_;
    }
    Finish<kBlocks>(panel, blocks);
  }

  template <int kBlocks>
  void Finish(int64_t panel, const RowBlock* blocks) {
    alignas(64) int32_t sums[4][256];  // [16 outputs][16 rows] each
    tiles_.template Store<0>(sums[0]);
    tiles_.template Store<1>(sums[1]);
    tiles_.template Store<2>(sums[2]);
    tiles_.template Store<3>(sums[3]);
    for (int64_t which = 0; which < 2 && panel + which < range_.end; ++which) {
      if constexpr (kBlocks == 1) {
        Vectors::Finish(range_.args, panel + which, blocks[0], sums[2 * which], sums[2 * which + 1]);
      } else {
        Vectors::Finish(range_.args, panel + which, blocks[0], sums[2 * which], nullptr);
        Vectors::Finish(range_.args, panel + which, blocks[1], sums[2 * which + 1], nullptr);
      }
    }
  }

  TileRange range_;
  ExpansionCursor cursor_;
  StreamPrefetch prefetch_;
  uint64_t ring_step_ = 0;
  Tiles tiles_;
  alignas(64) uint8_t ring_[kRingSteps * kRingStepBytes];
};

template <typename Tiles, typename Vectors>
void TilePackedMatmul(const PackedMatmulArgs& args, int64_t panel_begin, int64_t panel_end) {
  if (panel_begin >= panel_end || args.num_blocks == 0) return;
  TileMatmul<Tiles, Vectors>(args, panel_end).Run(panel_begin);
}
