// SPDX-License-Identifier: Apache-2.0
// Attention of rows of one sequence over one kv head, written once over sixteen lanes. Included by target files inside
// their unnamed namespace, after <target>/lanes.h, generic/exp_inl.h, <target>/attention_lanes.h,
// generic/attention_weigh_inl.h and generic/attention_tiles_inl.h. docs/algorithms/order_of_additions.md has the order
// of additions. Tiles of columns and batches of blocks share reads, never sums: each (column, position) score and each
// (column, dimension) output is its own chain.

constexpr int64_t kMaxTiles = (kAttentionColumns + kTileColumns - 1) / kTileColumns;

// Columns that go through the kernels together; the first position of the rows, the largest of their first positions,
// the least end of those in place, the last position.
struct Tile {
  int64_t begin, columns;
  const uint32_t* q;  // as PackQueries makes them
  int32_t first_min, first_max, end_min, last_max;
};

struct Item {
  explicit Item(const AttentionArgs& a) : args(a), value_width(ValueWidth(a.kv.head_dim)) {}

  const AttentionArgs& args;
  const int64_t value_width;
  int64_t num_tiles;
  Tile tiles[kMaxTiles];
  float* out;          // [columns][Dv]
  float* tail_scores;  // [tail block][columns of a tile][32]
  float references[kAttentionColumns];
  alignas(64) float sums[kAttentionColumns * 16];
  // Of the block and the columns of a tile that are weighed.
  alignas(64) uint32_t weights[kTileColumns * 32];
  alignas(64) float factors[16];
  bool risen;  // whether one of `factors` is not 1

  const AttentionRow& row_of(int64_t column) const { return args.rows[column / args.group]; }
  const uint8_t* keys(int32_t block) const { return KeysOf(args, block); }
  const uint8_t* values(int32_t block) const { return ValuesOf(args, block); }
};

// Packs queries as [columns][QueryStride] dwords, each one f32 or two bf16. (Ordered by steps and then columns, as they
// are read, packing went 4 bytes at a time: a sixth of the time for four rows of 64 dimensions and 20 positions.)
template <FloatType kType>
inline void PackQueries(const AttentionArgs& args, const Tile& tile, uint32_t* packed) {
  const int64_t stride = QueryStride<kType>(args.kv.head_dim);
  for (int64_t c = 0; c < tile.columns; ++c, packed += stride) {
    const int64_t column = tile.begin + c;
    const float* q = args.q + column / args.group * args.q_stride + column % args.group * args.kv.head_dim;
    for (int64_t d = 0; d < args.kv.head_dim; d += 16) {
      const int64_t n = args.kv.head_dim - d < 16 ? args.kv.head_dim - d : 16;
      const Lanes x = n == 16 ? Load(q + d) : LoadPart(q + d, n);
      StoreQuery<kType>(packed, d, x);
    }
  }
}

template <FloatType kType>
inline void Begin(Item& item) {
  const AttentionArgs& args = item.args;
  const int64_t columns = args.group * args.num_rows, width = item.value_width;
  auto* q = reinterpret_cast<uint32_t*>(args.scratch);
  item.out = args.scratch + columns * (width + kQueryPad);
  item.tail_scores = item.out + columns * width;
  for (int64_t i = 0; i < columns * width; i += 16) Store(item.out + i, Set(0.0F));
  for (int64_t c = 0; c < columns; ++c) {
    item.references[c] = -__builtin_inff();
    Store(item.sums + 16 * c, Set(0.0F));
  }
  item.num_tiles = (columns + kTileColumns - 1) / kTileColumns;
  for (int64_t t = 0; t < item.num_tiles; ++t) {
    Tile& tile = item.tiles[t];
    tile.begin = columns * t / item.num_tiles;
    tile.columns = columns * (t + 1) / item.num_tiles - tile.begin;
    tile.q = q + tile.begin * QueryStride<kType>(args.kv.head_dim);
    PackQueries<kType>(args, tile, q + tile.begin * QueryStride<kType>(args.kv.head_dim));
    tile.first_min = tile.end_min = 0x7fffffff;
    tile.first_max = tile.last_max = 0;
    for (int64_t c = tile.begin; c < tile.begin + tile.columns; ++c) {
      const AttentionRow& row = item.row_of(c);
      if (row.first < tile.first_min) tile.first_min = row.first;
      if (row.first > tile.first_max) tile.first_max = row.first;
      if (row.in_place_end < tile.end_min) tile.end_min = row.in_place_end;
      if (row.last > tile.last_max) tile.last_max = row.last;
    }
  }
}

// Turns the scores [..][32] of `count` columns, from `column` on, and one block into running sums, item.weights and
// item.factors.
template <FloatType kType>
inline void WeighColumns(Item& item, int64_t column, int64_t count, const float* scores, const Range* ranges) {
  item.risen = Weigh<kType>(item.args.scale, scores, count, ranges, item.references + column, item.sums + 16 * column,
                            item.factors, item.weights);
}

// For columns begin .. begin + count - 1: out = out * factor + the block's weighted values.
template <FloatType kType>
inline void AddValues(Item& item, int64_t begin, int64_t count, const ValueRows& rows) {
  AddTile<kType, kTileColumns>(count, rows, item.value_width, item.weights, item.risen ? item.factors : nullptr,
                               item.out + begin * item.value_width);
}

// Adds one block to which all columns of a tile attend as a whole, in place. `ahead`: values that will be needed soon.
template <FloatType kType>
inline void AddWholeBlock(Item& item, const Tile& tile, int32_t block, const float* scores, const uint8_t* ahead) {
  WeighColumns<kType>(item, tile.begin, tile.columns, scores, nullptr);
  ValueRows rows = InBlock<kType>(item.values(block), item.value_width);
  rows.ahead = ahead;
  AddValues<kType>(item, tile.begin, tile.columns, rows);
}

// Finds where the values of a row's steps begin .. end - 1 of a block are.
template <FloatType kType>
inline void FindValues(const Item& item, const AttentionRow& row, int32_t block, const Range& range, int32_t begin,
                       int32_t end, Place* places) {
  const auto slot_at = [&](int32_t i) {
    const int32_t position = kBlockPositions * block + i;
    return i < range.in_place ? position : row.slots[position - row.in_place_end];
  };
  for (int32_t s = begin; s < end; ++s) {
    if (kType == FloatType::kBF16) {
      const int32_t even = 2 * s >= range.begin ? slot_at(2 * s) : -1;
      places[s] = PlaceOfPair(item.args, even, 2 * s + 1 < range.end ? slot_at(2 * s + 1) : -1);
    } else {
      const int32_t slot = slot_at(s);
      const int64_t bytes = item.value_width * Steps<kType>::kLaneBytes;
      places[s] = {item.values(slot / 32) + slot % 32 * bytes, nullptr, 0, 0, 0, 0};
    }
  }
}

// Adds the weighted values of neighbouring columns of a tile that have positions in a block. Steps in place for all of
// them are read once. The steps before and after these are each column's own: values of other rows are not multiplied,
// not even by 0.
template <FloatType kType>
inline void AddRaggedValues(Item& item, int64_t begin, int64_t count, int32_t block, const Range* ranges) {
  constexpr int32_t kPositions = Steps<kType>::kPositions;
  ValueRows rows = InBlock<kType>(item.values(block), item.value_width);
  OwnSteps own;
  own.begin = rows.end;
  own.end = 0;
  for (int64_t c = 0; c < count; ++c) {
    const int32_t from = ranges[c].begin, to = ranges[c].end < ranges[c].in_place ? ranges[c].end : ranges[c].in_place;
    if ((from + kPositions - 1) / kPositions > rows.begin) rows.begin = (from + kPositions - 1) / kPositions;
    if (to / kPositions < rows.end) rows.end = to / kPositions;
    OwnSteps::Column& column = own.columns[c];
    column.begin = from / kPositions;
    column.end = (ranges[c].end + kPositions - 1) / kPositions;
    if (column.begin < own.begin) own.begin = column.begin;
    if (column.end > own.end) own.end = column.end;
  }
  if (rows.begin >= rows.end) rows.begin = rows.end = own.begin;
  Place places[kTileColumns][kBlockPositions];
  for (int64_t c = 0; c < count; ++c) {
    OwnSteps::Column& column = own.columns[c];
    const AttentionRow& row = item.row_of(begin + c);
    if (c > 0 && &row == &item.row_of(begin + c - 1)) {
      column.places = own.columns[c - 1].places;
      continue;
    }
    column.places = places[c];
    FindValues<kType>(item, row, block, ranges[c], column.begin, rows.begin, places[c]);
    FindValues<kType>(item, row, block, ranges[c], rows.end, column.end, places[c]);
  }
  rows.own = &own;
  AddValues<kType>(item, begin, count, rows);
}

// Scores all columns of a tile against all blocks where tails lie. Each row then takes its own scores from there, which
// is allowed because a score depends on its own dot product only.
template <FloatType kType>
inline void ScoreTails(Item& item, const Tile& tile) {
  const AttentionArgs& args = item.args;
  for (int32_t b = 0; b < args.num_tail_blocks; b += kMaxBlocksAtOnce) {
    const int32_t left = args.num_tail_blocks - b, count = left < kMaxBlocksAtOnce ? left : kMaxBlocksAtOnce;
    const uint8_t* keys[kMaxBlocksAtOnce];
    for (int32_t i = 0; i < count; ++i) keys[i] = item.keys(args.tail_blocks[b + i]);
    ScoreBlocks<kType, kTileColumns>(tile.columns, tile.q, args.kv.head_dim, count, keys, keys,
                                     item.tail_scores + b * tile.columns * 32);
  }
}

// Scores of one block, [columns of the tile][32], each column's in the order of its positions. Call it after
// ScoreTails.
template <FloatType kType>
inline void ScoreInOrder(const Item& item, const Tile& tile, int32_t block, float* scores) {
  const AttentionArgs& args = item.args;
  int32_t tail = 0;
  while (tail < args.num_tail_blocks && args.tail_blocks[tail] != block) ++tail;
  if (tail < args.num_tail_blocks) {
    const float* from = item.tail_scores + tail * tile.columns * 32;
    for (int64_t i = 0; i < tile.columns * 32; i += 16) Store(scores + i, Load(from + i));
  } else {
    const uint8_t* keys = item.keys(block);
    ScoreBlocks<kType, kTileColumns>(tile.columns, tile.q, args.kv.head_dim, 1, &keys, &keys, scores);
  }
  for (int64_t c = 0; c < tile.columns; ++c) {
    const AttentionRow& row = item.row_of(tile.begin + c);
    const Range range = RangeIn(block, row);
    for (int32_t i = range.in_place; i < range.end; ++i) {
      const int32_t lane = row.lanes[kBlockPositions * block + i - row.in_place_end];
      scores[c * 32 + i] = item.tail_scores[(lane / 32 * tile.columns + c) * 32 + lane % 32];
    }
  }
}

// Adds one block of which some columns of a tile attend to a part only, or to positions in other slots. `scores`: from
// ScoreInOrder.
template <FloatType kType>
inline void AddRaggedBlock(Item& item, const Tile& tile, int32_t block, const float* scores) {
  Range ranges[kTileColumns];
  for (int64_t c = 0; c < tile.columns; ++c) ranges[c] = RangeIn(block, item.row_of(tile.begin + c));
  int64_t end = 0;
  for (int64_t c = 0; c < tile.columns; c = end + 1) {
    end = c;
    while (end < tile.columns && !ranges[end].empty()) ++end;
    if (end == c) continue;
    WeighColumns<kType>(item, tile.begin + c, end - c, scores + c * 32, ranges + c);
    AddRaggedValues<kType>(item, tile.begin + c, end - c, block, ranges + c);
  }
}

// Adds the blocks that lie in place for all columns of all tiles. Windows may begin and rows may end inside them.
template <FloatType kType>
inline void AddBlocksInPlace(Item& item, int32_t first_block, int32_t end_block, int32_t last_block) {
  const AttentionArgs& args = item.args;
  // A single tile of few columns scores several blocks at once: a chain of dependent sums per register is too slow.
  const int32_t batch = item.num_tiles == 1 ? BlocksAtOnce(args.group * args.num_rows) : 1;
  int32_t count = 0;
  for (int32_t block = first_block; block < end_block; block += count) {
    const int32_t left = end_block - block;
    count = left <= batch ? left : left < 2 * batch ? (left + 1) / 2 : batch;
    const uint8_t* keys[kMaxBlocksAtOnce];
    const uint8_t* keys_ahead[kMaxBlocksAtOnce];
    const uint8_t* values_ahead[kMaxBlocksAtOnce];
    for (int32_t b = 0; b < count; ++b) {
      keys[b] = item.keys(block + b);
      // The next blocks, and behind the last ones the first ones of the next head.
      const bool last = block + b + count > last_block;
      const int32_t next = last ? first_block + b : block + b + count;
      const int64_t skip = last ? args.next_head_bytes : 0;
      keys_ahead[b] = item.keys(next) + skip;
      values_ahead[b] = item.values(next) + skip;
    }
    for (int64_t t = 0; t < item.num_tiles; ++t) {
      const Tile& tile = item.tiles[t];
      if (32 * (block + count) <= tile.first_min || 32 * block > tile.last_max) continue;
      alignas(64) float scores[kMaxScores];
      ScoreBlocks<kType, kTileColumns>(tile.columns, tile.q, args.kv.head_dim, count, keys, t == 0 ? keys_ahead : keys,
                                       scores);
      for (int32_t b = 0; b < count; ++b) {
        if (32 * (block + b) < tile.first_max || 32 * (block + b + 1) > tile.end_min) {
          AddRaggedBlock<kType>(item, tile, block + b, scores + b * tile.columns * 32);
        } else {
          AddWholeBlock<kType>(item, tile, block + b, scores + b * tile.columns * 32,
                               t == 0 ? values_ahead[b] : item.values(block + b));
        }
      }
    }
  }
}

// First the positions that lie in the slots of their number, in whole blocks. Then, tile by tile, the blocks in which
// some rows have a tail, and where other rows end.
template <FloatType kType>
inline void AddBlocks(Item& item) {
  int32_t first = 0x7fffffff, in_place_end = 0x7fffffff, last = 0;
  for (int64_t t = 0; t < item.num_tiles; ++t) {
    const Tile& tile = item.tiles[t];
    if (tile.first_min < first) first = tile.first_min;
    if (tile.end_min < in_place_end) in_place_end = tile.end_min;
    if (tile.last_max > last) last = tile.last_max;
  }
  const bool tails = item.args.num_tail_blocks > 0;
  const int32_t first_block = first / 32, ragged_begin = tails ? in_place_end / 32 : last / 32 + 1;
  AddBlocksInPlace<kType>(item, first_block, ragged_begin, last / 32);
  if (!tails) return;
  for (int64_t t = 0; t < item.num_tiles; ++t) {
    const Tile& tile = item.tiles[t];
    ScoreTails<kType>(item, tile);
    const int32_t begin = tile.first_min / 32 > ragged_begin ? tile.first_min / 32 : ragged_begin;
    for (int32_t block = begin; block <= tile.last_max / 32; ++block) {
      alignas(64) float scores[kMaxScores];
      ScoreInOrder<kType>(item, tile, block, scores);
      AddRaggedBlock<kType>(item, tile, block, scores);
    }
  }
}

template <FloatType kType>
void Attend(const AttentionArgs& args) {
  Item item(args);
  Begin<kType>(item);
  AddBlocks<kType>(item);
  for (int64_t c = 0; c < args.group * args.num_rows; ++c) {
    const Lanes inverse = Set(1.0F / TreeSum(Load(item.sums + 16 * c)));
    const float* from = item.out + c * item.value_width;
    float* to = args.out + c / args.group * args.out_stride + c % args.group * args.kv.head_dim;
    int64_t d = 0;
    for (; d + 16 <= args.kv.head_dim; d += 16) Store(to + d, Mul(Load(from + d), inverse));
    if (d < args.kv.head_dim) StorePart(to + d, Mul(Load(from + d), inverse), args.kv.head_dim - d);
  }
}

// Inline, since a file for one type has no use for it.
inline void AttentionKernel(const AttentionArgs& args) {
  if (args.kv.type == FloatType::kF32) return Attend<FloatType::kF32>(args);
  if (args.kv.type == FloatType::kBF16) return Attend<FloatType::kBF16>(args);
  Attend<FloatType::kF16>(args);
}
