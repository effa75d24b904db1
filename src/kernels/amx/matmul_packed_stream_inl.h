// SPDX-License-Identifier: Apache-2.0
// Where a tile matmul finds the weights of a step, and what it does with those of later steps beside its products:
// expansion and prefetch. Included inside each target's unnamed namespace, before amx/matmul_packed_inl.h.

#define HYDRANT_INLINE __attribute__((always_inline)) inline

constexpr int64_t kExpandedPanelBytes = 2 * kTileBytes;  // of a step: [16 outputs][half][64]

// Quarters of the next step or chunk that are expanded, and fetched ahead, beside some products: `count` from `first`
// on.
struct Share {
  int first, count;
};
constexpr Share kAll{0, 4}, kFirstHalf{0, 2}, kSecondHalf{2, 2}, kNone{0, 0};
// The share of block `block` of up to four.
constexpr Share ShareOf(int block, int blocks) {
  if (blocks == 1) return kAll;
  if (blocks == 2) return {2 * block, 2};
  if (blocks == 3) return block == 0 ? kFirstHalf : Share{block + 1, 1};
  return {block, 1};
}

template <int kValue>
struct Part {
  static constexpr int value = kValue;
};

// One place in each panel of a group, the same in all of them.
template <int kPanels>
struct Places {
  const uint8_t* at[kPanels];
};
template <int kPanels>
HYDRANT_INLINE Places<kPanels> PlacesFrom(const uint8_t* first, int64_t stride) {
  Places<kPanels> places;
  places.at[0] = first;
#pragma GCC unroll 4
  for (int p = 1; p < kPanels; ++p) places.at[p] = places.at[p - 1] + stride;
  return places;
}
template <int kPanels>
HYDRANT_INLINE void PrefetchEach(const Places<kPanels>& places) {
#pragma GCC unroll 4
  for (int p = 0; p < kPanels; ++p) __builtin_prefetch(places.at[p]);
}

template <bool kW4>
constexpr int64_t kStepBytes = kW4 ? kTileBytes : 2 * kTileBytes;  // of one panel's codes

// Table numbers and codes of a step.
struct StepSource {
  const uint8_t *tables, *codes;
};
template <bool kW4>
HYDRANT_INLINE StepSource SourceOf(const uint8_t* panel, int64_t step) {
  if constexpr (kW4) return {panel + TablesAtW4(step), panel + CodesAtW4(step)};
  return {nullptr, panel + step * kStepBytes<kW4>};
}

// The steps of a group's first panel, and behind them those of the next group's. If asked for a step behind those too,
// it gives the next group's first step.
template <bool kW4>
struct Stream {
  const uint8_t *here, *after;
  int64_t steps;
  HYDRANT_INLINE StepSource At(int64_t step) const {
    const uint8_t* panel = step < steps ? here : after;
    const int64_t next = step < 2 * steps ? step - steps : 0;
    return SourceOf<kW4>(panel, step < steps ? step : next);
  }
};

// What goes on beside the products of a step. w4: the step at `next` is expanded to `to`, and as many lines at `later`
// are prefetched. w8: lines at `later` and then at `later2` are prefetched, 32 in each panel.
template <int kPanels>
struct Beside {
  Places<kPanels> next, tables, later, later2;
  const uint8_t* dictionary;
  uint8_t* to;
  // Line n of those to prefetch, which are taken from every panel in turn.
  HYDRANT_INLINE const uint8_t* Later(int n) const {
    const int panel = n % kPanels, line = n / kPanels;
    return (line < kTileRows ? later : later2).at[panel] + line % kTileRows * kLineBytes;
  }
};
// Does a share of it behind one of `kProducts` products, in turn a few prefetches and a few expansions: 8 prefetches in
// a row cost 5 % with 16 rows.
template <typename Vectors, bool kW4, Share kShare, int kPart, int kProducts, int kPanels>
HYDRANT_INLINE void Do(const Beside<kPanels>& beside) {
  if constexpr (kShare.count == 0) return;
  constexpr int kQuarter = kPanels * kStepBytes<kW4> / kLineBytes / 4;
  constexpr int kLines = kShare.count * kQuarter / kProducts, kTogether = kLines < 4 ? kLines : 4;
  constexpr int kFirst = kShare.first * kQuarter + kPart * kLines;
#pragma GCC unroll 16
  for (int n = kFirst; n < kFirst + kLines; n += kTogether) {
#pragma GCC unroll 4
    for (int line = n; line < n + kTogether; ++line) __builtin_prefetch(beside.Later(line));
    if constexpr (kW4) {
      const int panel = n / static_cast<int>(kPanelOutputs), o = n % static_cast<int>(kPanelOutputs);
      Vectors::template Expand<kTogether>(beside.next.at[panel] + o * kLineBytes, beside.tables.at[panel] + 2 * o,
                                          beside.dictionary, beside.to + n * 2 * kLineBytes);
    }
  }
}
