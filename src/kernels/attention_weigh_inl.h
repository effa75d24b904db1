// SPDX-License-Identifier: Apache-2.0
// From scores to weights, and where keys and values are: what attention with vectors and attention with tiles share.
// Included by target files inside their unnamed namespace, after lanes_<target>.h, exp_inl.h and
// attention_lanes_<target>.h.

// Exp of exp_inl.h, the same bits, where x <= 0 or NaN.
inline Lanes ExpWeight(Lanes x) {
  const Lanes magic = Set(12582912.0F);
  const Lanes clamped = Max(Set(-88.0F), x);  // the second for NaN
  const Lanes shifted = Fma(clamped, Set(1.44269504F), magic);
  const Lanes k = Sub(shifted, magic);
  Lanes r = Fma(k, Set(-0.693359375F), clamped);
  r = Fma(k, Set(2.12194440e-4F), r);
  Lanes p = Set(1.9875691500e-4F);
  p = Fma(p, r, Set(1.3981999507e-3F));
  p = Fma(p, r, Set(8.3334519073e-3F));
  p = Fma(p, r, Set(4.1665795894e-2F));
  p = Fma(p, r, Set(1.6666665459e-1F));
  p = Fma(p, r, Set(5.0000001201e-1F));
  p = Add(Fma(p, Mul(r, r), r), Set(1.0F));
  return SelectLess(x, Set(-87.3F), Set(0.0F), Mul(p, PowerOfTwo(shifted)));
}

// The scaled scores of one column and block; -infinity outside of positions begin .. end - 1.
struct Scaled {
  Lanes low, high;
};
inline Scaled ScaleScores(float scale, const float* scores, int32_t begin, int32_t end) {
  const Lanes scales = Set(scale);
  Lanes low = Mul(Load(scores), scales), high = Mul(Load(scores + 16), scales);
  if (end - begin < 32) {
    alignas(64) constexpr float kIndex[16] = {0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15};
    const Lanes never = Set(-__builtin_inff()), index = Load(kIndex);
    const auto from = static_cast<float>(begin), to = static_cast<float>(end);
    low = SelectLess(index, Set(from), never, SelectLess(index, Set(to), low, never));
    high = SelectLess(index, Set(from - 16.0F), never, SelectLess(index, Set(to - 16.0F), high, never));
  }
  return {low, high};
}

// Raises a column's running maximum to that of its scores. Returns by how much, as a negative number; 0 when it stays.
inline float Raise(const Scaled& scores, float& top) {
  const Lanes both = Max(scores.low, scores.high);
  if (!AnyLess(Set(top), both)) return 0.0F;
  const float old = top;
  top = TreeMax(both);
  return old - top;
}

// Scores of `columns` columns ([..][32], at most 16) and one block to weights ([..][32], or 16 pairs), running maxima
// and 16 running sums each. `factors` [16]: what to multiply earlier outputs by, exactly 1 unless the maximum grew: one
// exp for all columns. Returns whether one did.
template <FloatType kType>
inline bool Weigh(float scale, const float* scores, int64_t columns, int32_t begin, int32_t end, float* tops,
                  float* sums, float* factors, uint32_t* weights) {
  alignas(64) float rises[16] = {};
  bool grown = false;
  for (int64_t c = 0; c < columns; ++c) {
    rises[c] = Raise(ScaleScores(scale, scores + 32 * c, begin, end), tops[c]);
    grown |= rises[c] != 0.0F;
  }
  Store(factors, grown ? Exp(Load(rises)) : Set(1.0F));
  for (int64_t c = 0; c < columns; ++c) {
    const Scaled scaled = ScaleScores(scale, scores + 32 * c, begin, end);
    const Lanes top = Set(tops[c]), before = Mul(Load(sums + 16 * c), Set(factors[c]));
    Store(sums + 16 * c, StoreWeights<kType>(weights + 32 * c, ExpWeight(Sub(scaled.low, top)),
                                             ExpWeight(Sub(scaled.high, top)), before));
  }
  return grown;
}

inline const uint8_t* KeysOf(const AttentionArgs& args, int32_t block) {
  return args.kv.keys + args.blocks[block] * args.kv.block_bytes;
}
inline const uint8_t* ValuesOf(const AttentionArgs& args, int32_t block) {
  return args.kv.values + args.blocks[block] * args.kv.block_bytes;
}

// bf16: the value row of slot `even` as first members, of slot `odd` as second members; zeros for -1, one of them.
inline void MergePairs(const AttentionArgs& args, int32_t even, int32_t odd, uint8_t* to) {
  const int64_t width = ValueWidth(args.kv.head_dim);
  const auto row_of = [&](int32_t slot) { return ValuesOf(args, slot / 32) + slot % 32 / 2 * 4 * width; };
  const uint8_t* a = row_of(even < 0 ? odd : even);
  const uint8_t* b = row_of(odd < 0 ? even : odd);
  const int a_shift = even % 2 != 0 ? 16 : 0, b_shift = odd % 2 != 0 ? 0 : 16;
  const uint32_t a_mask = even < 0 ? 0 : 0xffffU, b_mask = odd < 0 ? 0 : 0xffff0000U;
  for (int64_t i = 0; i < width; ++i) {
    uint32_t first, second;
    __builtin_memcpy(&first, a + 4 * i, 4);
    __builtin_memcpy(&second, b + 4 * i, 4);
    const uint32_t pair = ((first >> a_shift) & a_mask) | ((second << b_shift) & b_mask);
    __builtin_memcpy(to + 4 * i, &pair, 4);
  }
}
