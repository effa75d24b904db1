// SPDX-License-Identifier: Apache-2.0
// From scores to weights, and where keys and values are: what attention with vectors and attention with tiles share.
// Included by target files inside their unnamed namespace, after <target>/lanes.h, generic/exp_inl.h and
// <target>/attention_lanes.h.

// The positions begin .. end - 1 of a block to which a row attends. Those below `in_place` lie in the slots of their
// number.
struct Range {
  int32_t begin, end, in_place;

  bool empty() const { return begin >= end; }
  bool whole() const { return begin == 0 && end == kBlockPositions; }
};
inline int32_t Within(int32_t position, int32_t block) {
  const int32_t left = position - kBlockPositions * block;
  return left < 0 ? 0 : left < kBlockPositions ? left : kBlockPositions;
}
inline Range RangeIn(int32_t block, const AttentionRow& row) {
  return {Within(row.first, block), Within(row.last + 1, block), Within(row.prefix_end, block)};
}

struct Scaled {
  Lanes low, high;
};
// The scaled scores of one column and block; -infinity outside of its range (null: the whole block).
inline Scaled ScaleScores(float scale, const Scaled& scores, const Range* range) {
  const Lanes scales = Set(scale);
  Lanes low = Mul(scores.low, scales), high = Mul(scores.high, scales);
  if (range != nullptr && !range->whole()) {
    alignas(64) constexpr float kIndex[16] = {0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15};
    const Lanes never = Set(-__builtin_inff()), index = Load(kIndex);
    const auto from = static_cast<float>(range->begin), to = static_cast<float>(range->end);
    low = SelectLess(index, Set(from), never, SelectLess(index, Set(to), low, never));
    high = SelectLess(index, Set(from - 16.0F), never, SelectLess(index, Set(to - 16.0F), high, never));
  }
  return {low, high};
}

inline Scaled ScaleScores(float scale, const float* scores, const Range* range) {
  return ScaleScores(scale, Scaled{Load(scores), Load(scores + 16)}, range);
}

// How far scores may lie above the score that exponentials are relative to. A float loses nothing of 1,000 weights of
// e^16 = 8.9e6. A running maximum would instead rise in most blocks, for one column or another, and outputs would be
// scaled each time.
constexpr float kMaxAbove = 16.0F;

inline bool IsAbove(const Scaled& scores, float reference) {
  return AnyLess(Set(reference + kMaxAbove), Max(scores.low, scores.high));
}
// Raises a column's reference to its largest score where that lies too far above. Returns the old reference minus the
// new one, which is negative; 0 where the reference stays.
inline float Raise(const Scaled& scores, float& reference) {
  if (!IsAbove(scores, reference)) return 0.0F;
  const float old = reference;
  reference = TreeMax(Max(scores.low, scores.high));
  return old - reference;
}

// Turns the scores ([..][32]) of at most 16 columns and one block into weights ([..][32], or 16 pairs), and updates
// each column's reference and 16 running sums. `ranges` [columns] has no empty range; null: the whole block. Returns
// whether a reference rose. Only then `factors` [16] are set, by which earlier outputs must be multiplied: one exp for
// all columns.
template <FloatType kType>
inline bool Weigh(float scale, const float* scores, int64_t columns, const Range* ranges, float* references,
                  float* sums, float* factors, uint32_t* weights) {
  const auto scaled_of = [&](int64_t c) {
    return ScaleScores(scale, scores + 32 * c, ranges == nullptr ? nullptr : ranges + c);
  };
  bool risen = false;
  for (int64_t c = 0; c < columns; ++c) risen |= IsAbove(scaled_of(c), references[c]);
  if (risen) {
    alignas(64) float rises[16] = {};
    for (int64_t c = 0; c < columns; ++c) rises[c] = Raise(scaled_of(c), references[c]);
    Store(factors, Exp(Load(rises)));
  }
  for (int64_t c = 0; c < columns; ++c) {
    const Scaled scaled = scaled_of(c);
    const Lanes reference = Set(references[c]);
    Lanes before = Load(sums + 16 * c);
    if (risen) before = Mul(before, Set(factors[c]));
    Store(sums + 16 * c, StoreWeights<kType>(weights + 32 * c, Exp(Sub(scaled.low, reference)),
                                             Exp(Sub(scaled.high, reference)), before));
  }
  return risen;
}

inline const uint8_t* KeysOf(const AttentionArgs& args, int32_t block) {
  return args.kv.keys + args.blocks[block] * args.kv.block_bytes;
}
inline const uint8_t* ValuesOf(const AttentionArgs& args, int32_t block) {
  return args.kv.values + args.blocks[block] * args.kv.block_bytes;
}

// Where one step of a chain over values finds them. Normally that is `first`. In bf16 the two positions of a step may
// be no pair in memory, or one of them may be out of range (slot -1): then it is half of what lies at `first` and half
// of what lies at `second`.
struct Place {
  const uint8_t* first;
  const uint8_t* second;  // or null
  uint32_t first_shift, first_mask, second_shift, second_mask;

  bool merged() const { return (first_mask | second_mask) != 0; }
};
inline Place PlaceOfPair(const AttentionArgs& args, int32_t even, int32_t odd) {
  const int64_t bytes = 4 * ValueWidth(args.kv.head_dim);
  const auto pairs_of = [&](int32_t slot) { return ValuesOf(args, slot / 32) + slot % 32 / 2 * bytes; };
  if (even >= 0 && even % 2 == 0 && odd == even + 1) return {pairs_of(even), nullptr, 0, 0, 0, 0};
  Place place;
  place.first = pairs_of(even < 0 ? odd : even);
  place.first_shift = even % 2 != 0 ? 16U : 0U;
  place.first_mask = even < 0 ? 0U : 0xffffU;
  place.second = pairs_of(odd < 0 ? even : odd);
  place.second_shift = odd % 2 != 0 ? 0U : 16U;
  place.second_mask = odd < 0 ? 0U : 0xffff0000U;
  return place;
}

// Merges sixteen pairs of a place that has a second half.
inline void MergePairs(const Place& place, int64_t offset, uint32_t* to) {
  uint32_t first[16], second[16];
  __builtin_memcpy(first, place.first + offset, 64);
  __builtin_memcpy(second, place.second + offset, 64);
  for (int i = 0; i < 16; ++i) {
    to[i] =
        ((first[i] >> place.first_shift) & place.first_mask) | ((second[i] << place.second_shift) & place.second_mask);
  }
}
