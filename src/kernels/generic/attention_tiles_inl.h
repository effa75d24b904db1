// SPDX-License-Identifier: Apache-2.0
// The two small matrix products of attention: queries by keys, weights by values. Included by target files inside their
// unnamed namespace, after <target>/attention_lanes.h, which has
//   Steps<type>: what one step of a chain reads and does, in kParts parts one after the other; what all lanes multiply
//       by lies in kWords dwords. StoreQuery and StoreWeights put it there. Besides: kTileColumns, HalvesAtOnce,
//       BlocksAtOnce, ChunksAtOnce.

constexpr int64_t kMaxScores = (kTileColumns > kMaxBlocksAtOnce ? kTileColumns : kMaxBlocksAtOnce) * 2 * 32;

// Dwords from a packed query to the next: those of all steps, rounded up to whole vectors, and 4 more, so that one
// step's dwords of eight queries do not lie in one bank of the cache. (7B, 1,000 positions, 64
// rows: 116 to 119 ms with these 4, and 122 to 131 ms without.)
template <FloatType kType>
inline int64_t QueryStride(int64_t head_dim) {
  return ValueWidth(head_dim) / Steps<kType>::kDims * Steps<kType>::kWords + 4;
}

// scores[b][c][i], for kHalves * 16 positions i of each block: one chain over the steps, in order. The unrolling is
// not a hint: GCC 12 keeps arrays of registers in memory around loops that it has not unrolled early.
template <FloatType kType, int64_t kColumns, int64_t kBlocks, int64_t kHalves>
inline void ScoreTile(const uint32_t* q, int64_t q_stride, int64_t steps, const uint8_t* const* keys,
                      const uint8_t* const* ahead, int64_t half, float* scores) {
  using Step = Steps<kType>;
  constexpr int64_t kLaneBytes = 16 * Step::kLaneBytes, kUnits = kBlocks * kHalves;
  Lanes sums[kColumns * kUnits];
#pragma GCC unroll 16
  for (int64_t i = 0; i < kColumns * kUnits; ++i) sums[i] = Set(0.0F);
  for (int64_t s = 0; s < steps; ++s) {
#pragma GCC unroll 2
    for (int64_t part = 0; part < Step::kParts; ++part) {
      typename Step::Wide wide[kUnits];
#pragma GCC unroll 8
      for (int64_t u = 0; u < kUnits; ++u) {
        const int64_t at = (2 * s + half + u % kHalves) * kLaneBytes;
        wide[u] = Step::Load(keys[u / kHalves] + at, part);
        if (part == 0) __builtin_prefetch(ahead[u / kHalves] + at, 0, 2);
      }
      const uint32_t* x = q + s * Step::kWords;
#pragma GCC unroll 16
      for (int64_t i = 0; i < kColumns * kUnits; ++i) {
        sums[i] = Step::MulAdd(wide[i % kUnits], Step::Broadcast(x + i / kUnits * q_stride, part), sums[i]);
      }
    }
  }
#pragma GCC unroll 16
  for (int64_t i = 0; i < kColumns * kUnits; ++i) {
    const int64_t c = i / kUnits, b = i % kUnits / kHalves, h = i % kHalves;
    Store(scores + (b * kColumns + c) * 32 + (half + h) * 16, sums[i]);
  }
}

// scores[b][c][32] against `count` blocks, kBlocks at once and then the rest.
template <FloatType kType, int64_t kColumns, int32_t kBlocks>
inline void ScoreByBlocks(const uint32_t* q, int64_t head_dim, int32_t count, const uint8_t* const* keys,
                          const uint8_t* const* ahead, float* scores) {
  constexpr int64_t kHalves = HalvesAtOnce(kColumns);
  const int64_t steps = head_dim / Steps<kType>::kDims, stride = QueryStride<kType>(head_dim);
  int32_t b = 0;
  for (; b + kBlocks <= count; b += kBlocks) {
    for (int64_t half = 0; half < 2; half += kHalves) {
      ScoreTile<kType, kColumns, kBlocks, kHalves>(q, stride, steps, keys + b, ahead + b, half,
                                                   scores + b * kColumns * 32);
    }
  }
  if constexpr (kBlocks > 1) {
    ScoreByBlocks<kType, kColumns, kBlocks - 1>(q, head_dim, count - b, keys + b, ahead + b,
                                                scores + b * kColumns * 32);
  }
}

// The same for `columns` queries, packed [columns][QueryStride].
template <FloatType kType, int64_t kColumns>
inline void ScoreBlocks(int64_t columns, const uint32_t* q, int64_t head_dim, int32_t count, const uint8_t* const* keys,
                        const uint8_t* const* ahead, float* scores) {
  if constexpr (kColumns > 1) {
    if (columns < kColumns) {
      return ScoreBlocks<kType, kColumns - 1>(columns, q, head_dim, count, keys, ahead, scores);
    }
  }
  ScoreByBlocks<kType, kColumns, BlocksAtOnce(kColumns)>(q, head_dim, count, keys, ahead, scores);
}

// Steps of a block that only some columns have, or that columns find in different places.
struct OwnSteps {
  struct Column {
    int32_t begin, end;
    const Place* places;  // [step]
  };
  int32_t begin, end;  // of any column
  Column columns[kTileColumns];
};

// Where the values of a block are. Steps begin .. end - 1 (positions, or pairs of them) lie at base + step * stride for
// all columns. Steps before and after these are columns' own ones, if there are any.
struct ValueRows {
  const uint8_t* base;
  const uint8_t* ahead;  // is prefetched at the same places as base is read
  int64_t stride;
  int32_t begin, end;
  const OwnSteps* own;  // or null
};

template <FloatType kType>
inline ValueRows InBlock(const uint8_t* base, int64_t width) {
  return {base, base, width * Steps<kType>::kLaneBytes, 0, 32 / Steps<kType>::kPositions, nullptr};
}

// sums[c][16 * kChunks] += weights * values of the columns' own steps begin .. end - 1.
template <FloatType kType, int64_t kColumns, int64_t kChunks>
inline void AddOwn(const OwnSteps& own, int32_t begin, int32_t end, int64_t d, const uint32_t* weights, Lanes* sums) {
  using Step = Steps<kType>;
  for (int32_t s = begin; s < end; ++s) {
    typename Step::Wide wide[Step::kParts][kChunks] = {};
    const Place* loaded = nullptr;
#pragma GCC unroll 8
    for (int64_t c = 0; c < kColumns; ++c) {
      const OwnSteps::Column& column = own.columns[c];
      if (s < column.begin || s >= column.end) continue;
      if (loaded != column.places) {
        loaded = column.places;
        const Place& place = loaded[s];
#pragma GCC unroll 8
        for (int64_t k = 0; k < kChunks; ++k) {
          const int64_t offset = (d + 16 * k) * Step::kLaneBytes;
          alignas(64) uint32_t merged[16];
          if (kType == FloatType::kBF16 && place.merged()) MergePairs(place, offset, merged);
          const bool as_it_lies = kType != FloatType::kBF16 || !place.merged();
          const uint8_t* from = as_it_lies ? place.first + offset : reinterpret_cast<const uint8_t*>(merged);
#pragma GCC unroll 2
          for (int64_t part = 0; part < Step::kParts; ++part) wide[part][k] = Step::Load(from, part);
        }
      }
      const uint32_t* weight = weights + c * 32 + s * Step::kWords;
#pragma GCC unroll 2
      for (int64_t part = 0; part < Step::kParts; ++part) {
#pragma GCC unroll 8
        for (int64_t k = 0; k < kChunks; ++k) {
          Lanes& sum = sums[c * kChunks + k];
          sum = Step::MulAdd(wide[part][k], Step::Broadcast(weight, part), sum);
        }
      }
    }
  }
}

// out[c][d .. d + 16 * kChunks - 1] = out * factors[c] + one chain over the steps, in order; factors null: all 1.
template <FloatType kType, int64_t kColumns, int64_t kChunks, bool kOwn>
inline void ValueTile(const ValueRows& rows, int64_t d, int64_t width, const uint32_t* weights, const float* factors,
                      float* out) {
  using Step = Steps<kType>;
  constexpr int64_t kLaneBytes = 16 * Step::kLaneBytes;
  Lanes sums[kColumns * kChunks];
#pragma GCC unroll 16
  for (int64_t i = 0; i < kColumns * kChunks; ++i) sums[i] = Set(0.0F);
  if constexpr (kOwn) AddOwn<kType, kColumns, kChunks>(*rows.own, rows.own->begin, rows.begin, d, weights, sums);
  for (int64_t s = rows.begin; s < rows.end; ++s) {
    const uint8_t* from = rows.base + s * rows.stride + d * Step::kLaneBytes;
    const uint8_t* ahead = rows.ahead + s * rows.stride + d * Step::kLaneBytes;
#pragma GCC unroll 2
    for (int64_t part = 0; part < Step::kParts; ++part) {
      typename Step::Wide wide[kChunks];
#pragma GCC unroll 8
      for (int64_t k = 0; k < kChunks; ++k) {
        wide[k] = Step::Load(from + k * kLaneBytes, part);
        if (part == 0) __builtin_prefetch(ahead + k * kLaneBytes, 0, 2);
      }
      const uint32_t* weight = weights + s * Step::kWords;
#pragma GCC unroll 16
      for (int64_t i = 0; i < kColumns * kChunks; ++i) {
        sums[i] = Step::MulAdd(wide[i % kChunks], Step::Broadcast(weight + i / kChunks * 32, part), sums[i]);
      }
    }
  }
  if constexpr (kOwn) AddOwn<kType, kColumns, kChunks>(*rows.own, rows.end, rows.own->end, d, weights, sums);
  if (factors != nullptr) {
#pragma GCC unroll 16
    for (int64_t i = 0; i < kColumns * kChunks; ++i) {
      float* to = out + i / kChunks * width + d + 16 * (i % kChunks);
      Store(to, Add(Mul(Load(to), Set(factors[i / kChunks])), sums[i]));
    }
    return;
  }
#pragma GCC unroll 16
  for (int64_t i = 0; i < kColumns * kChunks; ++i) {
    float* to = out + i / kChunks * width + d + 16 * (i % kChunks);
    Store(to, Add(Load(to), sums[i]));
  }
}

template <FloatType kType, int64_t kColumns, int64_t kChunks>
inline int64_t ValueTiles(const ValueRows& rows, int64_t d, int64_t width, const uint32_t* weights,
                          const float* factors, float* out) {
  if constexpr (kChunks <= ChunksAtOnce(kColumns)) {
    for (; d + 16 * kChunks <= width; d += 16 * kChunks) {
      if (rows.own != nullptr) {
        ValueTile<kType, kColumns, kChunks, true>(rows, d, width, weights, factors, out);
      } else {
        ValueTile<kType, kColumns, kChunks, false>(rows, d, width, weights, factors, out);
      }
    }
  }
  return d;
}

// out[c][width] of `columns` columns, weights [c][32].
template <FloatType kType, int64_t kColumns>
inline void AddTile(int64_t columns, const ValueRows& rows, int64_t width, const uint32_t* weights,
                    const float* factors, float* out) {
  if constexpr (kColumns > 1) {
    if (columns < kColumns) return AddTile<kType, kColumns - 1>(columns, rows, width, weights, factors, out);
  }
  int64_t d = ValueTiles<kType, kColumns, 8>(rows, 0, width, weights, factors, out);
  d = ValueTiles<kType, kColumns, 4>(rows, d, width, weights, factors, out);
  d = ValueTiles<kType, kColumns, 2>(rows, d, width, weights, factors, out);
  ValueTiles<kType, kColumns, 1>(rows, d, width, weights, factors, out);
}
