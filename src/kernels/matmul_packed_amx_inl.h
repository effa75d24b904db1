// SPDX-License-Identifier: Apache-2.0
// Low-bit weights times rows of int8 activations by tile registers, over Tiles (amx_tiles.h) and Vectors
// (matmul_packed_amx_vectors_*.h). Included inside each target's unnamed namespace.
//
// Weights are the first operand, 16 outputs x 64 inputs, as they lie in a panel (w8) or expanded into a buffer in L1
// (w4); activations are the second, [16 quads][16 rows][4]. Two adjacent panels go together, with one row block (up to
// 16 code rows: 6 tile loads for 4 products a step) or two (32 rows: 8 loads for 8 products).
//
// Up to 32 rows sums stay in registers for all inputs. More rows go by chunks of a few steps: each is expanded once and
// multiplied with two row blocks after the other, whose sums lie in memory meanwhile. Behind every product of a chunk
// an equal share of the next one is expanded, because a tile load cannot take bytes from the store buffer, and as many
// lines are prefetched. Nothing in these loops branches but their ends: what a core does while it waits for memory is
// what it has already decoded.
//
// Sums become outputs for several pairs of panels at once (kBatchPairs).
//
// The last pair of an odd number of panels begins one panel earlier, and that panel is multiplied twice and stored
// once: calls of even numbers of panels are best.

#define HYDRANT_INLINE __attribute__((always_inline)) inline

constexpr int64_t kChunkSteps = 2;
constexpr int64_t kExpandedStepBytes = 4 * kTileBytes;  // [panel][16 outputs][half][64]
constexpr int64_t kLeadBytes = 2048;                    // of a panel, prefetched ahead of what is expanded or loaded
// Outputs are lines far apart, which miss the caches: made pair by pair their stores hold up those of the expansion,
// one by one; made together they are neighbours in turn.
constexpr int64_t kBatchPairs = 8;

// Which part of the next chunk is expanded, and fetched ahead, while two row blocks are multiplied.
enum class Share : uint8_t { kAll, kFirstHalf, kSecondHalf, kNone };

// Codes and table numbers of a step of two panels: of the first one, those of the other lie second_ bytes further.
struct StepSource {
  const uint8_t *codes, *tables;
};

template <int kValue>
struct Part {
  static constexpr int value = kValue;
};

template <typename Tiles, typename Vectors>
class TileMatmul {
 public:
  TileMatmul(const PackedMatmulArgs& args, int64_t begin, int64_t end)
      : args_(args), begin_(begin), end_(end), second_(end - begin > 1 ? args.panel_bytes : 0) {}

  // The configuration is loaded and released by each call: then no thread keeps tile state while it is parked, and none
  // depends on who used tiles before.
  void Run() {
    static constexpr TileConfig kConfig = FullTiles();
    tiles_.Configure(kConfig);
    args_.type == PackedType::kW4 ? RunPanels<true>() : RunPanels<false>();
    tiles_.Release();
  }

 private:
  template <bool kW4>
  static constexpr int64_t kStepBytes = kW4 ? kTileBytes : 2 * kTileBytes;  // of one panel
  template <bool kW4>
  static constexpr int64_t kLeadSteps = kLeadBytes / kStepBytes<kW4>;

  // The first panel of the pair that covers `panel`, and of the one after that; the last one's after is itself.
  int64_t PairAt(int64_t panel) const { return panel + 1 < end_ || panel == begin_ ? panel : panel - 1; }
  int64_t PairAfter(int64_t panel) const { return panel + 2 < end_ ? PairAt(panel + 2) : PairAt(panel); }

  template <bool kW4>
  HYDRANT_INLINE StepSource SourceOf(int64_t panel, int64_t step) const {
    const uint8_t* tables = args_.panels + PairAt(panel) * args_.panel_bytes;
    return {tables + args_.code_offset + step * kStepBytes<kW4>, tables + step * 2 * kPanelOutputs};
  }

  // Steps of a pair and of the next one after it. When the next has fewer than what is asked for, its first stands for
  // the rest.
  template <bool kW4>
  struct Stream {
    StepSource here, after;  // of step 0; of the next pair's, less this pair's steps
    int64_t steps;
    HYDRANT_INLINE StepSource At(int64_t step) const {
      const StepSource from = step < steps ? here : after;
      const int64_t at = step < 2 * steps ? step : steps;
      return {from.codes + at * kStepBytes<kW4>, from.tables + at * 2 * kPanelOutputs};
    }
  };
  template <bool kW4>
  HYDRANT_INLINE Stream<kW4> StreamOf(int64_t panel) const {
    return {SourceOf<kW4>(panel, 0), SourceOf<kW4>(PairAfter(panel), -args_.steps), args_.steps};
  }

  template <bool kW4>
  void RunPanels() {
    const bool by_chunks = args_.num_blocks > 2;
    PrefetchFirst<kW4>();
    if constexpr (kW4) {
      const int64_t steps = by_chunks && args_.steps >= kChunkSteps ? kChunkSteps : 1;
      for (int64_t s = 0; s < steps; ++s) ExpandStep(begin_, s, buffer_ + s * kExpandedStepBytes);
    }
    int64_t first = begin_, pairs = 0;
    for (int64_t panel = begin_; panel < end_; panel += 2) {
      if (by_chunks) {
        Chunks<kW4>(panel, pairs);
      } else if (args_.num_blocks == 2) {
        AllSteps<kW4, 2>(panel, pairs);
      } else {
        AllSteps<kW4, 1>(panel, pairs);
      }
      if (++pairs < kBatchPairs && panel + 2 < end_) continue;
      Finish(first, pairs);
      first = panel + 2;
      pairs = 0;
    }
  }

  template <bool kW4>
  void PrefetchFirst() const {
    const int64_t steps = args_.steps < kLeadSteps<kW4> ? args_.steps : kLeadSteps<kW4>;
    const StepSource source = SourceOf<kW4>(begin_, 0);
    for (const uint8_t* line = source.tables; line < source.codes + steps * kStepBytes<kW4>; line += kLineBytes) {
      __builtin_prefetch(line);
      __builtin_prefetch(line + second_);
    }
  }

  // Lines n to n + kLines - 1 of the 32 of a step, to their places in the buffer.
  template <int kLines>
  HYDRANT_INLINE static void Expand(const StepSource& source, int64_t second, const uint8_t* dictionary, int64_t n,
                                    uint8_t* to) {
    const int64_t o = n % kPanelOutputs, panel = n / kPanelOutputs * second;
    Vectors::template Expand<kLines>(source.codes + panel + o * kLineBytes, source.tables + panel + 2 * o, dictionary,
                                     to + n * 2 * kLineBytes);
  }
  void ExpandStep(int64_t panel, int64_t step, uint8_t* to) const {
    const StepSource source = SourceOf<true>(panel, step);
    for (int64_t n = 0; n < 2 * kPanelOutputs; n += 4) Expand<4>(source, second_, args_.dictionary, n, to);
  }

  // As many lines of a step's codes, of both panels in turn.
  template <int kLines>
  HYDRANT_INLINE static void Prefetch(const uint8_t* codes, int64_t second, int64_t n) {
#pragma GCC unroll 16
    for (int64_t line = n; line < n + kLines; ++line) {
      __builtin_prefetch(codes + line % 2 * second + line / 2 * kLineBytes);
    }
  }

  // What goes on beside the products of a step: expansion of `next` to `to`, prefetch of the codes at `later`.
  struct Beside {
    StepSource next;
    const uint8_t* later;
    int64_t second;
    const uint8_t* dictionary;
    uint8_t* to;
  };
  // A share of it behind one product of `kProducts`.
  template <bool kW4, Share kShare, int kPart, int kProducts>
  HYDRANT_INLINE static void Do(const Beside& beside) {
    if constexpr (kShare == Share::kNone) return;
    constexpr int kParts = kShare == Share::kAll ? kProducts : 2 * kProducts;
    constexpr int kMine = kShare == Share::kSecondHalf ? kProducts + kPart : kPart;
    constexpr int kLines = 2 * kStepBytes<kW4> / kLineBytes / kParts;
    if constexpr (kW4) {
      // A few lines of each in turn: 8 prefetches in a row cost 5 % with 16 rows.
      constexpr int kTogether = kLines == 2 ? 2 : 4;
#pragma GCC unroll 8
      for (int64_t n = kMine * kLines; n < (kMine + 1) * kLines; n += kTogether) {
        Prefetch<kTogether>(beside.later, beside.second, n);
        Expand<kTogether>(beside.next, beside.second, beside.dictionary, n, beside.to);
      }
    } else {
      Prefetch<kLines>(beside.later, beside.second, kMine * kLines);
    }
  }

  // A step of one row block: a sum for each panel. a: the weights of either panel, a1 bytes apart; b: [half][16][64].
  template <bool kW4, typename Then>
  HYDRANT_INLINE void MultiplyOne(const uint8_t* a, int64_t a1, const int8_t* b, const Then& then) {
    constexpr int64_t kHalf = kW4 ? kLineBytes : kTileBytes, kStride = kW4 ? 2 * kLineBytes : kLineBytes;
    tiles_.template LoadLines<4>(a, kStride);
    tiles_.template LoadOnce<6>(b);
    tiles_.template MultiplyU8S8<0, 4, 6>();
    then(Part<0>());
    tiles_.template LoadLines<5>(a + a1, kStride);
    tiles_.template MultiplyU8S8<1, 5, 6>();
    then(Part<1>());
    tiles_.template LoadLines<4>(a + kHalf, kStride);
    tiles_.template LoadOnce<7>(b + kTileBytes);
    tiles_.template MultiplyU8S8<0, 4, 7>();
    then(Part<2>());
    tiles_.template LoadLines<5>(a + a1 + kHalf, kStride);
    tiles_.template MultiplyU8S8<1, 5, 7>();
    then(Part<3>());
  }

  // Two row blocks, one half of a step: sums 2 * panel + block.
  template <int kStride, int kFirst, typename Then>
  HYDRANT_INLINE void MultiplyHalf(const uint8_t* a, int64_t a1, const int8_t* b0, const int8_t* b1, const Then& then) {
    tiles_.template LoadLines<4>(a, kStride);
    tiles_.template LoadOnce<6>(b0);
    tiles_.template MultiplyU8S8<0, 4, 6>();
    then(Part<kFirst>());
    tiles_.template LoadOnce<7>(b1);
    tiles_.template MultiplyU8S8<1, 4, 7>();
    then(Part<kFirst + 1>());
    tiles_.template LoadLines<5>(a + a1, kStride);
    tiles_.template MultiplyU8S8<2, 5, 6>();
    then(Part<kFirst + 2>());
    tiles_.template MultiplyU8S8<3, 5, 7>();
    then(Part<kFirst + 3>());
  }

  // A step of one or two row blocks.
  template <bool kW4, int kBlocks, Share kShare>
  HYDRANT_INLINE void Step(const uint8_t* a, int64_t a1, const int8_t* b0, const int8_t* b1, const Beside& beside) {
    const auto then = [&](auto part) __attribute__((always_inline)) {
      Do<kW4, kShare, part.value, 4 * kBlocks>(beside);
    };
    if constexpr (kBlocks == 1) {
      MultiplyOne<kW4>(a, a1, b0, then);
    } else {
      constexpr int64_t kHalf = kW4 ? kLineBytes : kTileBytes;
      constexpr int kStride = kW4 ? 2 * kLineBytes : kLineBytes;
      MultiplyHalf<kStride, 0>(a, a1, b0, b1, then);
      MultiplyHalf<kStride, 4>(a + kHalf, a1, b0 + kTileBytes, b1 + kTileBytes, then);
    }
  }

  // Up to two row blocks, all inputs. The first step is in the buffer already; the next pair's is at the end.
  template <bool kW4, int kBlocks>
  void AllSteps(int64_t panel, int64_t pair) {
    const Stream<kW4> stream = StreamOf<kW4>(panel);
    const int8_t *b0 = args_.blocks[0].codes, *b1 = args_.blocks[kBlocks - 1].codes;
    const uint8_t* tables = stream.after.tables + stream.steps * 2 * kPanelOutputs;
    Beside beside{{}, nullptr, second_, args_.dictionary, nullptr};
    int64_t slot = slot_;
    ZeroSums();
    for (int64_t step = 0; step < stream.steps; ++step) {
      const uint8_t* a = kW4 ? buffer_ + slot * kExpandedStepBytes : stream.here.codes + step * kStepBytes<kW4>;
      slot ^= 1;
      beside.to = buffer_ + slot * kExpandedStepBytes;
      beside.next = stream.At(step + 1);
      beside.later = stream.At(step + kLeadSteps<kW4> + (kW4 ? 1 : 0)).codes;
      if constexpr (kW4) PrefetchTables(tables, beside.second);
      tables += 2 * kPanelOutputs;
      Step<kW4, kBlocks, Share::kAll>(a, kW4 ? 2 * kTileBytes : beside.second, b0, b1, beside);
      b0 += 2 * kTileBytes;
      b1 += 2 * kTileBytes;
    }
    slot_ = slot;
    StoreSums<kBlocks>(SumsOf(pair, 0));
  }

  // Every line of the next pair's table numbers is met twice.
  HYDRANT_INLINE static void PrefetchTables(const uint8_t* tables, int64_t second) {
    __builtin_prefetch(tables);
    __builtin_prefetch(tables + second);
  }

  // More row blocks: a few steps by all of them, then the next. The first chunk is in the buffer already; the next
  // pair's is at the end.
  template <bool kW4>
  void Chunks(int64_t panel, int64_t pair) {
    for (int64_t first = 0; first < args_.steps; first += kChunkSteps) {
      Chunk chunk{panel, first, ChunkSteps(first), buffer_ + slot_ * kChunkBytes, buffer_ + (slot_ ^ 1) * kChunkBytes};
      ChunkOf<kW4, Share::kFirstHalf>(chunk, pair, 0);
      ChunkOf<kW4, Share::kSecondHalf>(chunk, pair, 2);
      for (int64_t block = 4; block < args_.num_blocks; block += 2) ChunkOf<kW4, Share::kNone>(chunk, pair, block);
      if (kW4 && first + chunk.steps == args_.steps) {  // a short last chunk leaves some of the next pair's
        for (int64_t s = chunk.steps; s < ChunkSteps(0); ++s) {
          ExpandStep(PairAfter(panel), s, chunk.next + s * kExpandedStepBytes);
        }
      }
      slot_ ^= 1;
    }
  }

  int64_t ChunkSteps(int64_t first) const {
    return args_.steps - first < kChunkSteps ? args_.steps - first : kChunkSteps;
  }

  struct Chunk {
    int64_t panel, first, steps;
    const uint8_t* expanded;  // in the buffer
    uint8_t* next;            // where the next chunk goes
  };

  template <bool kW4, Share kShare>
  void ChunkOf(const Chunk& chunk, int64_t pair, int64_t block) {
    if (block + 1 < args_.num_blocks) {
      MultiplyChunk<kW4, 2, kShare>(chunk, block, SumsOf(pair, block / 2));
    } else {
      MultiplyChunk<kW4, 1, kShare>(chunk, block, SumsOf(pair, block / 2));
    }
  }

  // One or two row blocks, onto their sums.
  template <bool kW4, int kBlocks, Share kShare>
  void MultiplyChunk(const Chunk& chunk, int64_t block, int32_t (*sums)[256]) {
    const Stream<kW4> stream = StreamOf<kW4>(chunk.panel);
    const int64_t first = chunk.first, steps = chunk.steps;
    const int8_t* b0 = args_.blocks[block].codes + first * 2 * kTileBytes;
    const int8_t* b1 = args_.blocks[block + kBlocks - 1].codes + first * 2 * kTileBytes;
    Beside beside{{}, nullptr, second_, args_.dictionary, chunk.next};
    first == 0 ? ZeroSums() : LoadSums<kBlocks>(sums);
    for (int64_t step = first; step < first + steps; ++step) {
      const uint8_t* a =
          kW4 ? chunk.expanded + (step - first) * kExpandedStepBytes : stream.here.codes + step * kStepBytes<kW4>;
      beside.next = stream.At(step + steps);
      beside.later = stream.At(step + kLeadSteps<kW4> + (kW4 ? steps : 0)).codes;
      if constexpr (kW4 && kShare == Share::kFirstHalf) PrefetchTables(stream.At(step + stream.steps).tables, second_);
      Step<kW4, kBlocks, kShare>(a, kW4 ? 2 * kTileBytes : second_, b0, b1, beside);
      beside.to += kExpandedStepBytes;
      b0 += 2 * kTileBytes;
      b1 += 2 * kTileBytes;
    }
    StoreSums<kBlocks>(sums);
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

  // [panel * blocks + block][16 outputs][16 rows] of two row blocks and pair `pair` of a batch.
  int32_t (*SumsOf(int64_t pair, int64_t block_pair))[256] {
    return sums_[pair * ((args_.num_blocks + 1) / 2) + block_pair];
  }

  // Outputs of the `pairs` pairs that cover panel `first` and on.
  void Finish(int64_t first, int64_t pairs) {
    for (int64_t block = 0; block < args_.num_blocks; ++block) {
      const int64_t blocks = (block | 1) < args_.num_blocks ? 2 : 1;  // that went together
      for (int64_t pair = 0; pair < pairs; ++pair) {
        const int64_t panel = first + 2 * pair;
        for (int64_t p = panel; p < panel + 2 && p < end_; ++p) {
          Vectors::Finish(args_, p, args_.blocks[block],
                          SumsOf(pair, block / 2)[(p - PairAt(panel)) * blocks + block % 2]);
        }
      }
    }
  }

  static constexpr int64_t kChunkBytes = kChunkSteps * kExpandedStepBytes;

  const PackedMatmulArgs& args_;
  int64_t begin_, end_, second_;
  int64_t slot_ = 0;  // of the buffer, where the step or chunk to multiply is
  Tiles tiles_;
  alignas(4096) uint8_t buffer_[2 * kChunkBytes];  // AllSteps: two steps in turn
  alignas(64) int32_t sums_[kBatchPairs * kMaxCodeRows / 32][4][256];
};

template <typename Tiles, typename Vectors>
void TilePackedMatmul(const PackedMatmulArgs& args, int64_t panel_begin, int64_t panel_end) {
  if (panel_begin >= panel_end || args.num_blocks == 0) return;
  TileMatmul<Tiles, Vectors>(args, panel_begin, panel_end).Run();
}
