// SPDX-License-Identifier: Apache-2.0
// Attention of rows of one sequence over one kv head, written once over sixteen lanes. Included by target files inside
// their unnamed namespace, after lanes_<target>.h, exp_inl.h, attention_lanes_<target>.h, attention_weigh_inl.h and
// attention_tiles_inl.h.
// docs/algorithms/order_of_additions.md has the order of additions. Tiles of columns and batches of blocks share
// reads, never sums: each (column, position) score and each (column, dimension) output is its own chain.

constexpr int64_t kMaxTiles = kAttentionColumns;

// Columns that go through the kernels together, and which positions all or any of them attend to in place.
struct Tile {
  int64_t begin, columns;
  const uint32_t* q;  // [steps][columns]
  int32_t first_min, first_max, end_min, end_max;
};

struct Item {
  explicit Item(const AttentionArgs& a) : args(a), value_width(ValueWidth(a.kv.head_dim)) {}

  const AttentionArgs& args;
  const int64_t value_width;
  int64_t num_tiles;
  Tile tiles[kMaxTiles];
  float* out;           // [columns][Dv]
  uint8_t* pairs;       // 16 merged pairs of value rows
  int32_t pair_of[32];  // slots of each, -1 = neither
  float* tail_scores;   // [tail block][columns of a tile][32]
  float max[kAttentionColumns];
  alignas(64) float sums[kAttentionColumns * 16];
  // Of one block and the columns of a tile, or of one row in it.
  alignas(64) uint32_t weights[kTileColumns * 32];
  alignas(64) float factors[16];

  const AttentionRow& row_of(int64_t column) const { return args.rows[column / args.group]; }
  // One past the last column of `column`'s row, within `end`.
  int64_t row_end(int64_t column, int64_t end) const {
    const int64_t next = (column / args.group + 1) * args.group;
    return next < end ? next : end;
  }
  const uint8_t* keys(int32_t block) const { return KeysOf(args, block); }
  const uint8_t* values(int32_t block) const { return ValuesOf(args, block); }
};

// [columns][Dh] to [steps][columns] dwords: one f32, or two bf16.
template <FloatType kType>
inline void PackQueries(const AttentionArgs& args, const Tile& tile, uint32_t* packed) {
  for (int64_t c = 0; c < tile.columns; ++c) {
    const int64_t column = tile.begin + c;
    const float* q = args.q + column / args.group * args.q_stride + column % args.group * args.kv.head_dim;
    if (kType != FloatType::kBF16) {
      for (int64_t d = 0; d < args.kv.head_dim; ++d) {
        __builtin_memcpy(packed + d * tile.columns + c, q + d, 4);
      }
      continue;
    }
    for (int64_t d = 0; d < args.kv.head_dim; d += 16) {
      const int64_t n = args.kv.head_dim - d < 16 ? args.kv.head_dim - d : 16;
      uint16_t words[16];
      StoreBf16(words, RoundBf16(n == 16 ? Load(q + d) : LoadPart(q + d, n)));
      for (int64_t i = 0; i < n; i += 2) {
        __builtin_memcpy(packed + (d + i) / 2 * tile.columns + c, words + i, 4);
      }
    }
  }
}

template <FloatType kType>
inline void Begin(Item& item) {
  const AttentionArgs& args = item.args;
  const int64_t columns = args.group * args.num_rows, width = item.value_width;
  auto* q = reinterpret_cast<uint32_t*>(args.scratch);
  item.out = args.scratch + columns * width;
  item.pairs = reinterpret_cast<uint8_t*>(item.out + columns * width);
  item.tail_scores = item.out + (columns + 16) * width;
  for (int64_t i = 0; i < columns * width; i += 16) Store(item.out + i, Set(0.0F));
  for (int64_t c = 0; c < columns; ++c) {
    item.max[c] = -__builtin_inff();
    Store(item.sums + 16 * c, Set(0.0F));
  }
  for (int32_t& slot : item.pair_of) slot = -1;
  item.num_tiles = (columns + kTileColumns - 1) / kTileColumns;
  for (int64_t t = 0; t < item.num_tiles; ++t) {
    Tile& tile = item.tiles[t];
    tile.begin = columns * t / item.num_tiles;
    tile.columns = columns * (t + 1) / item.num_tiles - tile.begin;
    tile.q = q + tile.begin * width;
    PackQueries<kType>(args, tile, q + tile.begin * width);
    tile.first_min = tile.end_min = 0x7fffffff;
    tile.first_max = tile.end_max = 0;
    for (int64_t c = tile.begin; c < tile.begin + tile.columns; c = item.row_end(c, columns)) {
      const AttentionRow& row = item.row_of(c);
      if (row.first < tile.first_min) tile.first_min = row.first;
      if (row.first > tile.first_max) tile.first_max = row.first;
      if (row.in_place_end < tile.end_min) tile.end_min = row.in_place_end;
      if (row.in_place_end > tile.end_max) tile.end_max = row.in_place_end;
    }
  }
}

// Scores [..][32] of `count` columns from `column` on and one block to running sums, item.weights and item.factors.
template <FloatType kType>
inline void WeighColumns(Item& item, int64_t column, int64_t count, const float* scores, int32_t begin, int32_t end) {
  Weigh<kType>(item.args.scale, scores, count, begin, end, item.max + column, item.sums + 16 * column, item.factors,
               item.weights);
}

// out of columns begin .. begin + count - 1: out * factor + the block's weighted values.
template <FloatType kType>
inline void AddValues(Item& item, int64_t begin, int64_t count, const ValueRows& rows) {
  AddTile<kType, kTileColumns>(count, rows, item.value_width, item.weights, item.factors,
                               item.out + begin * item.value_width);
}

// Where the values of positions begin .. end - 1 of a block are; slot_at(i) is the slot of position i of the block.
// Pairs whose halves are not neighbours in one pair of slots, or of which one half is out of range, are put together
// in scratch; neighbouring rows of a tree mostly need the same ones.
template <FloatType kType, typename SlotAt>
inline void GatherValues(Item& item, int32_t begin, int32_t end, const SlotAt& slot_at, const uint8_t** places) {
  const int64_t width = item.value_width;
  if (kType != FloatType::kBF16) {
    const int64_t bytes = width * (kType == FloatType::kF32 ? 4 : 2);
    for (int32_t i = begin; i < end; ++i) {
      const int32_t slot = slot_at(i);
      places[i] = item.values(slot / 32) + slot % 32 * bytes;
    }
    return;
  }
  for (int32_t j = begin / 2; j < (end + 1) / 2; ++j) {
    const int32_t even = 2 * j >= begin ? slot_at(2 * j) : -1, odd = 2 * j + 1 < end ? slot_at(2 * j + 1) : -1;
    if (even >= 0 && even % 2 == 0 && odd == even + 1) {
      places[j] = item.values(even / 32) + even % 32 / 2 * 4 * width;
      continue;
    }
    places[j] = item.pairs + j * 4 * width;
    if (item.pair_of[2 * j] == even && item.pair_of[2 * j + 1] == odd) continue;
    item.pair_of[2 * j] = even;
    item.pair_of[2 * j + 1] = odd;
    MergePairs(item.args, even, odd, item.pairs + j * 4 * width);
  }
}

// One block of one tile, when some columns attend to a part of it.
template <FloatType kType>
inline void AddPartOfBlock(Item& item, const Tile& tile, int32_t block, const float* scores) {
  const int32_t block_begin = 32 * block;
  int64_t next = 0;
  for (int64_t c = tile.begin; c < tile.begin + tile.columns; c = next) {
    next = item.row_end(c, tile.begin + tile.columns);
    const AttentionRow& row = item.row_of(c);
    const int32_t begin = row.first > block_begin ? row.first - block_begin : 0;
    const int32_t end = row.in_place_end < block_begin + 32 ? row.in_place_end - block_begin : 32;
    if (begin >= end) continue;
    WeighColumns<kType>(item, c, next - c, scores + (c - tile.begin) * 32, begin, end);
    const uint8_t* places[32];
    ValueRows rows = InBlock<kType>(item.values(block), item.value_width);
    rows.begin = begin / Steps<kType>::kPositions;
    rows.end = (end + Steps<kType>::kPositions - 1) / Steps<kType>::kPositions;
    if (kType == FloatType::kBF16 && (begin % 2 != 0 || end % 2 != 0)) {
      GatherValues<kType>(
          item, begin, end, [&](int32_t i) { return block_begin + i; }, places);
      rows.places = places;
    }
    AddValues<kType>(item, c, next - c, rows);
  }
}

// Positions that lie in the slots of their number, whole blocks of them for all columns of a tile at once. `ahead` is a
// block whose keys and values will be wanted soon.
template <FloatType kType>
inline void AddBlock(Item& item, const Tile& tile, int32_t block, const float* scores, const uint8_t* ahead) {
  if (32 * block < tile.first_max || 32 * block + 32 > tile.end_min) {
    AddPartOfBlock<kType>(item, tile, block, scores);
    return;
  }
  WeighColumns<kType>(item, tile.begin, tile.columns, scores, 0, 32);
  ValueRows rows = InBlock<kType>(item.values(block), item.value_width);
  rows.ahead = ahead;
  AddValues<kType>(item, tile.begin, tile.columns, rows);
}

template <FloatType kType>
inline void AddBlocksInPlace(Item& item) {
  const AttentionArgs& args = item.args;
  int32_t first = 0x7fffffff, end = 0;
  for (int64_t t = 0; t < item.num_tiles; ++t) {
    if (item.tiles[t].first_min < first) first = item.tiles[t].first_min;
    if (item.tiles[t].end_max > end) end = item.tiles[t].end_max;
  }
  // A single tile of few columns scores several blocks at once: a chain of dependent sums per register is too slow.
  const int32_t batch = item.num_tiles == 1 ? BlocksAtOnce(item.tiles[0].columns) : 1;
  const int32_t first_block = first / 32, end_block = (end + 31) / 32;
  for (int32_t block = first_block; block < end_block; block += batch) {
    const int32_t count = end_block - block < batch ? end_block - block : batch;
    const uint8_t* keys[kMaxBlocksAtOnce];
    const uint8_t* keys_ahead[kMaxBlocksAtOnce];
    const uint8_t* values_ahead[kMaxBlocksAtOnce];
    for (int32_t b = 0; b < count; ++b) {
      keys[b] = item.keys(block + b);
      // The next blocks, and behind the last ones the first ones of the next head.
      const bool last = block + b + batch >= end_block;
      const int32_t next = last ? first_block + b : block + b + batch;
      const int64_t skip = last ? args.next_head_bytes : 0;
      keys_ahead[b] = item.keys(next) + skip;
      values_ahead[b] = item.values(next) + skip;
    }
    for (int64_t t = 0; t < item.num_tiles; ++t) {
      const Tile& tile = item.tiles[t];
      if (32 * (block + count) <= tile.first_min || 32 * block >= tile.end_max) continue;
      alignas(64) float scores[kMaxScores];
      ScoreBlocks<kType, kTileColumns>(tile.columns, tile.q, args.kv.head_dim, count, keys, t == 0 ? keys_ahead : keys,
                                       scores);
      for (int32_t b = 0; b < count; ++b) {
        AddBlock<kType>(item, tile, block + b, scores + b * tile.columns * 32,
                        t == 0 ? values_ahead[b] : item.values(block + b));
      }
    }
  }
}

// Blocks in which a row has positions in other slots. A score is a dot product of its own, so all columns are scored
// against the slots where they lie, and each row takes its own in the order of its positions; its values are gathered.
template <FloatType kType>
inline void AddTail(Item& item, const Tile& tile, int64_t column, int64_t column_end) {
  const AttentionRow& row = item.row_of(column);
  const uint8_t* places[32];
  const int32_t from = row.first > row.in_place_end ? row.first : row.in_place_end;
  for (int32_t block_begin = from / 32 * 32; block_begin <= row.last; block_begin += 32) {
    const int32_t begin = row.first > block_begin ? row.first - block_begin : 0;
    const int32_t end = row.last < block_begin + 31 ? row.last - block_begin + 1 : 32;
    const int32_t* lanes = row.lanes + (block_begin - row.in_place_end);
    const int32_t* slots = row.slots + (block_begin - row.in_place_end);
    alignas(64) float scores[kTileColumns * 32] = {};
    for (int64_t c = column; c < column_end; ++c) {
      for (int32_t i = begin; i < end; ++i) {
        scores[(c - column) * 32 + i] =
            item.tail_scores[(lanes[i] / 32 * tile.columns + c - tile.begin) * 32 + lanes[i] % 32];
      }
    }
    WeighColumns<kType>(item, column, column_end - column, scores, begin, end);
    GatherValues<kType>(
        item, begin, end, [&](int32_t i) { return slots[i]; }, places);
    ValueRows rows{};
    rows.places = places;
    rows.begin = begin / Steps<kType>::kPositions;
    rows.end = (end + Steps<kType>::kPositions - 1) / Steps<kType>::kPositions;
    AddValues<kType>(item, column, column_end - column, rows);
  }
}

template <FloatType kType>
inline void AddTails(Item& item) {
  const AttentionArgs& args = item.args;
  for (int64_t t = 0; t < item.num_tiles; ++t) {
    const Tile& tile = item.tiles[t];
    bool scored = false;
    int64_t next = 0;
    for (int64_t c = tile.begin; c < tile.begin + tile.columns; c = next) {
      next = item.row_end(c, tile.begin + tile.columns);
      if (item.row_of(c).in_place_end > item.row_of(c).last) continue;
      for (int32_t b = 0; b < args.num_tail_blocks && !scored; b += kMaxBlocksAtOnce) {
        const int32_t left = args.num_tail_blocks - b, count = left < kMaxBlocksAtOnce ? left : kMaxBlocksAtOnce;
        const uint8_t* keys[kMaxBlocksAtOnce];
        for (int32_t i = 0; i < count; ++i) keys[i] = item.keys(args.tail_blocks[b + i]);
        ScoreBlocks<kType, kTileColumns>(tile.columns, tile.q, args.kv.head_dim, count, keys, keys,
                                         item.tail_scores + b * tile.columns * 32);
      }
      scored = true;
      AddTail<kType>(item, tile, c, next);
    }
  }
}

template <FloatType kType>
void Attend(const AttentionArgs& args) {
  Item item(args);
  Begin<kType>(item);
  AddBlocksInPlace<kType>(item);
  AddTails<kType>(item);
  for (int64_t c = 0; c < args.group * args.num_rows; ++c) {
    const Lanes inverse = Set(1.0F / TreeSum(Load(item.sums + 16 * c)));
    const float* from = item.out + c * item.value_width;
    float* to = args.out + c / args.group * args.out_stride + c % args.group * args.kv.head_dim;
    int64_t d = 0;
    for (; d + 16 <= args.kv.head_dim; d += 16) Store(to + d, Mul(Load(from + d), inverse));
    if (d < args.kv.head_dim) StorePart(to + d, Mul(Load(from + d), inverse), args.kv.head_dim - d);
  }
}

void AttentionKernel(const AttentionArgs& args) {
  if (args.kv.type == FloatType::kF32) return Attend<FloatType::kF32>(args);
  if (args.kv.type == FloatType::kBF16) return Attend<FloatType::kBF16>(args);
  Attend<FloatType::kF16>(args);
}
