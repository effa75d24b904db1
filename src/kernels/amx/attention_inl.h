// SPDX-License-Identifier: Apache-2.0
// Attention over bf16 keys and values by tile registers: weights, and which blocks take part. Included inside each
// target's unnamed namespace, after generic/exp_inl.h, generic/attention_weigh_inl.h and amx/attention_products_inl.h.
//
// Tiles compute the products. The rest (reference, exponentials, denominator) is the vector code of the other kernels.
// With many rows and blocks in place that rest takes the longer half of the time. So while vectors make the weights of
// a block, column by column, tiles multiply the values of earlier blocks and the keys of the next one.
//
// The outputs of 64 columns do not fit L1 beside the rest. Moving them into tiles and out again for every block took a
// third of the time, from L2. So the values of a few blocks are multiplied together, and each pass takes a part of the
// outputs.

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
    for (int64_t i = 0; columns_.spare() > 0 && i < 2 * kGroupBlocks; ++i) {
      uint32_t* spare = weight_lines_[i % 2][i / 2] + 16 * columns_.columns;
      __builtin_memset(spare, 0, static_cast<uint64_t>(columns_.spare() * kLine));
    }
    for (int64_t c = 0; c < columns_.columns; ++c) {
      reference_[c] = -__builtin_inff();
      Store(sums_ + 16 * c, Set(0.0F));
    }
    for (int32_t& slot : slots_) slot = kUnknown;
  }

  // Turns a column's scores into weights and running sums. Where they are now relative to another score, earlier
  // outputs are scaled to it.
  void WeighColumn(int64_t column, const float* scores, Range range) {
    WeighScaled(column, ScaleScores(args_.scale, scores, &range));
  }
  void WeighScaled(int64_t column, const Scaled& scaled) {
    const float rise = Raise(scaled, reference_[column]);
    if (rise != 0.0F) ScaleColumn(column, Exp(Set(rise)));
    StoreColumn(column, scaled);
  }
  // The same for two columns that attend to the whole block.
  [[gnu::always_inline]] void WeighTwo(int64_t column, const float* scores) {
    const Scaled first = ScaleScores(args_.scale, scores, nullptr),
                 second = ScaleScores(args_.scale, scores + kBlockPositions, nullptr);
    if (IsAbove(first, reference_[column]) || IsAbove(second, reference_[column + 1])) {
      constexpr Range kWhole{0, kBlockPositions, kBlockPositions};
      WeighColumn(column, scores, kWhole);
      return WeighColumn(column + 1, scores + kBlockPositions, kWhole);
    }
    StoreColumn(column, first);
    StoreColumn(column + 1, second);
  }
  [[gnu::always_inline]] void StoreColumn(int64_t column, const Scaled& scaled) {
    float* sums = sums_ + 16 * column;
    const Lanes reference = Set(reference_[column]);
    Store(sums, StoreWeights<FloatType::kBF16>(weights_ + 16 * column, Exp(Sub(scaled.low, reference)),
                                               Exp(Sub(scaled.high, reference)), Load(sums)));
  }
  void ScaleColumn(int64_t column, Lanes factor) {
    AddWeighed();
    float *sums = sums_ + 16 * column, *out = products_.out(column);
    Store(sums, Mul(Load(sums), factor));
    for (int64_t d = 0; d < width_; d += 16) Store(out + d, Mul(Load(out + d), factor));
  }

  // Whether 0 times any value of this pair of positions is 0: none of them is NaN or infinite.
  bool IsFinite(const uint8_t* pair) const {
    uint32_t bad = 0;
    for (int64_t d = 0; d < args_.kv.head_dim; ++d) {
      uint32_t both;
      __builtin_memcpy(&both, pair + d * 4, 4);
      bad |= (both & 0x7f807f80U) + 0x00800080U;  // carries into the sign where an exponent is all ones
    }
    return (bad & 0x80008000U) == 0;
  }
  bool AllFinite(const uint8_t* values) const {
    bool finite = true;
    for (int64_t pair = 0; pair < kBlockPositions / 2; ++pair) finite &= IsFinite(values + pair * width_ * 4);
    return finite;
  }

  // Copies the values of 32 slots to gathered_, except those that are there already. Returns whether all are finite.
  bool Gather(const int32_t* slots) {
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
      infinite_pairs_ &= ~(1U << (i / 2));
      if (!IsFinite(to)) infinite_pairs_ |= 1U << (i / 2);
    }
    return infinite_pairs_ == 0;
  }

  // Adds the weighted values in gathered_ to the outputs of columns begin .. end - 1, and to no others.
  void AddGathered(int64_t begin, int64_t end) {
    for (int64_t c = begin; c < end; c += kTileRows) {
      products_.SetRows(end - c < kTileRows ? end - c : kTileRows);
      products_.Add(c, weights_, gathered_);
    }
  }

  void AddBlocksInPlace() {
    FindBlocksInPlace();
    if (first_block_ >= end_block_) return;
    products_.BeginScores(KeysOf(args_, first_block_), score_lines_[first_block_ % 2]);
    products_.Finish();
    for (int32_t block = first_block_; block < end_block_; ++block) {
      if (block + 1 < end_block_) products_.BeginScores(KeysOf(args_, block + 1), score_lines_[(block + 1) % 2]);
      products_.MakeDue(kGroupBlocks);
      weights_ = weight_lines_[group_][weighed_];
      const bool whole = WeighBlock(block);
      const uint8_t* values = ValuesOf(args_, block);
      if (whole || AllFinite(values)) {
        values_[group_][weighed_++] = values;
        if (weighed_ == kGroupBlocks) BeginGroup();
      } else {
        AddWeighed();
        AddValuesByRows(block);
      }
    }
    AddWeighed();
    products_.FetchRest();
  }

  // Ends a group of blocks: the values of its weighed blocks will be added while the blocks of the next group are
  // weighed.
  void BeginGroup() {
    products_.FinishOutputs();
    if (added_ < weighed_) {
      products_.BeginOutputs(weight_lines_[group_][added_], values_[group_] + added_, weighed_ - added_);
    }
    group_ ^= 1;
    weighed_ = added_ = 0;
  }
  // Adds the values of all blocks that have been weighed, at once.
  void AddWeighed() {
    products_.FinishOutputs();
    if (added_ == weighed_) return;
    products_.BeginOutputs(weight_lines_[group_][added_], values_[group_] + added_, weighed_ - added_);
    products_.FinishOutputs();
    added_ = weighed_;
  }

  void FindBlocksInPlace() {
    int32_t first = 0x7fffffff, end = 0;
    last_first_ = 0;
    least_end_ = 0x7fffffff;
    for (int64_t r = 0; r < args_.num_rows; ++r) {
      const AttentionRow& row = args_.rows[r];
      if (row.first < first) first = row.first;
      if (row.first > last_first_) last_first_ = row.first;
      if (row.in_place_end > end) end = row.in_place_end;
      if (row.in_place_end < least_end_) least_end_ = row.in_place_end;
    }
    first_block_ = first / kBlockPositions;
    end_block_ = (end + kBlockPositions - 1) / kBlockPositions;
  }

  // Keys of a block in place. Behind the last one come those of the next head.
  const uint8_t* KeysAhead(int32_t block) const {
    const int32_t wrapped = block < end_block_ ? block : block + first_block_ - end_block_;
    return KeysOf(args_, wrapped < end_block_ ? wrapped : first_block_) +
           (block < end_block_ ? 0 : args_.next_head_bytes);
  }

  // Makes the weights of a block in place. Meanwhile products go on, and the block after the next one is fetched.
  // Returns whether all rows attend to the whole block.
  bool WeighBlock(int32_t block) {
    const float* scores = score_lines_[block % 2];
    products_.FetchLater(KeysAhead(block + 2));
    const int64_t steps = products_.StepsLeft();
    int64_t due = 0;
    const auto beside = [&](int64_t columns) __attribute__((always_inline)) {
      products_.Fetch(columns);
      for (due += columns * steps; due >= columns_.columns; due -= columns_.columns) products_.Step();
    };
    bool whole = kBlockPositions * block >= last_first_ && kBlockPositions * (block + 1) <= least_end_;
    int64_t c = 0;
    for (; whole && c + 2 <= columns_.columns; c += 2) {
      WeighTwo(c, scores + c * kBlockPositions);
      beside(2);
    }
    for (; c < columns_.columns; ++c) {
      const Range range = InPlace(block, args_.rows[c / args_.group]);
      whole = whole && range.whole();
      if (!range.empty()) {
        WeighColumn(c, scores + c * kBlockPositions, range);
      } else {
        __builtin_memset(weights_ + 16 * c, 0, kLine);
      }
      beside(1);
    }
    products_.Finish();
    return whole;
  }

  // Adds the values of a block with NaN or infinity row by row: rows that do not attend to such a value must not
  // multiply it.
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

  // Weighs a block in which a row has positions in other slots. The column takes its scores in the order of the row's
  // positions, and its weights go to the lanes where the values of these positions are.
  void WeighTail(const AttentionRow& row, int32_t block, int64_t tile_column, int64_t column) {
    const Range range = RangeIn(block, row);
    const int32_t skip = kBlockPositions * block - row.in_place_end;
    const float* scores = tail_scores_ + (column - tile_column) * args_.num_tail_blocks * kBlockPositions;
    const Scaled picked{Pick(scores, row.lanes + skip, range.end), Pick(scores, row.lanes + skip + 16, range.end - 16)};
    WeighScaled(column, ScaleScores(args_.scale, picked, &range));
    Rearrange(reinterpret_cast<uint16_t*>(weights_ + 16 * column), row.value_sources + skip);
  }

  // Adds a tail group's values to columns begin .. end - 1 of a tile, which are those of the group's rows.
  void AddTailGroup(const TailGroup& group, int64_t tile_column, int64_t begin, int64_t end) {
    __builtin_memset(weights_ + 16 * tile_column, 0, static_cast<uint64_t>(columns_.rows * kLine));
    for (int64_t c = begin; c < end; ++c) {
      const AttentionRow& row = args_.rows[c / args_.group];
      if (row.HasTailIn(group.block)) WeighTail(row, group.block, tile_column, c);
    }
    if (!Gather(group.slots)) return AddTailGroupByRows(group, begin, end);
    products_.SetRows(columns_.rows);
    products_.Add(tile_column, weights_, gathered_);
  }

  // The same where values are NaN or infinite: rows of the group that do not attend to them must not multiply them, not
  // even by 0.
  void AddTailGroupByRows(const TailGroup& group, int64_t begin, int64_t end) {
    int64_t next = 0;
    for (int64_t c = begin; c < end; c = next) {
      const AttentionRow& row = args_.rows[c / args_.group];
      const int64_t row_end = (c / args_.group + 1) * args_.group;
      next = row_end < end ? row_end : end;
      if (!row.HasTailIn(group.block)) continue;
      int32_t slots[kBlockPositions];
      const uint8_t* sources = row.value_sources + kBlockPositions * group.block - row.in_place_end;
      for (int32_t i = 0; i < kBlockPositions; ++i) slots[i] = sources[i] == kNoPosition ? kNoSlot : group.slots[i];
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

  // Computes tail_scores_ [16][tail block][32] of the tile of columns from `column` on.
  void ScoreTails(int64_t column) {
    products_.SetRows(columns_.rows);
    const int64_t stride = args_.num_tail_blocks * kBlockPositions;
    for (int32_t b = 0; b < args_.num_tail_blocks; ++b) {
      products_.Score(column, KeysOf(args_, args_.tail_blocks[b]), tail_scores_ + b * kBlockPositions, stride);
    }
  }

  // Adds 0 to every output, so that no zero is negative: a block in which only other rows have positions has added 0,
  // too.
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
  static constexpr int64_t kGroupBlocks = 4;

  const AttentionArgs& args_;
  AttentionProducts<Tiles> products_;
  const ColumnTiles& columns_;
  const int64_t width_;
  uint8_t* gathered_;  // [16][Dv][2], bf16
  float* tail_scores_;
  int32_t slots_[kBlockPositions];           // of gathered_; -1 = zeros
  uint32_t infinite_pairs_ = 0;              // of gathered_, a bit each
  int32_t first_block_ = 0, end_block_ = 0;  // in place
  int32_t last_first_ = 0, least_end_ = 0;   // of the rows: blocks between these are whole for all of them
  float reference_[kAttentionColumns];       // exponentials are relative to this score
  alignas(64) float sums_[kAttentionColumns * 16];
  // Two of each, for even and odd blocks and groups of blocks: one is weighed while the products of the other go on.
  alignas(64) float score_lines_[2][kAttentionColumns * kBlockPositions];
  alignas(64) uint32_t weight_lines_[2][kGroupBlocks][kBlockWeights];
  const uint8_t* values_[2][kGroupBlocks];
  int64_t group_ = 0, weighed_ = 0, added_ = 0;  // the group being weighed; its blocks weighed so far, and added
  uint32_t* weights_ = weight_lines_[0][0];      // of the block, or tail group, being weighed
};
