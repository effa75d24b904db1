// SPDX-License-Identifier: Apache-2.0
// Attention of one column, a (row, head) pair, over bf16 keys and values by vectors, in the order in which tiles add.
// The result is TileAttention's, but tiles would move 16 lines of every operand for the sake of one. Included inside an
// unnamed namespace, after generic/attention_weigh_inl.h and avx512/attention_pairs.h.
//
// A product of tiles is two chains from 0 over sixteen pairs, one over their even members and one over their odd ones;
// the sum of both is added to the old value. TDPBF16PS flushes denormals and these chains do not, so bits differ where
// an operand or a result was denormal. The caller therefore looks at MXCSR's flags afterwards. (MXCSR could flush, but
// exponentials keep their denormals, so it would have to be switched in each block: 4 % of a pass of the embedded model
// after 400 positions.)
//
// Tiles multiply positions out of range by 0, while this leaves them out. That can change only the sign of a zero,
// which is lost when it is added to the outputs before.

class OneColumnAttention {
 public:
  static bool Takes(const AttentionArgs& args) {
    return args.group * args.num_rows == 1 && args.kv.head_dim % (2 * kChain) == 0 && !args.rows->has_tail();
  }

  explicit OneColumnAttention(const AttentionArgs& args)
      : args_(args), head_dim_(args.kv.head_dim), query_(args.scratch), out_(args.scratch + head_dim_) {}

  void Run() {
    for (int64_t d = 0; d < head_dim_; d += 2 * kChain) {
      StoreFactors(_mm512_cvtne2ps_pbh(Load(args_.q + d + kChain).v, Load(args_.q + d).v), query_ + d);
    }
    for (int64_t d = 0; d < head_dim_; d += kChain) Store(out_ + d, Set(0.0F));
    const AttentionRow& row = *args_.rows;
    first_block_ = row.first / kBlockPositions;
    end_block_ = row.last / kBlockPositions + 1;
    for (int32_t block = first_block_; block < end_block_; ++block) AddBlock(block, RangeIn(block, row));
    const Lanes inverse = Set(1.0F / TreeSum(sums_));
    for (int64_t d = 0; d < head_dim_; d += kChain) {
      Store(args_.out + d, Add(Mul(Load(out_ + d), inverse), Set(0.0F)));
    }
  }

 private:
  static constexpr int64_t kChain = 16;  // pairs of a product; lanes of a vector
  static constexpr int64_t kLane = 64;   // bytes of sixteen pairs

  static __m512 Even(__m512i pairs) { return _mm512_castsi512_ps(_mm512_slli_epi32(pairs, 16)); }
  static __m512 Odd(__m512i pairs) {
    return _mm512_castsi512_ps(_mm512_and_si512(pairs, _mm512_set1_epi32(static_cast<int>(0xffff0000U))));
  }
  // [even or odd][16]
  static void StoreFactors(__m512bh pairs, float* to) {
    _mm512_storeu_ps(to, Even(reinterpret_cast<__m512i>(pairs)));
    _mm512_storeu_ps(to + kChain, Odd(reinterpret_cast<__m512i>(pairs)));
  }

  // Keys or values that are read two blocks later. Behind the last block come those of the next head.
  const uint8_t* Ahead(int32_t block, const uint8_t* (*of)(const AttentionArgs&, int32_t)) const {
    const int32_t later = block + 2, wrapped = later < end_block_ ? later : later + first_block_ - end_block_;
    return of(args_, wrapped < end_block_ ? wrapped : first_block_) + (later < end_block_ ? 0 : args_.next_head_bytes);
  }

  Scaled Scores(const uint8_t* keys, const uint8_t* ahead) const {
    __m512 low = _mm512_setzero_ps(), high = _mm512_setzero_ps();
    for (int64_t d = 0; d < head_dim_; d += 2 * kChain) {
      const float* factors = query_ + d;
      __m512 chains[4] = {};
#pragma GCC unroll 16
      for (int64_t k = 0; k < kChain; ++k, keys += 2 * kLane, ahead += 2 * kLane) {
        __builtin_prefetch(ahead, 0, 2);
        __builtin_prefetch(ahead + kLane, 0, 2);
        const __m512i first = _mm512_loadu_si512(keys), second = _mm512_loadu_si512(keys + kLane);
        const __m512 even = _mm512_set1_ps(factors[k]), odd = _mm512_set1_ps(factors[kChain + k]);
        chains[0] = _mm512_fmadd_ps(Even(first), even, chains[0]);
        chains[1] = _mm512_fmadd_ps(Odd(first), odd, chains[1]);
        chains[2] = _mm512_fmadd_ps(Even(second), even, chains[2]);
        chains[3] = _mm512_fmadd_ps(Odd(second), odd, chains[3]);
      }
      low = _mm512_add_ps(low, _mm512_add_ps(chains[0], chains[1]));
      high = _mm512_add_ps(high, _mm512_add_ps(chains[2], chains[3]));
    }
    return {{low}, {high}};
  }

  void AddBlock(int32_t block, const Range& range) {
    const Scaled scaled =
        ScaleScores(args_.scale, Scores(KeysOf(args_, block), Ahead(block, KeysOf)), range.whole() ? nullptr : &range);
    const float rise = Raise(scaled, reference_);
    if (rise != 0.0F) {
      const Lanes factor = Exp(Set(rise));
      sums_ = Mul(sums_, factor);
      for (int64_t d = 0; d < head_dim_; d += kChain) Store(out_ + d, Mul(Load(out_ + d), factor));
    }
    const Lanes reference = Set(reference_);
    alignas(64) uint32_t pairs[kChain];
    sums_ =
        StoreWeights<FloatType::kBF16>(pairs, Exp(Sub(scaled.low, reference)), Exp(Sub(scaled.high, reference)), sums_);
    StoreFactors(reinterpret_cast<__m512bh>(_mm512_load_si512(pairs)), weights_);
    const uint8_t *values = ValuesOf(args_, block), *ahead = Ahead(block, ValuesOf);
    int64_t d = 0;
    for (; d + 4 * kChain <= head_dim_; d += 4 * kChain) AddValues<4>(range, d, values, ahead);
    if (d < head_dim_) AddValues<2>(range, d, values, ahead);
  }

  // Outputs d .. d + 16 kChunks - 1 += the block's weights * values.
  template <int kChunks>
  void AddValues(const Range& range, int64_t d, const uint8_t* values, const uint8_t* ahead) {
    __m512 even[kChunks] = {}, odd[kChunks] = {};
    const auto each = [&](int64_t pair, bool take_even, bool take_odd) __attribute__((always_inline)) {
      const int64_t at = 4 * (pair * head_dim_ + d);
#pragma GCC unroll 4
      for (int c = 0; c < kChunks; ++c) {
        __builtin_prefetch(ahead + at + c * kLane, 0, 2);
        const __m512i both = _mm512_loadu_si512(values + at + c * kLane);
        if (take_even) even[c] = _mm512_fmadd_ps(Even(both), _mm512_set1_ps(weights_[pair]), even[c]);
        if (take_odd) odd[c] = _mm512_fmadd_ps(Odd(both), _mm512_set1_ps(weights_[kChain + pair]), odd[c]);
      }
    };
    // Only one half of the first pair and of the last one may be in range.
    int64_t pair = range.begin / 2;
    if (range.begin % 2 != 0) each(pair++, false, true);
    for (; pair < range.end / 2; ++pair) each(pair, true, true);
    if (range.end % 2 != 0 && pair == range.end / 2) each(pair, true, false);
#pragma GCC unroll 4
    for (int c = 0; c < kChunks; ++c) {
      float* to = out_ + d + c * kChain;
      _mm512_storeu_ps(to, _mm512_add_ps(_mm512_loadu_ps(to), _mm512_add_ps(even[c], odd[c])));
    }
  }

  const AttentionArgs& args_;
  const int64_t head_dim_;
  float *query_, *out_;  // [step][even or odd][16], [Dh]
  int32_t first_block_ = 0, end_block_ = 0;
  float reference_ = -__builtin_inff();  // exponentials are relative to this score
  Lanes sums_ = Set(0.0F);
  alignas(64) float weights_[2 * kChain];  // of a block: [even or odd][16]
};
