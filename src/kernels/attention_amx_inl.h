// SPDX-License-Identifier: Apache-2.0
// Attention over bf16 keys and values by tile registers: weights, and which blocks take part. Included inside each
// target's unnamed namespace, after exp_inl.h, attention_weigh_inl.h and attention_amx_products_inl.h.
//
// What is no product of tiles (reference, exponentials, denominator) is the vector code of the other kernels. In blocks
// in place it is the longer half of the time, with many rows: so while the weights of a block are made, column by
// column, tiles multiply the values of the block before and the keys of the one behind.

template <typename Tiles>
class TileAttention {
 public:
  explicit TileAttention(const AttentionArgs& args)
      : args_(args),
        products_(args),
        columns_(products_.columns()),
        width_(ValueWidth(args.kv.head_dim)),
        gathered_(products_.scratch_left()),
        tail_scores_(reinterpret_cast<float*>(gathered_ + kBlockPositions / 2 * width_ * 4)) {}

  void Run() {
    Begin();
    AddBlocksInPlace();
    AddTails();
    products_.Release();
    Finish();
  }

 private:
  // What a row attends to of a block in place.
  static Range InPlace(int32_t block, const AttentionRow& row) {
    const int32_t end = Within(row.in_place_end, block);
    return {Within(row.first, block), end, end};
  }

  void Begin() {
    products_.Begin();
    for (uint32_t* lines : weight_lines_) {
      __builtin_memset(lines + 16 * columns_.columns, 0, static_cast<uint64_t>(columns_.spare() * kLine));
    }
    for (int64_t c = 0; c < columns_.columns; ++c) {
      reference_[c] = -__builtin_inff();
      Store(sums_ + 16 * c, Set(0.0F));
    }
    for (int32_t& slot : slots_) slot = kUnknown;
  }

  // To weights, running sums and, where they are now relative to another score, the scale of earlier outputs.
  void WeighColumn(int64_t column, const float* scores, Range range) {
    const Scaled scaled = ScaleScores(args_.scale, scores, &range);
    float* sums = sums_ + 16 * column;
    const float rise = Raise(scaled, reference_[column]);
    if (rise != 0.0F) ScaleColumn(column, Exp(Set(rise)));
    const Lanes reference = Set(reference_[column]);
    Store(sums, StoreWeights<FloatType::kBF16>(weights_ + 16 * column, Exp(Sub(scaled.low, reference)),
                                               Exp(Sub(scaled.high, reference)), Load(sums)));
  }
  void ScaleColumn(int64_t column, Lanes factor) {
    products_.FinishOutputs();
    float *sums = sums_ + 16 * column, *out = products_.out(column);
    Store(sums, Mul(Load(sums), factor));
    for (int64_t d = 0; d < width_; d += 16) Store(out + d, Mul(Load(out + d), factor));
  }

  // Whether 0 times any value of the block is 0.
  bool AllFinite(const uint8_t* values) const {
    uint32_t bad = 0;
    for (int64_t pair = 0; pair < kBlockPositions / 2; ++pair) {
      for (int64_t d = 0; d < args_.kv.head_dim; ++d) {
        uint32_t both;
        __builtin_memcpy(&both, values + (pair * width_ + d) * 4, 4);
        bad |= (both & 0x7f807f80U) + 0x00800080U;  // carries into the sign where an exponent is all ones
      }
    }
    return (bad & 0x80008000U) == 0;
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

  // gathered_, weighted, to the outputs of columns begin .. end - 1, and to no others.
  void AddGathered(int64_t begin, int64_t end) {
    for (int64_t c = begin; c < end; c += kTileRows) {
      products_.SetRows(end - c < kTileRows ? end - c : kTileRows);
      products_.Add(c, weights_, gathered_);
    }
  }

  void AddBlocksInPlace() {
    FindBlocksInPlace();
    if (first_block_ >= end_block_) return;
    BeginScores(first_block_);
    products_.Finish();
    for (int32_t block = first_block_; block < end_block_; ++block) {
      if (block + 1 < end_block_) BeginScores(block + 1);
      weights_ = weight_lines_[block % 2];
      const bool whole = WeighBlock(block);
      const uint8_t* values = ValuesOf(args_, block);
      if (whole || AllFinite(values)) {
        products_.BeginOutputs(weights_, values, ValuesAhead(block + 1));
      } else {
        AddValuesByRows(block);
      }
    }
    products_.Finish();
  }

  void FindBlocksInPlace() {
    int32_t first = 0x7fffffff, end = 0;
    for (int64_t r = 0; r < args_.num_rows; ++r) {
      const AttentionRow& row = args_.rows[r];
      if (row.first < first) first = row.first;
      if (row.in_place_end > end) end = row.in_place_end;
    }
    first_block_ = first / kBlockPositions;
    end_block_ = (end + kBlockPositions - 1) / kBlockPositions;
  }

  void BeginScores(int32_t block) {
    products_.BeginScores(KeysOf(args_, block), KeysAhead(block + 1), score_lines_[block % 2]);
  }

  // Of a block in place, or of the next head's behind the last.
  const uint8_t* KeysAhead(int32_t block) const {
    return KeysOf(args_, BlockAhead(block)) + (block < end_block_ ? 0 : args_.next_head_bytes);
  }
  const uint8_t* ValuesAhead(int32_t block) const {
    return ValuesOf(args_, BlockAhead(block)) + (block < end_block_ ? 0 : args_.next_head_bytes);
  }
  int32_t BlockAhead(int32_t block) const {
    if (block >= end_block_) block += first_block_ - end_block_;
    return block < end_block_ ? block : first_block_;
  }

  // Makes the weights of a block in place, while products go on. Returns whether all rows attend to all of it.
  bool WeighBlock(int32_t block) {
    const uint8_t *keys_ahead = KeysAhead(block + 2), *values_ahead = ValuesAhead(block);
    const float* scores = score_lines_[block % 2];
    const int64_t steps = products_.StepsLeft();
    int64_t due = 0;
    bool whole = true;
    for (int64_t r = 0; r < args_.num_rows; ++r) {
      const Range range = InPlace(block, args_.rows[r]);
      whole = whole && range.whole();
      for (int64_t c = r * args_.group; c < (r + 1) * args_.group; ++c) {
        products_.FetchShare(c, keys_ahead, values_ahead);
        if (!range.empty()) {
          WeighColumn(c, scores + c * kBlockPositions, range);
        } else {
          __builtin_memset(weights_ + 16 * c, 0, kLine);
        }
        for (due += steps; due >= columns_.columns; due -= columns_.columns) products_.Step();
      }
    }
    products_.Finish();
    return whole;
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
    products_.SetRows(columns_.rows);
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
    __builtin_memset(weights_ + 16 * tile_column, 0, static_cast<uint64_t>(columns_.rows * kLine));
    for (int64_t c = begin; c < end; ++c) {
      const AttentionRow& row = args_.rows[c / args_.group];
      if (row.HasTailIn(group.block)) WeighTail(row, group.block, tile_column, c);
    }
    Gather(group.slots);
    if (!AllFinite(gathered_)) return AddTailGroupByRows(group, begin, end);
    products_.SetRows(columns_.rows);
    products_.Add(tile_column, weights_, gathered_);
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
    for (int64_t begin = 0; begin < columns_.columns; begin += columns_.rows) {
      const int64_t end = begin + columns_.rows < columns_.columns ? begin + columns_.rows : columns_.columns;
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
    products_.SetRows(columns_.rows);
    for (int32_t b = 0; b < args_.num_tail_blocks; ++b) {
      products_.Score(column, KeysOf(args_, args_.tail_blocks[b]), tail_scores_ + b * kTileRows * kBlockPositions);
    }
  }

  // Adding 0 makes a zero positive: blocks in which only other rows have positions added 0 as well.
  void Finish() {
    const int64_t head_dim = args_.kv.head_dim;
    for (int64_t c = 0; c < columns_.columns; ++c) {
      const Lanes inverse = Set(1.0F / TreeSum(Load(sums_ + 16 * c)));
      const float* from = products_.out(c);
      float* to = args_.out + c / args_.group * args_.out_stride + c % args_.group * head_dim;
      for (int64_t d = 0; d < head_dim; d += 16) {
        const Lanes out = Add(Mul(Load(from + d), inverse), Set(0.0F));
        head_dim - d < 16 ? StorePart(to + d, out, head_dim - d) : Store(to + d, out);
      }
    }
  }

  static constexpr int32_t kUnknown = -2;

  const AttentionArgs& args_;
  AttentionProducts<Tiles> products_;
  const ColumnTiles& columns_;
  const int64_t width_;
  uint8_t* gathered_;  // [16][Dv][2], bf16
  float* tail_scores_;
  int32_t slots_[kBlockPositions];           // of gathered_; -1 = zeros
  int32_t first_block_ = 0, end_block_ = 0;  // in place
  float reference_[kAttentionColumns];       // exponentials are relative to this score
  alignas(64) float sums_[kAttentionColumns * 16];
  // Of even and of odd blocks: one is weighed while the other's products go on.
  alignas(64) float score_lines_[2][kAttentionColumns * kBlockPositions];
  alignas(64) uint32_t weight_lines_[2][kAttentionColumns * 16];  // [column][16 pairs]
  uint32_t* weights_ = weight_lines_[0];                          // of the block, or group, that is weighed
};
