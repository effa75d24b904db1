// SPDX-License-Identifier: Apache-2.0
// Writing keys and values to their slots. Included by target files inside their unnamed namespace, after
// <target>/attention_lanes.h.

constexpr int64_t kConverted = 256;  // dimensions that are converted at a time

// Rounds one head's row to the stored type, to nearest, ties to even.
template <FloatType kType>
inline void Convert(const float* from, int64_t count, uint16_t* to) {
  int64_t i = 0;
  for (; i < count; i += 16) {
    const Lanes x = count - i < 16 ? LoadPart(from + i, count - i) : Load(from + i);
    if (kType == FloatType::kBF16) {
      StoreBf16(to + i, RoundBf16(x));
    } else {
      StoreF16(to + i, x);
    }
  }
}

// Stores element d of the key to [step of d][place][d within the step]. The stores must not become a vector scatter, as
// GCC would make of them: that takes three times as long (AMD Zen 4).
template <typename Word>
inline void ScatterKey(const uint8_t* words, int64_t count, uint8_t* to) {
  for (int64_t i = 0; i < count; ++i) {
    __builtin_memcpy(to + i * 32 * static_cast<int64_t>(sizeof(Word)), words + i * static_cast<int64_t>(sizeof(Word)),
                     sizeof(Word));
    asm volatile("");
  }
}

// Stores a row of values into one half of their pairs.
inline void MergeValues(const uint16_t* words, int64_t count, bool odd, uint8_t* pairs) {
  const uint32_t kept = odd ? 0xffffU : 0xffff0000U;
  const int shift = odd ? 16 : 0;
  for (int64_t i = 0; i < count; ++i) {
    uint32_t pair;
    __builtin_memcpy(&pair, pairs + 4 * i, 4);
    pair = (pair & kept) | (static_cast<uint32_t>(words[i]) << shift);
    __builtin_memcpy(pairs + 4 * i, &pair, 4);
  }
}

// Where a row of a kv head goes.
struct RowPlace {
  uint8_t *keys, *values;  // of its block
  int64_t place;
};
inline RowPlace PlaceOf(const StoreKvArgs& args, int64_t r) {
  const RowKv& row = args.rows[r];
  const int64_t block = row.blocks[row.slot / kBlockPositions] * args.kv.block_bytes;
  return {args.kv.keys + block, args.kv.values + block, row.slot % kBlockPositions};
}

template <FloatType kType>
void StoreKey(const float* k, int64_t head_dim, const RowPlace& to) {
  if (kType == FloatType::kF32) {
    return ScatterKey<uint32_t>(reinterpret_cast<const uint8_t*>(k), head_dim, to.keys + 4 * to.place);
  }
  for (int64_t d = 0; d < head_dim; d += kConverted) {
    const int64_t count = head_dim - d < kConverted ? head_dim - d : kConverted;
    uint16_t words[kConverted];
    const auto* bytes = reinterpret_cast<const uint8_t*>(words);
    Convert<kType>(k + d, count, words);
    if (kType == FloatType::kBF16) {
      ScatterKey<uint32_t>(bytes, count / 2, to.keys + d * kBlockPositions * 2 + 4 * to.place);
    } else {
      ScatterKey<uint16_t>(bytes, count, to.keys + d * kBlockPositions * 2 + 2 * to.place);
    }
  }
}

template <FloatType kType>
void StoreValue(const float* v, int64_t head_dim, const RowPlace& to) {
  const int64_t width = ValueWidth(head_dim);
  if (kType == FloatType::kF32) {
    __builtin_memcpy(to.values + to.place * width * 4, v, static_cast<uint64_t>(head_dim) * 4);
    return;
  }
  for (int64_t d = 0; d < head_dim; d += kConverted) {
    const int64_t count = head_dim - d < kConverted ? head_dim - d : kConverted;
    uint16_t words[kConverted];
    Convert<kType>(v + d, count, words);
    if (kType == FloatType::kBF16) {
      MergeValues(words, count, to.place % 2 != 0, to.values + (to.place / 2 * width + d) * 4);
    } else {
      __builtin_memcpy(to.values + (to.place * width + d) * 2, words, static_cast<uint64_t>(count) * 2);
    }
  }
}

// How rows of bf16 that lie side by side in a block are written together: up to kRows keys, and two values.
struct RowByRow {
  static constexpr int64_t kRows = 1;
};

// How many of the rows from r on, at most `most`, lie side by side in one block.
inline int64_t RowsSideBySide(const StoreKvArgs& args, int64_t r, int64_t most) {
  const RowKv& first = args.rows[r];
  int64_t rows = 1;
  while (rows < most && r + rows < args.num_rows && args.rows[r + rows].blocks == first.blocks &&
         args.rows[r + rows].slot == first.slot + rows && (first.slot + rows) % kBlockPositions != 0) {
    ++rows;
  }
  return rows;
}

template <typename Together>
void StoreSideBySide(const StoreKvArgs& args, int64_t r, int64_t rows) {
  const int64_t head_dim = args.kv.head_dim, pair_bytes = ValueWidth(head_dim) * 4;
  RowPlace to = PlaceOf(args, r);
  Together::StoreKeys(args.k + r * args.k_stride, args.k_stride, rows, head_dim, to.keys + 4 * to.place);
  for (const int64_t end = r + rows; r < end;) {
    const float* v = args.v + r * args.v_stride;
    const bool two = to.place % 2 == 0 && r + 1 < end;
    if (two) {
      Together::StoreValues(v, v + args.v_stride, head_dim, to.values + to.place / 2 * pair_bytes);
    } else {
      StoreValue<FloatType::kBF16>(v, head_dim, to);
    }
    r += two ? 2 : 1;
    to.place += two ? 2 : 1;
  }
}

template <FloatType kType, typename Together>
void StoreRows(const StoreKvArgs& args) {
  constexpr bool kTogether = kType == FloatType::kBF16 && Together::kRows > 1;
  int64_t rows = 1;
  for (int64_t r = 0; r < args.num_rows; r += rows) {
    if constexpr (kTogether) rows = RowsSideBySide(args, r, Together::kRows);
    if (rows == 1) {
      const RowPlace to = PlaceOf(args, r);
      StoreKey<kType>(args.k + r * args.k_stride, args.kv.head_dim, to);
      StoreValue<kType>(args.v + r * args.v_stride, args.kv.head_dim, to);
    } else if constexpr (kTogether) {
      StoreSideBySide<Together>(args, r, rows);
    }
  }
}

template <typename Together>
void StoreKvKernel(const StoreKvArgs& args) {
  if (args.kv.type == FloatType::kF32) return StoreRows<FloatType::kF32, Together>(args);
  if (args.kv.type == FloatType::kBF16) return StoreRows<FloatType::kBF16, Together>(args);
  StoreRows<FloatType::kF16, Together>(args);
}
