// SPDX-License-Identifier: Apache-2.0
// Attention of one row's query heads that share one kv head, written once over sixteen lanes. Included by target files
// inside their unnamed namespace, after lanes_<target>.h and exp_inl.h. ops.h and docs/algorithms/order_of_additions.md
// have the order of additions.

// One block of positions: where their keys and values are. Places outside [begin, end) repeat a valid one: they are
// computed along and masked.
struct BlockPlaces {
  const uint8_t* keys[32];
  const uint8_t* values[32];
  int32_t begin, end;  // in the block
};

template <FloatType kType>
inline void FindBlock(const AttentionArgs& args, int32_t block_begin, BlockPlaces& places) {
  constexpr int64_t kBytes = kType == FloatType::kF32 ? 4 : 2;
  const int64_t width = args.head_dim * kBytes;
  const int64_t half = args.num_kv_heads * 32 * width;  // keys, then values
  places.begin = args.first > block_begin ? args.first - block_begin : 0;
  places.end = args.last < block_begin + 31 ? args.last - block_begin + 1 : 32;
  for (int32_t i = places.begin; i < places.end; ++i) {
    const int32_t p = block_begin + i;
    const int32_t slot = p < args.identity_length ? p : args.path[p - args.identity_length];
    const int64_t block = args.blocks[slot / 32];
    places.keys[i] = args.kv + block * 2 * half + (args.kv_head * 32 + slot % 32) * width;
    places.values[i] = places.keys[i] + half;
  }
  for (int32_t i = 0; i < places.begin; ++i) places.keys[i] = places.keys[places.begin];
  for (int32_t i = places.end; i < 32; ++i) places.keys[i] = places.keys[places.begin];
}

// Lane i: the dot product of q and keys[i]; 16 fused chains by index mod 16, tree 8-4-2-1.
template <FloatType kType>
inline Lanes Dots(const float* q, const uint8_t* const* keys, int64_t width) {
  Lanes sums[16];
  for (int64_t batch = 0; batch < 16; batch += kDotBatch) {
    Lanes chains[kDotBatch];
    for (int64_t i = 0; i < kDotBatch; ++i) chains[i] = Set(0.0F);
    int64_t d = 0;
    for (; d + 16 <= width; d += 16) {
      const Lanes x = Load(q + d);
      for (int64_t i = 0; i < kDotBatch; ++i) chains[i] = Fma(x, LoadWide<kType>(keys[batch + i], d), chains[i]);
    }
    if (d < width) {
      const Lanes x = LoadPart(q + d, width - d);
      for (int64_t i = 0; i < kDotBatch; ++i) {
        chains[i] = Fma(x, LoadWidePart<kType>(keys[batch + i], d, width - d), chains[i]);
      }
    }
    for (int64_t i = 0; i < kDotBatch; ++i) sums[batch + i] = chains[i];
  }
  return TreeSums(sums);
}

// Scores of places base .. base + 15; -infinity outside the block's range.
template <FloatType kType>
inline Lanes Scores(const AttentionArgs& args, const float* q, const BlockPlaces& places, int32_t base) {
  alignas(64) constexpr float kIndex[16] = {0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15};
  const Lanes never = Set(-__builtin_inff());
  if (places.end <= base || places.begin >= base + 16) return never;
  const Lanes scores = Mul(Dots<kType>(q, places.keys + base, args.head_dim), Set(args.scale));
  const Lanes index = Load(kIndex);
  const Lanes started = SelectLess(index, Set(static_cast<float>(places.begin - base)), never, scores);
  return SelectLess(index, Set(static_cast<float>(places.end - base)), started, never);
}

// out = out * correction + sum over the block's positions, in order, of weight * value; kChunks * 16 columns at d.
template <FloatType kType, int64_t kChunks>
inline void AddValues(const BlockPlaces& places, const float* weights, Lanes correction, int64_t d, float* out) {
  Lanes sums[kChunks];
  for (int64_t c = 0; c < kChunks; ++c) sums[c] = Set(0.0F);
  for (int32_t i = places.begin; i < places.end; ++i) {
    const Lanes weight = Set(weights[i]);
    for (int64_t c = 0; c < kChunks; ++c) {
      sums[c] = Fma(weight, LoadWide<kType>(places.values[i], d + 16 * c), sums[c]);
    }
  }
  for (int64_t c = 0; c < kChunks; ++c) {
    Store(out + d + 16 * c, Add(Mul(Load(out + d + 16 * c), correction), sums[c]));
  }
}

template <FloatType kType>
inline void AddAllValues(const BlockPlaces& places, const float* weights, float correction, int64_t width, float* out) {
  const Lanes factor = Set(correction);
  int64_t d = 0;
  for (; d + 16 * kValueChunks <= width; d += 16 * kValueChunks) {
    AddValues<kType, kValueChunks>(places, weights, factor, d, out);
  }
  for (; d + 64 <= width; d += 64) AddValues<kType, 4>(places, weights, factor, d, out);
  for (; d + 16 <= width; d += 16) AddValues<kType, 1>(places, weights, factor, d, out);
  if (d == width) return;
  Lanes sum = Set(0.0F);
  for (int32_t i = places.begin; i < places.end; ++i) {
    sum = Fma(Set(weights[i]), LoadWidePart<kType>(places.values[i], d, width - d), sum);
  }
  StorePart(out + d, Add(Mul(LoadPart(out + d, width - d), factor), sum), width - d);
}

constexpr int64_t kMaxGroup = 64;  // ops.cc splits larger groups

struct RunningSoftmax {
  float max[kMaxGroup], sum[kMaxGroup];
};

template <FloatType kType>
inline void AttendBlock(const AttentionArgs& args, const BlockPlaces& places, int64_t g, RunningSoftmax& running) {
  const float* q = args.q + g * args.head_dim;
  const Lanes low = Scores<kType>(args, q, places, 0), high = Scores<kType>(args, q, places, 16);
  const float block_max = TreeMax(Max(low, high));
  const float top = block_max > running.max[g] ? block_max : running.max[g];
  const Lanes low_weights = Exp(Sub(low, Set(top))), high_weights = Exp(Sub(high, Set(top)));
  alignas(64) float weights[32];
  Store(weights, low_weights);
  Store(weights + 16, high_weights);
  float correction = 1.0F;
  if (running.max[g] != top) {
    alignas(64) float lanes[16];
    Store(lanes, Exp(Set(running.max[g] - top)));
    correction = lanes[0];
  }
  running.sum[g] = running.sum[g] * correction + TreeSum(Add(low_weights, high_weights));
  running.max[g] = top;
  AddAllValues<kType>(places, weights, correction, args.head_dim, args.out + g * args.head_dim);
}

// Softmax over blocks of 32 positions at fixed absolute places, ascending, with a running (max, sum, output).
template <FloatType kType>
void Attend(const AttentionArgs& args) {
  RunningSoftmax running;
  for (int64_t g = 0; g < args.group; ++g) {
    running.max[g] = -__builtin_inff();
    running.sum[g] = 0.0F;
  }
  const int64_t columns = args.group * args.head_dim;
  for (int64_t c = 0; c < columns; ++c) args.out[c] = 0.0F;
  BlockPlaces places;
  for (int32_t block_begin = args.first / 32 * 32; block_begin <= args.last; block_begin += 32) {
    FindBlock<kType>(args, block_begin, places);
    for (int64_t g = 0; g < args.group; ++g) AttendBlock<kType>(args, places, g, running);
  }
  for (int64_t g = 0; g < args.group; ++g) {
    const float inverse = 1.0F / running.sum[g];
    for (int64_t d = 0; d < args.head_dim; ++d) args.out[g * args.head_dim + d] *= inverse;
  }
}

void AttentionKernel(const AttentionArgs& args) {
  if (args.type == FloatType::kF32) return Attend<FloatType::kF32>(args);
  if (args.type == FloatType::kBF16) return Attend<FloatType::kBF16>(args);
  Attend<FloatType::kF16>(args);
}
