// SPDX-License-Identifier: Apache-2.0
// Attention over bf16 keys and values by tile registers, over Tiles (amx_tiles.h). Included inside each target's
// unnamed namespace, after lanes_<target>.h, exp_inl.h, attention_lanes_<target>.h and attention_weigh_inl.h.
//
// Columns, (row, head) pairs, are the lines of the first operand: up to 16 queries x 32 dimensions, or 16 columns'
// weights x 32 positions. A block's keys, [Dh / 2][32][2], and its values, [16][Dv][2], are the second operand as they
// lie, in lines that are 128 bytes or a row of values apart: so the layout is every target's. Sums are scores,
// [column][position], and outputs, [column][dimension], whose running sums are loaded into tiles and stored again for
// every block.
//
// Line m of a sum depends on line m of the first operand only, so one row and many, and rows in place and rows of a
// tree, go through the same instructions with equal bits. What is no single product per column and block (maximum,
// exponentials, denominator) is the vector code of the other kernels.

constexpr int64_t kLineDims = 32;  // of a tile line: dimensions of a query, or positions of a block
constexpr int64_t kKeyLineBytes = kBlockPositions * 4;
constexpr int64_t kStepKeys = kLineDims / 2 * kKeyLineBytes;
constexpr int64_t kLine = kTileRowBytes;

// Registers: 0, 1 first operands of two tiles of columns; 2, 3 sums of the first of them, 4, 5 of the second; 6, 7
// second operands, two times 16 positions or dimensions. Two tiles of columns at a time, so that four sums are busy.
template <typename Tiles>
class TileAttention {
 public:
  explicit TileAttention(const AttentionArgs& args)
      : args_(args),
        columns_(args.group * args.num_rows),
        num_tiles_((columns_ + kTileRows - 1) / kTileRows),
        tile_rows_((columns_ + num_tiles_ - 1) / num_tiles_),
        padded_(num_tiles_ * tile_rows_),
        width_(ValueWidth(args.kv.head_dim)),
        steps_((args.kv.head_dim + kLineDims - 1) / kLineDims),
        per_product_(columns_ < 2 * kTileRows ? args_.kv.head_dim / (2 * steps_ * num_tiles_) : 2),
        per_pair_(per_product_ * steps_ * (num_tiles_ == 1 ? 2 : 4) * kLine),
        share_(ShareOfColumn()),
        q_(reinterpret_cast<uint8_t*>(args.scratch)),
        out_(args.scratch + padded_ * width_),
        gathered_(reinterpret_cast<uint8_t*>(out_ + padded_ * width_)),
        last_keys_(gathered_ + kBlockPositions / 2 * width_ * 4),
        tail_scores_(reinterpret_cast<float*>(last_keys_ + kStepKeys)) {}

  void Run() {
    Begin();
    AddBlocksInPlace();
    AddTails();
    tiles_.Release();
    Finish();
  }

 private:
  // What a row attends to of a block in place.
  static Range InPlace(int32_t block, const AttentionRow& row) {
    const int32_t end = Within(row.in_place_end, block);
    return {Within(row.first, block), end, end};
  }

  // Lines of first operands and sums. Fewer take less time, and what lies behind them is neither read nor written.
  void SetRows(int64_t rows) {
    if (rows == configured_rows_) return;
    configured_rows_ = rows;
    TileConfig config = FullTiles();
    for (int t = 0; t < 6; ++t) config.rows[t] = static_cast<uint8_t>(rows);
    tiles_.Configure(config);
  }

  void Begin() {
    __builtin_memset(q_, 0, static_cast<uint64_t>(padded_ * steps_ * kLine));
    __builtin_memset(last_keys_, 0, static_cast<uint64_t>(kStepKeys));
    __builtin_memset(weights_, 0, sizeof(weights_));
    for (int64_t i = 0; i < padded_ * width_; i += 16) Store(out_ + i, Set(0.0F));
    for (int64_t c = 0; c < columns_; ++c) {
      max_[c] = -__builtin_inff();
      Store(sums_ + 16 * c, Set(0.0F));
      PackQuery(c);
    }
    for (int32_t& slot : slots_) slot = kUnknown;
    SetRows(tile_rows_);
  }

  // To [step][column][32].
  void PackQuery(int64_t column) {
    const int64_t head_dim = args_.kv.head_dim;
    const float* q = args_.q + column / args_.group * args_.q_stride + column % args_.group * head_dim;
    for (int64_t d = 0; d < head_dim; d += 16) {
      const int64_t n = head_dim - d < 16 ? head_dim - d : 16;
      uint8_t* to = q_ + (d / kLineDims * padded_ + column) * kLine + d % kLineDims * 2;
      StoreBf16(reinterpret_cast<uint16_t*>(to), RoundBf16(n == 16 ? Load(q + d) : LoadPart(q + d, n)));
    }
  }

  // The last step's keys where they do not fill a tile: dimensions that are not there are zeros on both sides.
  void CopyLastKeys(const uint8_t* keys) {
    const int64_t rest = args_.kv.head_dim % kLineDims;
    if (rest == 0) return;
    __builtin_memcpy(last_keys_, keys + (steps_ - 1) * kStepKeys, static_cast<uint64_t>(rest / 2 * kKeyLineBytes));
  }

  // scores[m][32] of kTiles tiles of columns, from `column` on, against a block that CopyLastKeys has seen. Fetches
  // keys of the block `ahead`.
  template <int kTiles>
  void Score(int64_t column, const uint8_t* keys, const uint8_t* ahead, float* scores) {
    const uint8_t* q = q_ + column * kLine;
    const int64_t next_q = tile_rows_ * kLine, next_scores = tile_rows_ * kBlockPositions;
    tiles_.template Zero<2>();
    tiles_.template Zero<3>();
    if constexpr (kTiles == 2) {
      tiles_.template Zero<4>();
      tiles_.template Zero<5>();
    }
    for (int64_t s = 0; s < steps_; ++s) {
      const bool copied = s + 1 == steps_ && args_.kv.head_dim % kLineDims != 0;
      const uint8_t* from = copied ? last_keys_ : keys + s * kStepKeys;
      tiles_.template LoadLines<0>(q + s * padded_ * kLine, kLine);
      tiles_.template LoadLines<6>(from, kKeyLineBytes);
      tiles_.template MultiplyBf16<2, 0, 6>();
      Fetch(&ahead);
      tiles_.template LoadLines<7>(from + kLine, kKeyLineBytes);
      tiles_.template MultiplyBf16<3, 0, 7>();
      Fetch(&ahead);
      if constexpr (kTiles == 2) {
        tiles_.template LoadLines<1>(q + s * padded_ * kLine + next_q, kLine);
        tiles_.template MultiplyBf16<4, 1, 6>();
        Fetch(&ahead);
        tiles_.template MultiplyBf16<5, 1, 7>();
        Fetch(&ahead);
      }
    }
    tiles_.template StoreLines<2>(scores, kKeyLineBytes);
    tiles_.template StoreLines<3>(scores + 16, kKeyLineBytes);
    if constexpr (kTiles == 2) {
      tiles_.template StoreLines<4>(scores + next_scores, kKeyLineBytes);
      tiles_.template StoreLines<5>(scores + next_scores + 16, kKeyLineBytes);
    }
  }

  // What a product has time for.
  void Fetch(const uint8_t** ahead) const {
    if (*ahead == nullptr) return;
    for (int64_t i = 0; i < per_product_; ++i, *ahead += kLine) __builtin_prefetch(*ahead, 0, 2);
  }
  // What the products of tiles t and t + 1 fetch of a block's keys or values.
  const uint8_t* PartOf(const uint8_t* ahead, int64_t t) const {
    const int64_t begin = t / 2 * per_pair_;
    return begin + per_pair_ <= args_.kv.head_dim * kLine ? ahead + begin : nullptr;
  }

  // The outputs at `out` in place of those in the register, right before the product that adds to them: the moves of
  // four together would fill the reorder buffer, which nothing leaves before the products that the stores wait for.
  template <int kSum>
  void ChangeOutputs(float* out) {
    StoreOutputs<kSum>();
    tiles_.template LoadLines<kSum>(out, 4 * width_);
    out_here_[kSum - 2] = out;
  }
  template <int kSum>
  void StoreOutputs() {
    float*& out = out_here_[kSum - 2];
    if (out != nullptr) tiles_.template StoreLines<kSum>(out, 4 * width_);
    out = nullptr;
  }
  // Before outputs in memory, or tiles' rows, are something else.
  void StoreAllOutputs() {
    StoreOutputs<2>();
    StoreOutputs<3>();
    StoreOutputs<4>();
    StoreOutputs<5>();
  }

  // Outputs from `out` on, of kChunks * 16 dimensions: out += weights in registers 0, 1 * values.
  template <int kTiles, int kChunks>
  void AddChunks(float* out, const uint8_t* values, const uint8_t** ahead) {
    const int64_t stride = 4 * width_, next = tile_rows_ * width_;
    tiles_.template LoadLines<6>(values, stride);
    ChangeOutputs<2>(out);
    tiles_.template MultiplyBf16<2, 0, 6>();
    Fetch(ahead);
    if constexpr (kChunks == 2) {
      tiles_.template LoadLines<7>(values + kLine, stride);
      ChangeOutputs<3>(out + 16);
      tiles_.template MultiplyBf16<3, 0, 7>();
      Fetch(ahead);
    }
    if constexpr (kTiles == 2) {
      ChangeOutputs<4>(out + next);
      tiles_.template MultiplyBf16<4, 1, 6>();
      Fetch(ahead);
    }
    if constexpr (kTiles == 2 && kChunks == 2) {
      ChangeOutputs<5>(out + next + 16);
      tiles_.template MultiplyBf16<5, 1, 7>();
      Fetch(ahead);
    }
  }

  // The weighted values of a block, [16][Dv][2], to the outputs of kTiles tiles of columns from `column` on. Fetches
  // the values of the block `ahead`.
  template <int kTiles>
  void AddValues(int64_t column, const uint8_t* values, const uint8_t* ahead) {
    tiles_.template LoadLines<0>(weights_ + 16 * column, kLine);
    if constexpr (kTiles == 2) tiles_.template LoadLines<1>(weights_ + 16 * (column + tile_rows_), kLine);
    float* out = out_ + column * width_;
    int64_t d = 0;
    for (; d + 32 <= width_; d += 32) {
      AddChunks<kTiles, 2>(out + d, values + 4 * d, &ahead);
    }
    if (d < width_) AddChunks<kTiles, 1>(out + d, values + 4 * d, &ahead);
  }

  // To weights, running sums and the scale of earlier outputs.
  void WeighColumn(int64_t column, const float* scores, Range range) {
    alignas(64) float factors[16];
    if (!Weigh<FloatType::kBF16>(args_.scale, scores, 1, &range, max_ + column, sums_ + 16 * column, factors,
                                 weights_ + 16 * column)) {
      return;
    }
    float* out = out_ + column * width_;
    for (int64_t d = 0; d < width_; d += 16) Store(out + d, Mul(Load(out + d), Set(factors[0])));
  }

  // Whether 0 times any value of the block is 0.
  bool AllFinite(const uint8_t* values) const {
    uint32_t bad = 0;
    for (int64_t pair = 0; pair < kBlockPositions / 2; ++pair) {
      for (int64_t d = 0; d < args_.kv.head_dim; ++d) {
        uint32_t both;
        __builtin_memcpy(&both, values + (pair * width_ + d) * 4, 4);
        bad |= ((both & 0x7f80U) == 0x7f80U ? 1U : 0U) | ((both & 0x7f800000U) == 0x7f800000U ? 1U : 0U);
      }
    }
    return bad == 0;
  }

  // The values of 32 slots to gathered_. What is there already stays.
  void Gather(const int32_t* slots) {
    const auto bytes = static_cast<uint64_t>(4 * width_);
    for (int32_t i = 0; i < kBlockPositions; i += 2) {
      const int32_t even = slots[i], odd = slots[i + 1];
      if (slots_[i] == even && slots_[i + 1] == odd) continue;
      slots_[i] = even;
      slots_[i + 1] = odd;
      uint8_t* to = gathered_ + i / 2 * 4 * width_;
      if (even < 0 && odd < 0) {
        __builtin_memset(to, 0, bytes);
      } else {
        const Place place = PlaceOfPair(args_, even, odd);
        if (!place.merged()) __builtin_memcpy(to, place.first, bytes);
        for (int64_t d = 0; place.merged() && d < width_; d += 16) {
          MergePairs(place, 4 * d, reinterpret_cast<uint32_t*>(to + 4 * d));
        }
      }
    }
  }

  // gathered_ to the outputs of columns begin .. end - 1, and to no others.
  void AddGathered(int64_t begin, int64_t end) {
    for (int64_t c = begin; c < end; c += kTileRows) {
      SetRows(end - c < kTileRows ? end - c : kTileRows);
      AddValues<1>(c, gathered_, nullptr);
      StoreAllOutputs();
    }
  }

  // One block of all rows whose positions in it, if any, are in place.
  void AddBlock(int32_t block, const uint8_t* keys_ahead, const uint8_t* values_ahead) {
    const uint8_t* keys = KeysOf(args_, block);
    const uint8_t* values = ValuesOf(args_, block);
    SetRows(tile_rows_);
    CopyLastKeys(keys);
    for (int64_t t = 0; t < num_tiles_; t += 2) {
      const int64_t column = t * tile_rows_;
      float* scores = scores_ + column * kBlockPositions;
      const uint8_t* ahead = PartOf(keys_ahead, t);
      t + 1 < num_tiles_ ? Score<2>(column, keys, ahead, scores) : Score<1>(column, keys, ahead, scores);
    }
    bool whole = true;
    for (int64_t r = 0; r < args_.num_rows; ++r) {
      const Range range = InPlace(block, args_.rows[r]);
      whole = whole && range.whole();
      for (int64_t c = r * args_.group; c < (r + 1) * args_.group; ++c) {
        PrefetchShare(c, keys_ahead, values_ahead);
        if (!range.empty()) {
          WeighColumn(c, scores_ + c * kBlockPositions, range);
        } else {
          __builtin_memset(weights_ + 16 * c, 0, kLine);
        }
      }
    }
    if (!whole && !AllFinite(values)) return AddValuesByRows(block);
    for (int64_t t = 0; t < num_tiles_; t += 2) {
      const uint8_t* ahead = PartOf(values_ahead, t);
      t + 1 < num_tiles_ ? AddValues<2>(t * tile_rows_, values, ahead) : AddValues<1>(t * tile_rows_, values, ahead);
    }
    StoreAllOutputs();
  }

  // A column's part of the next block, while its weights are made.
  void PrefetchShare(int64_t column, const uint8_t* keys, const uint8_t* values) const {
    const int64_t begin = num_tiles_ / 2 * per_pair_ + column * share_;
    for (int64_t at = begin; at < begin + share_; at += kLine) {
      __builtin_prefetch(keys + at, 0, 2);
      __builtin_prefetch(values + at, 0, 2);
    }
  }
  int64_t ShareOfColumn() const {
    const int64_t left = args_.kv.head_dim * kLine - num_tiles_ / 2 * per_pair_;
    return columns_ < 2 * kTileRows || left <= 0 ? 0 : (left / kLine + columns_ - 1) / columns_ * kLine;
  }

  // Of a block with NaN or infinity, maybe where some row does not look.
  void AddValuesByRows(int32_t block) {
    for (int64_t r = 0; r < args_.num_rows; ++r) {
      const Range range = InPlace(block, args_.rows[r]);
      if (range.empty()) continue;
      int32_t slots[kBlockPositions];
      for (int32_t i = 0; i < kBlockPositions; ++i) {
        slots[i] = i >= range.begin && i < range.end ? kBlockPositions * block + i : kNoSlot;
      }
      Gather(slots);
      AddGathered(r * args_.group, (r + 1) * args_.group);
    }
  }

  void AddBlocksInPlace() {
    int32_t first = 0x7fffffff, end = 0;
    for (int64_t r = 0; r < args_.num_rows; ++r) {
      const AttentionRow& row = args_.rows[r];
      if (row.first < first) first = row.first;
      if (row.in_place_end > end) end = row.in_place_end;
    }
    const int32_t first_block = first / kBlockPositions, end_block = (end + kBlockPositions - 1) / kBlockPositions;
    for (int32_t block = first_block; block < end_block; ++block) {
      // The next block, and behind the last one the first of the next head.
      const bool last = block + 1 == end_block;
      const int32_t next = last ? first_block : block + 1;
      const int64_t skip = last ? args_.next_head_bytes : 0;
      AddBlock(block, KeysOf(args_, next) + skip, ValuesOf(args_, next) + skip);
    }
  }

  // Blocks in which rows have positions in other slots: each takes its scores in the order of its positions, and its
  // weights go to the lanes of its values.
  void WeighTail(const AttentionRow& row, int32_t block, int64_t tile_column, int64_t column) {
    const Range range = RangeIn(block, row);
    const int32_t skip = kBlockPositions * block - row.in_place_end;
    alignas(64) float scores[kBlockPositions] = {};
    for (int32_t i = range.begin; i < range.end; ++i) {
      const int32_t lane = row.lanes[skip + i];
      const int64_t line = lane / kBlockPositions * kTileRows + column - tile_column;
      scores[i] = tail_scores_[line * kBlockPositions + lane % kBlockPositions];
    }
    WeighColumn(column, scores, range);
    alignas(64) uint16_t weights[kBlockPositions], in_lanes[kBlockPositions] = {};
    __builtin_memcpy(weights, weights_ + 16 * column, kLine);
    for (int32_t i = range.begin; i < range.end; ++i) in_lanes[row.value_lanes[skip + i]] = weights[i];
    __builtin_memcpy(weights_ + 16 * column, in_lanes, kLine);
  }

  // Columns begin .. end - 1 of a tile, which are of the group.
  void AddTailGroup(const TailGroup& group, int64_t tile_column, int64_t begin, int64_t end) {
    __builtin_memset(weights_ + 16 * tile_column, 0, static_cast<uint64_t>(tile_rows_ * kLine));
    for (int64_t c = begin; c < end; ++c) {
      const AttentionRow& row = args_.rows[c / args_.group];
      if (row.HasTailIn(group.block)) WeighTail(row, group.block, tile_column, c);
    }
    Gather(group.slots);
    if (!AllFinite(gathered_)) return AddTailGroupByRows(group, begin, end);
    SetRows(tile_rows_);
    AddValues<1>(tile_column, gathered_, nullptr);
    StoreAllOutputs();
  }

  // Of values with NaN or infinity, which rows of the group that do not see them must not multiply, not even by 0.
  void AddTailGroupByRows(const TailGroup& group, int64_t begin, int64_t end) {
    int64_t next = 0;
    for (int64_t c = begin; c < end; c = next) {
      const AttentionRow& row = args_.rows[c / args_.group];
      const int64_t row_end = (c / args_.group + 1) * args_.group;
      next = row_end < end ? row_end : end;
      if (!row.HasTailIn(group.block)) continue;
      int32_t slots[kBlockPositions];
      for (int32_t& slot : slots) slot = kNoSlot;
      const Range range = RangeIn(group.block, row);
      for (int32_t i = range.begin; i < range.end; ++i) {
        const int32_t lane = row.value_lanes[kBlockPositions * group.block - row.in_place_end + i];
        slots[lane] = group.slots[lane];
      }
      Gather(slots);
      AddGathered(c, next);
    }
  }

  void AddTails() {
    for (int64_t begin = 0; begin < columns_; begin += tile_rows_) {
      const int64_t end = begin + tile_rows_ < columns_ ? begin + tile_rows_ : columns_;
      bool scored = false;
      for (int64_t g = 0; g < args_.num_tail_groups; ++g) {
        const TailGroup& group = args_.tail_groups[g];
        const int64_t group_begin = (group.begin - args_.rows) * args_.group;
        const int64_t group_end = (group.end - args_.rows) * args_.group;
        const int64_t from = group_begin > begin ? group_begin : begin, to = group_end < end ? group_end : end;
        if (from >= to) continue;
        if (!scored) ScoreTails(begin);
        scored = true;
        AddTailGroup(group, begin, from, to);
      }
    }
  }

  // tail_scores_ [tail block][16][32] of the tile of columns from `column` on.
  void ScoreTails(int64_t column) {
    SetRows(tile_rows_);
    for (int32_t b = 0; b < args_.num_tail_blocks; ++b) {
      const uint8_t* keys = KeysOf(args_, args_.tail_blocks[b]);
      CopyLastKeys(keys);
      Score<1>(column, keys, nullptr, tail_scores_ + b * kTileRows * kBlockPositions);
    }
  }

  // Adding 0 makes a zero positive: blocks in which only other rows have positions added 0 as well.
  void Finish() const {
    const int64_t head_dim = args_.kv.head_dim;
    for (int64_t c = 0; c < columns_; ++c) {
      const Lanes inverse = Set(1.0F / TreeSum(Load(sums_ + 16 * c)));
      const float* from = out_ + c * width_;
      float* to = args_.out + c / args_.group * args_.out_stride + c % args_.group * head_dim;
      for (int64_t d = 0; d < head_dim; d += 16) {
        const Lanes out = Add(Mul(Load(from + d), inverse), Set(0.0F));
        head_dim - d < 16 ? StorePart(to + d, out, head_dim - d) : Store(to + d, out);
      }
    }
  }

  static constexpr int32_t kUnknown = -2;

  const AttentionArgs& args_;
  const int64_t columns_;
  const int64_t num_tiles_, tile_rows_;  // of columns; all tiles have the same number
  const int64_t padded_;                 // columns of all tiles
  const int64_t width_, steps_;
  // Lines of the next block that are fetched with each product, bytes of its keys, and of its values, with the products
  // of two tiles and with each column's weights. Many prefetches in a row hold up the tile loads behind them. Few
  // columns have no time for a block: all lines go with the products.
  const int64_t per_product_, per_pair_, share_;
  uint8_t* q_;         // [step][column][32], bf16
  float* out_;         // [column][Dv]
  uint8_t* gathered_;  // [16][Dv][2], bf16
  uint8_t* last_keys_;
  float* tail_scores_;
  int32_t slots_[kBlockPositions];  // of gathered_; -1 = zeros
  int64_t configured_rows_ = 0;
  float* out_here_[4] = {};  // outputs in registers 2 .. 5
  float max_[kAttentionColumns];
  alignas(64) float sums_[kAttentionColumns * 16];
  alignas(64) float scores_[kAttentionColumns * kBlockPositions];
  alignas(64) uint32_t weights_[kAttentionColumns * 16];
  Tiles tiles_;
};
