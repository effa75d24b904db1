// SPDX-License-Identifier: Apache-2.0
// Low-bit weights times rows of int8 activations by tile registers, over Tiles (amx/tiles.h) and Vectors
// (matmul_packed_vectors_*.h). Included inside each target's unnamed namespace.
//
// The first operand is weights, 16 outputs x 64 inputs, as they lie in a panel (w8) or expanded into a buffer in L1
// (w4). The second is activations, [16 quads][16 rows][4]. Panels side by side are multiplied together, as a group:
// - four panels of w4 with up to four row blocks (64 code rows), because memory is read faster as four streams than as
//   two. The row blocks multiply each step one after the other, with 10 tile loads for 8 products;
// - otherwise two panels with two row blocks at a time, with 8 tile loads for 8 products, or with one row block.
//
// Sums that find no register lie in memory. With two panels and more than two row blocks, sums move once in a chunk of
// a few steps; with four panels, in each step. Row blocks take turns in one order and then in the opposite one, so that
// the last one's sums stay. Behind every product an equal share of the next step or chunk is expanded, because a tile
// load cannot take bytes from the store buffer, and as many lines are prefetched. Long chunks (LongChunks) leave no
// room for that everywhere, and expand where there is some. These loops hardly branch except at their ends: while a
// core waits for memory it works on what it has decoded already. For the same reason sums change places one by one,
// each before the product that needs it.
//
// Registers: 0 .. 3 sums, 4 weights, 5 activations, 6 activations of the second row block. No register is used without
// need (amx/tiles_instructions.h).
//
// Sums become outputs for several groups of panels at once (kBatchGroups).
//
// Where a call's panels are no whole number of groups, the last group begins earlier: some panels are multiplied twice
// and stored once. A call of one panel takes it as both panels of a group.

constexpr int64_t kChunkSteps = 2;
constexpr int64_t kRingSteps = 5;  // a chunk multiplies all of them but one
constexpr int64_t kLongChunkSteps = kRingSteps - 1;
constexpr int64_t kLeadSteps = 2;  // w4: steps (1 KB of a panel each) from expansion to prefetch
constexpr int kFour = 4;           // panels of a group, and the most row blocks with them
// Groups whose outputs are made together, as neighbouring lines. Outputs lie in lines far apart that miss the caches:
// stored group by group, they would hold up the stores of the expansion.
constexpr int64_t kBatchGroups = 8;

template <typename Tiles, typename Vectors>
class TileMatmul : private TileSums<Tiles> {
 public:
  TileMatmul(const PackedMatmulArgs& args, int64_t begin, int64_t end) : args_(args), begin_(begin), end_(end) {}

  // The configuration is loaded and released by each call: then no thread keeps tile state while it is parked, and none
  // depends on who used tiles before.
  void Run() {
    static constexpr TileConfig kConfig = FullTiles(7);
    tiles_.Configure(kConfig);
    args_.type == PackedType::kW4 ? RunGroups<true>() : RunGroups<false>();
    tiles_.Release();
  }

 private:
  using TileSums<Tiles>::tiles_;
  using TileSums<Tiles>::ChangeTo;
  using TileSums<Tiles>::StoreSums;

  // The first panel of the group that covers `panel`.
  int64_t GroupAt(int64_t panel) const { return panel + group_ <= end_ ? panel : end_ - group_; }
  const uint8_t* BytesOf(int64_t group) const { return args_.panels + group * args_.panel_bytes; }
  // The group behind that one. Behind the last group comes what a later call reads; where that is unknown, the last
  // group again.
  const uint8_t* BytesAfter(int64_t panel) const {
    if (panel + group_ < end_) return BytesOf(GroupAt(panel + group_));
    return args_.next != nullptr ? args_.next : BytesOf(GroupAt(panel));
  }

  template <int kPanels>
  HYDRANT_INLINE Places<kPanels> InEach(const uint8_t* first) const {
    return PlacesFrom<kPanels>(first, stride_);
  }

  template <bool kW4>
  HYDRANT_INLINE Stream<kW4> StreamOf(int64_t panel) const {
    return {BytesOf(GroupAt(panel)), BytesAfter(panel), args_.steps};
  }

  template <bool kW4>
  void RunGroups() {
    if constexpr (kW4) {
      if (args_.num_blocks <= kFour && end_ - begin_ >= kFour) return RunGroupsOf<kW4, kFour>();
    }
    RunGroupsOf<kW4, 2>();
  }

  template <bool kW4, int kPanels>
  void RunGroupsOf() {
    group_ = end_ - begin_ < kPanels ? 1 : kPanels;
    stride_ = group_ == 1 ? 0 : args_.panel_bytes;
    const bool by_chunks = kPanels == 2 && args_.num_blocks > 2;
    sums_of_group_ = (kPanels * args_.num_blocks + 3) / 4 * 4;
    PrefetchFirst<kPanels>(kW4 ? CodesAtW4(kLeadSteps + 1) : kTileBytes);
    if constexpr (kW4) {
      constexpr int64_t kSlotBytes = kPanels * kExpandedPanelBytes;
      const int64_t chunk_steps = args_.steps >= kLongChunkSteps ? kLongChunkSteps : kChunkSteps;
      const int64_t steps = by_chunks && args_.steps >= kChunkSteps ? chunk_steps : 1;
      for (int64_t s = 0; s < steps; ++s) ExpandStep<kPanels>(BytesOf(begin_), s, buffer_ + s * kSlotBytes);
    }
    int64_t first = begin_, groups = 0;
    for (int64_t panel = begin_; panel < end_; panel += group_) {
      if constexpr (kPanels == kFour) {
        FourPanels(panel, groups);
      } else if (by_chunks && kW4 && args_.steps >= kLongChunkSteps) {
        LongChunks(panel, groups);
      } else if (by_chunks) {
        Chunks<kW4>(panel, groups);
      } else {
        args_.num_blocks == 1 ? AllSteps<kW4, 1>(panel, groups) : AllSteps<kW4, 2>(panel, groups);
      }
      if (++groups < kBatchGroups && panel + group_ < end_) continue;
      StoreSums();
      Finish(first, groups);
      first = panel + group_;
      groups = 0;
    }
  }

  template <int kPanels>
  void PrefetchFirst(int64_t bytes) const {
    const uint8_t* panel = BytesOf(begin_);
    for (int64_t at = 0; at < bytes && at < args_.panel_bytes; at += kLineBytes) {
      PrefetchEach(InEach<kPanels>(panel + at));
    }
  }
  void ExpandPanel(const StepSource& source, uint8_t* to) const {
    for (int64_t o = 0; o < kPanelOutputs; o += 4) {
      Vectors::template Expand<4>(source.codes + o * kLineBytes, source.tables + 2 * o, args_.dictionary,
                                  to + o * 2 * kLineBytes);
    }
  }
  template <int kPanels>
  void ExpandStep(const uint8_t* group, int64_t step, uint8_t* to) const {
    for (int64_t p = 0; p < kPanels; ++p) {
      ExpandPanel(SourceOf<true>(group + p * stride_, step), to + p * kExpandedPanelBytes);
    }
  }

  template <bool kW4>
  static constexpr int64_t kHalf = kW4 ? kLineBytes : kTileBytes;  // from a step's weights to those of its second half
  template <bool kW4>
  static constexpr int64_t kStride = kW4 ? 2 * kLineBytes : kLineBytes;

  // A step of one row block, with sum p for panel p. a: the panels' weights; b: [half][16][64]. kOnce loads b past L1,
  // to leave L1 to sums and expanded weights. The only row block of four panels had better stay in L1: 7B w4a8 101.7 ->
  // 99.8 ms with 1 row, 111.2 -> 109.6 ms with 16 (medians of five runs in turn). Without kOnce 32 rows take 8 % more,
  // 64 rows 20 %, and w8a8 1 to 2 %.
  template <bool kW4, int kPanels, bool kOnce, int kProduct, typename Change, typename Then>
  HYDRANT_INLINE void MultiplyOne(const Places<kPanels>& a, const int8_t* b, const Change& change, const Then& then) {
    constexpr int kSecond = kProduct / kPanels, kPanel = kProduct % kPanels;
    tiles_.template LoadLines<4>(a.at[kPanel] + kSecond * kHalf<kW4>, kStride<kW4>);
    if constexpr (kPanel == 0 && kOnce) tiles_.template LoadOnce<5>(b + kSecond * kTileBytes);
    if constexpr (kPanel == 0 && !kOnce) tiles_.template Load<5>(b + kSecond * kTileBytes);
    if constexpr (kProduct < 4) change(Part<kProduct>());
    tiles_.template MultiplyU8S8<kPanel, 4, 5>();
    then(Part<kProduct>());
    if constexpr (kProduct + 1 < 2 * kPanels) MultiplyOne<kW4, kPanels, kOnce, kProduct + 1>(a, b, change, then);
  }

  // Half a step of two row blocks and two panels, with sum 2 * panel + block.
  template <bool kW4, int kSecond, typename Change, typename Then>
  HYDRANT_INLINE void MultiplyTwo(const Places<2>& a, const int8_t* b0, const int8_t* b1, const Change& change,
                                  const Then& then) {
    tiles_.template LoadLines<4>(a.at[0] + kSecond * kHalf<kW4>, kStride<kW4>);
    tiles_.template LoadOnce<5>(b0 + kSecond * kTileBytes);
    if constexpr (kSecond == 0) change(Part<0>());
    tiles_.template MultiplyU8S8<0, 4, 5>();
    then(Part<4 * kSecond>());
    tiles_.template LoadOnce<6>(b1 + kSecond * kTileBytes);
    if constexpr (kSecond == 0) change(Part<1>());
    tiles_.template MultiplyU8S8<1, 4, 6>();
    then(Part<4 * kSecond + 1>());
    tiles_.template LoadLines<4>(a.at[1] + kSecond * kHalf<kW4>, kStride<kW4>);
    if constexpr (kSecond == 0) change(Part<2>());
    tiles_.template MultiplyU8S8<2, 4, 5>();
    then(Part<4 * kSecond + 2>());
    if constexpr (kSecond == 0) change(Part<3>());
    tiles_.template MultiplyU8S8<3, 4, 6>();
    then(Part<4 * kSecond + 3>());
  }

  // A step of one or two row blocks.
  template <bool kW4, int kPanels, int kBlocks, Share kShare, bool kOnce = true>
  HYDRANT_INLINE void Step(const Places<kPanels>& a, const int8_t* b0, const int8_t* b1, const SumChange& sums,
                           const Beside<kPanels>& beside) {
    const auto change = [&](auto sum) __attribute__((always_inline)) { this->template ChangeSum<sum.value>(sums); };
    const auto then = [&](auto part) __attribute__((always_inline)) {
      Do<Vectors, kW4, kShare, part.value, 2 * kPanels * kBlocks>(beside);
      if constexpr (!kW4 || kShare.count == 0) this->tiles_.Apart();
    };
    MultiplyStep<kW4, kPanels, kBlocks, kOnce>(a, b0, b1, change, then);
  }
  template <bool kW4, int kPanels, int kBlocks, bool kOnce, typename Change, typename Then>
  HYDRANT_INLINE void MultiplyStep(const Places<kPanels>& a, const int8_t* b0, const int8_t* b1, const Change& change,
                                   const Then& then) {
    if constexpr (kBlocks == 1) {
      MultiplyOne<kW4, kPanels, kOnce, 0>(a, b0, change, then);
    } else {
      MultiplyTwo<kW4, 0>(a, b0, b1, change, then);
      MultiplyTwo<kW4, 1>(a, b0, b1, change, then);
    }
  }

  // The weights of step `step` (w4: in the buffer), and what goes on beside their products: expansion of step `step +
  // ahead`, and prefetch `lead` steps behind that. w8 is prefetched half a step ahead, but a whole step in chunks. (The
  // other way round, a step of two panels from memory takes 230 -> 261 ns with 1 row, 255 -> 282 ns with 32 rows, and
  // in chunks 286 -> 323 ns with 64 rows.)
  template <bool kW4, bool kChunk, int kPanels>
  HYDRANT_INLINE Places<kPanels> WeightsAt(const Stream<kW4>& stream, int64_t step, int64_t ahead, int64_t lead,
                                           const uint8_t* expanded, Beside<kPanels>* beside) const {
    if constexpr (kW4) {
      const StepSource next = stream.At(step + ahead), later = stream.At(step + ahead + lead);
      beside->next = InEach<kPanels>(next.codes);
      beside->tables = InEach<kPanels>(next.tables);
      beside->later = InEach<kPanels>(later.codes);
      PrefetchEach(InEach<kPanels>(later.tables));  // a line holds two steps' tables: every second time it is there
      Places<kPanels> weights;
#pragma GCC unroll 4
      for (int p = 0; p < kPanels; ++p) weights.at[p] = expanded + p * kExpandedPanelBytes;
      return weights;
    } else {
      const uint8_t *now = stream.At(step).codes, *next = stream.At(step + 1).codes;
      beside->later = InEach<kPanels>(kChunk ? next : now + kTileBytes);
      beside->later2 = InEach<kPanels>(kChunk ? next + kTileBytes : next);
      return InEach<kPanels>(now);
    }
  }

  // Two panels, one or two row blocks, all inputs. The first step is in the buffer already; the next group's is at the
  // end.
  template <bool kW4, int kBlocks>
  void AllSteps(int64_t panel, int64_t group) {
    constexpr int64_t kSlotBytes = 2 * kExpandedPanelBytes;
    const Stream<kW4> stream = StreamOf<kW4>(panel);
    const int8_t *b0 = args_.blocks[0].codes, *b1 = args_.blocks[kBlocks - 1].codes;
    Beside<2> beside;
    beside.dictionary = args_.dictionary;
    int64_t slot = slot_;
    SumChange sums = ChangeTo({SumsOf(group, 0), 2 * kBlocks}, 0);
    for (int64_t step = 0; step < stream.steps; ++step) {
      const Places<2> a = WeightsAt<kW4, false>(stream, step, 1, kLeadSteps, buffer_ + slot * kSlotBytes, &beside);
      slot ^= 1;
      beside.to = buffer_ + slot * kSlotBytes;
      Step<kW4, 2, kBlocks, kAll>(a, b0, b1, sums, beside);
      sums.now = false;
      b0 += 2 * kTileBytes;
      b1 += 2 * kTileBytes;
    }
    slot_ = slot;
  }

  // Four panels of w4. The first step is in the buffer already; the next group's is at the end.
  void FourPanels(int64_t panel, int64_t group) {
    switch (args_.num_blocks) {
      case 1: return BlockByBlock(panel, group, std::integer_sequence<int, 0>());
      case 2: return BlockByBlock(panel, group, std::integer_sequence<int, 0, 1>());
      case 3: return BlockByBlock(panel, group, std::integer_sequence<int, 0, 1, 2>());
      default: return BlockByBlock(panel, group, std::integer_sequence<int, 0, 1, 2, 3>());
    }
  }

  template <typename Item, int kCount>
  HYDRANT_INLINE static void Reverse(Item (&items)[kCount]) {
#pragma GCC unroll 2
    for (int i = 0; i < kCount / 2; ++i) {
      const Item last = items[kCount - 1 - i];
      items[kCount - 1 - i] = items[i];
      items[i] = last;
    }
  }

  // The row blocks multiply each step one after the other, and the next step in the opposite order, so that the last
  // one's sums stay where they are. Several row blocks leave room in L1 for fewer steps ahead.
  template <int... kPlace>
  void BlockByBlock(int64_t panel, int64_t group, std::integer_sequence<int, kPlace...> /*in the order*/) {
    constexpr int kBlocks = sizeof...(kPlace);
    constexpr int64_t kSlotBytes = kFour * kExpandedPanelBytes, kLead = kBlocks == 1 ? kLeadSteps : kLeadSteps - 1;
    const Stream<true> stream = StreamOf<true>(panel);
    const int8_t* codes[] = {args_.blocks[kPlace].codes...};
    int32_t(*places[])[256] = {SumsOf(group, kPlace)...};
    Beside<kFour> beside;
    beside.dictionary = args_.dictionary;
    int64_t slot = slot_;
    SumChange sums{};
    for (int64_t step = 0; step < stream.steps; ++step) {
      const Places<kFour> a = WeightsAt<true, false>(stream, step, 1, kLead, buffer_ + slot * kSlotBytes, &beside);
      slot ^= 1;
      beside.to = buffer_ + slot * kSlotBytes;
      const auto multiply = [&](auto place) __attribute__((always_inline)) {
        sums.now = false;
        if (place.value > 0 || step == 0) sums = ChangeTo({places[place.value], kFour}, step);
        Step<true, kFour, 1, ShareOf(place.value, kBlocks), (kBlocks > 1)>(a, codes[place.value], nullptr, sums,
                                                                           beside);
        codes[place.value] += 2 * kTileBytes;
      };
      (multiply(Part<kPlace>()), ...);
      Reverse(codes);
      Reverse(places);
    }
    slot_ = slot;
  }

  // For more row blocks: all of them multiply a few steps, then the next ones. The first chunk is in the buffer
  // already; the next group's is at the end.
  template <bool kW4>
  void Chunks(int64_t panel, int64_t group) {
    bool back = false;
    for (int64_t first = 0; first < args_.steps; first += kChunkSteps, back = !back) {
      Chunk chunk{panel, first, ChunkSteps(first), buffer_ + slot_ * kChunkBytes, buffer_ + (slot_ ^ 1) * kChunkBytes};
      const auto pair_at = [&](int64_t place) { return back ? LastPair() - place : place; };
      ChunkOf<kW4, kFirstHalf>(chunk, group, pair_at(0));
      ChunkOf<kW4, kSecondHalf>(chunk, group, pair_at(1));
      for (int64_t place = 2; place <= LastPair(); ++place) ChunkOf<kW4, kNone>(chunk, group, pair_at(place));
      if (kW4 && first + chunk.steps == args_.steps) {  // a short last chunk has left out some steps
        for (int64_t s = chunk.steps; s < ChunkSteps(0); ++s) {
          ExpandStep<2>(BytesAfter(panel), s, chunk.next + s * 2 * kExpandedPanelBytes);
        }
      }
      slot_ ^= 1;
    }
  }

  int64_t LastPair() const { return (args_.num_blocks - 1) / 2; }  // of row blocks
  int64_t ChunkSteps(int64_t first) const {
    return args_.steps - first < kChunkSteps ? args_.steps - first : kChunkSteps;
  }

  struct Chunk {
    int64_t panel, first, steps;
    const uint8_t* expanded;  // in the buffer
    uint8_t* next;            // where the next chunk goes
  };

  template <bool kW4, Share kShare>
  void ChunkOf(const Chunk& chunk, int64_t group, int64_t pair) {
    if (2 * pair + 1 < args_.num_blocks) {
      MultiplyChunk<kW4, 2, kShare>(chunk, 2 * pair, SumsOf(group, pair));
    } else {
      MultiplyChunk<kW4, 1, kShare>(chunk, 2 * pair, SumsOf(group, pair));
    }
  }

  // Adds the products of one or two row blocks to their sums.
  template <bool kW4, int kBlocks, Share kShare>
  void MultiplyChunk(const Chunk& chunk, int64_t block, int32_t (*places)[256]) {
    const Stream<kW4> stream = StreamOf<kW4>(chunk.panel);
    const int64_t first = chunk.first, steps = chunk.steps;
    const int8_t* b0 = args_.blocks[block].codes + first * 2 * kTileBytes;
    const int8_t* b1 = args_.blocks[block + kBlocks - 1].codes + first * 2 * kTileBytes;
    const uint8_t* expanded = chunk.expanded;
    Beside<2> beside;
    beside.dictionary = args_.dictionary;
    beside.to = chunk.next;
    const bool stay = kShare.first == 0 && kShare.count > 0 && first > 0;
    SumChange sums = ChangeTo({places, 2 * kBlocks}, first, stay);
    for (int64_t step = first; step < first + steps; ++step) {
      const Places<2> a = WeightsAt<kW4, true>(stream, step, steps, kLeadSteps, expanded, &beside);
      Step<kW4, 2, kBlocks, kShare>(a, b0, b1, sums, beside);
      sums.now = false;
      expanded += 2 * kExpandedPanelBytes;
      beside.to += 2 * kExpandedPanelBytes;
      b0 += 2 * kTileBytes;
      b1 += 2 * kTileBytes;
    }
  }

  // As Chunks with w4, but with longer chunks, so that sums move half as often. Expanded steps lie in a ring with room
  // for one step more than a chunk has. That step is filled in beside the first pair of row blocks. While the last pair
  // multiplies, each step that it is done with makes room for the step a ring later.
  void LongChunks(int64_t panel, int64_t group) {
    const Stream<true> stream = StreamOf<true>(panel);
    const int64_t last = LastPair();
    bool back = false;
    for (int64_t first = 0; first < args_.steps; back = !back) {
      const int64_t left = args_.steps - first, steps = left < kLongChunkSteps ? left : kLongChunkSteps;
      const bool whole = steps == kLongChunkSteps;
      for (int64_t place = 0; place <= last; ++place) {
        const int64_t pair = back ? last - place : place;
        const bool two = 2 * pair + 1 < args_.num_blocks;
        const LongChunk chunk{stream, first, steps, pair, place, SumsOf(group, pair)};
        if (whole && place == 0) {
          two ? MultiplyLongChunk<2, Turn::kFirst>(chunk) : MultiplyLongChunk<1, Turn::kFirst>(chunk);
        } else if (whole && place == last) {
          two ? MultiplyLongChunk<2, Turn::kLast>(chunk) : MultiplyLongChunk<1, Turn::kLast>(chunk);
        } else {
          two ? MultiplyLongChunk<2, Turn::kMiddle>(chunk) : MultiplyLongChunk<1, Turn::kMiddle>(chunk);
        }
      }
      for (int64_t s = kLongChunkSteps; !whole && s < kLongChunkSteps + steps; ++s) {  // a short last chunk
        const StepSource next = stream.At(first + s);
        ExpandPanel(next, InRing(s));
        ExpandPanel({next.tables + stride_, next.codes + stride_}, InRing(s) + kExpandedPanelBytes);
      }
      first += steps;
      ring_ = (ring_ + steps) % kRingSteps;
    }
  }
  // Where step `step` of the chunk, or one behind it, is expanded.
  uint8_t* InRing(int64_t step) { return buffer_ + (ring_ + step) % kRingSteps * 2 * kExpandedPanelBytes; }

  enum class Turn { kFirst, kMiddle, kLast };
  struct LongChunk {
    const Stream<true>& stream;
    int64_t first, steps, pair, place;
    int32_t (*sums)[256];
  };

  // Products of a pair of row blocks, or of one. Beside the first pair one step is expanded; beside the last pair one
  // step with each of its steps but the first. Beside each of the first four pairs a quarter of the chunk after the
  // next is fetched to L2. (Fetched to L1: 128 rows take 2 to 3 % more time, a prompt 5 %.)
  template <int kBlocks, Turn kTurn>
  void MultiplyLongChunk(const LongChunk& chunk) {
    constexpr int kProducts = 4 * kBlocks, kLines = 2 * static_cast<int>(kTileRows) / kProducts;
    const int64_t block = 2 * chunk.pair;
    const int8_t* b0 = args_.blocks[block].codes + chunk.first * 2 * kTileBytes;
    const int8_t* b1 = args_.blocks[block + kBlocks - 1].codes + chunk.first * 2 * kTileBytes;
    const StepSource later = chunk.stream.At(chunk.first + 2 * kLongChunkSteps + chunk.place);
    PrefetchEach(InEach<2>(later.tables));
    SumChange sums = ChangeTo({chunk.sums, 2 * kBlocks}, chunk.first, chunk.place == 0 && chunk.first > 0);
    for (int64_t step = 0; step < chunk.steps; ++step) {
      const int64_t ahead = kLongChunkSteps + (kTurn == Turn::kLast ? step : 0);
      const StepSource next = chunk.stream.At(chunk.first + ahead);
      uint8_t* to = InRing(ahead);
      const auto expand = [&]<int kTogether>(Part<kTogether> /*lines*/, int64_t n) __attribute__((always_inline)) {
        const int64_t o = n % kPanelOutputs, panel = n / kPanelOutputs * stride_;
        Vectors::template Expand<kTogether>(next.codes + panel + o * kLineBytes, next.tables + panel + 2 * o,
                                            args_.dictionary, to + n * 2 * kLineBytes);
      };
      const auto change = [&](auto sum) __attribute__((always_inline)) { this->template ChangeSum<sum.value>(sums); };
      const auto then = [&](auto part) __attribute__((always_inline)) {
        if constexpr (kTurn == Turn::kFirst && part.value % kBlocks == 0) {
          expand(Part<2>(), 2 * (step * 4 + part.value / kBlocks));
        } else if (kTurn == Turn::kLast && step > 0) {
#pragma GCC unroll 2
          for (int n = part.value * kLines; n < (part.value + 1) * kLines; n += 4) expand(Part<4>(), n);
        }
        const uint8_t* line = later.codes + (step * 4 + part.value * 4 / kProducts) * kLineBytes;
        __builtin_prefetch(line + part.value % 2 * stride_, 0, 2);
        if constexpr (kBlocks == 1) __builtin_prefetch(line + (part.value + 1) % 2 * stride_, 0, 2);
        if constexpr (kTurn == Turn::kMiddle) this->tiles_.Apart();
      };
      MultiplyStep<true, 2, kBlocks, true>(PlacesFrom<2>(InRing(step), kExpandedPanelBytes), b0, b1, change, then);
      sums.now = false;
      b0 += 2 * kTileBytes;
      b1 += 2 * kTileBytes;
    }
  }

  // Sums [16 outputs][16 rows] of group `group` of a batch. Four panels: [block][panel]. Two panels: [pair of
  // blocks][panel][block of the pair]; a last block without a partner is a pair by itself.
  int32_t (*SumsOf(int64_t group, int64_t block_pair))[256] { return sums_ + group * sums_of_group_ + 4 * block_pair; }
  const int32_t* SumsOf(int64_t group, int64_t panel, int64_t block) {
    if (group_ == kFour) return SumsOf(group, 0)[kFour * block + panel];
    const int64_t together = (block | 1) < args_.num_blocks ? 2 : 1;
    return SumsOf(group, block / 2)[panel * together + block % 2];
  }

  // Makes the outputs of `groups` groups, from the one that covers panel `first` on.
  void Finish(int64_t first, int64_t groups) {
    for (int64_t block = 0; block < args_.num_blocks; ++block) {
      for (int64_t group = 0; group < groups; ++group) {
        const int64_t panel = first + group_ * group, group_begin = GroupAt(panel);
        for (int64_t p = panel; p < panel + group_ && p < end_; ++p) {
          Vectors::Finish(args_, p, args_.blocks[block], SumsOf(group, p - group_begin, block));
        }
      }
    }
  }

  static constexpr int64_t kChunkBytes = kChunkSteps * 2 * kExpandedPanelBytes;
  static constexpr int64_t kBufferBytes = kRingSteps * 2 * kExpandedPanelBytes;
  static_assert(2 * kChunkBytes <= kBufferBytes && 2 * kFour * kExpandedPanelBytes <= kBufferBytes);

  const PackedMatmulArgs& args_;
  int64_t begin_, end_;
  int64_t group_ = 0, stride_ = 0;  // panels of a group; bytes from one to the next
  int64_t sums_of_group_ = 0;
  int64_t slot_ = 0;                            // which half of buffer_ holds the step or chunk to multiply
  int64_t ring_ = 0;                            // where in buffer_ a long chunk's first step is
  alignas(4096) uint8_t buffer_[kBufferBytes];  // two steps or chunks in turn
  alignas(64) int32_t sums_[kBatchGroups * kMaxCodeRows / 8][256];
};

template <typename Tiles, typename Vectors>
void TilePackedMatmul(const PackedMatmulArgs& args, int64_t panel_begin, int64_t panel_end) {
  if (panel_begin >= panel_end || args.num_blocks == 0) return;
  TileMatmul<Tiles, Vectors>(args, panel_begin, panel_end).Run();
}
