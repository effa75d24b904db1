// SPDX-License-Identifier: Apache-2.0
// Writing keys and values to their slots. Included by target files inside their unnamed namespace, after
// attention_lanes_<target>.h.

// One head's row as stored, to nearest, ties to even.
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

// Element d of the key goes to [step of d][place][d within the step]. Not as a vector scatter, which GCC would make of
// it and which takes three times as long (AMD Zen 4).
template <typename Word>
inline void ScatterKey(const uint8_t* words, int64_t count, uint8_t* to) {
  for (int64_t i = 0; i < count; ++i) {
    __builtin_memcpy(to + i * 32 * static_cast<int64_t>(sizeof(Word)), words + i * static_cast<int64_t>(sizeof(Word)),
                     sizeof(Word));
    asm volatile("");
  }
}

// One half of the pairs of a row of values.
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

template <FloatType kType>
void StoreRows(const StoreKvArgs& args) {
  constexpr int64_t kBytes = kType == FloatType::kF32 ? 4 : 2;
  constexpr int64_t kPart = 256;  // dimensions converted at once
  const int64_t width = args.kv.head_dim, value_width = ValueWidth(width);
  for (int64_t r = 0; r < args.num_rows; ++r) {
    const RowKv& row = args.rows[r];
    const int64_t block = row.blocks[row.slot / 32] * args.kv.block_bytes, place = row.slot % 32;
    const float* k = args.k + r * args.k_stride;
    const float* v = args.v + r * args.v_stride;
    uint8_t* keys = args.kv.keys + block;
    uint8_t* values = args.kv.values + block;
    if (kType == FloatType::kF32) {
      ScatterKey<uint32_t>(reinterpret_cast<const uint8_t*>(k), width, keys + 4 * place);
      __builtin_memcpy(values + place * value_width * 4, v, static_cast<uint64_t>(width) * 4);
      continue;
    }
    for (int64_t d = 0; d < width; d += kPart) {
      const int64_t count = width - d < kPart ? width - d : kPart;
      uint16_t words[kPart];
      const auto* bytes = reinterpret_cast<const uint8_t*>(words);
      Convert<kType>(k + d, count, words);
      if (kType == FloatType::kBF16) {
        ScatterKey<uint32_t>(bytes, count / 2, keys + d * 32 * kBytes + 4 * place);
      } else {
        ScatterKey<uint16_t>(bytes, count, keys + d * 32 * kBytes + 2 * place);
      }
      Convert<kType>(v + d, count, words);
      if (kType == FloatType::kBF16) {
        MergeValues(words, count, place % 2 != 0, values + (place / 2 * value_width + d) * 4);
      } else {
        __builtin_memcpy(values + (place * value_width + d) * 2, words, static_cast<uint64_t>(count) * 2);
      }
    }
  }
}

void StoreKvKernel(const StoreKvArgs& args) {
  if (args.kv.type == FloatType::kF32) return StoreRows<FloatType::kF32>(args);
  if (args.kv.type == FloatType::kBF16) return StoreRows<FloatType::kBF16>(args);
  StoreRows<FloatType::kF16>(args);
}
