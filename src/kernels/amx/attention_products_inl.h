// SPDX-License-Identifier: Apache-2.0
// Scores and outputs of attention over bf16 keys and values by tile registers, over Tiles (amx/tiles.h). Included
// inside each target's unnamed namespace, after <target>/lanes.h and <target>/attention_lanes.h.
//
// The first operand's lines are columns, (row, head) pairs: up to 16 queries x 32 dimensions, or the weights of 16
// columns x 32 positions. The second operand is a block's keys, [Dh / 2][32][2], or its values, [16][Dv][2], as they
// lie, in lines that are 128 bytes or a row of values apart. That is why every target uses this layout. The sums are
// scores, [column][position], or outputs, [column][dimension]. Running sums of outputs are loaded into tiles and stored
// again once for every few blocks.
//
// Line m of a sum depends only on line m of the first operand. So one row or many, rows in place or rows of a tree go
// through the same instructions and give equal bits.

constexpr int64_t kLineDims = 32;  // of a tile line: dimensions of a query, or positions of a block
constexpr int64_t kKeyLineBytes = kBlockPositions * 4;
constexpr int64_t kStepKeys = kLineDims / 2 * kKeyLineBytes;
constexpr int64_t kLine = kTileRowBytes;
constexpr int64_t kBlockWeights = kAttentionColumns * kLine / 4;  // [column][16 pairs]

// The columns of an item, cut into as few tiles as possible, each with the same number of columns.
struct ColumnTiles {
  explicit ColumnTiles(int64_t num_columns)
      : columns(num_columns),
        count((columns + kTileRows - 1) / kTileRows),
        rows((columns + count - 1) / count),
        padded(count * rows) {}

  const int64_t columns;
  const int64_t count, rows;  // tiles, columns of each
  const int64_t padded;       // columns of all tiles

  int64_t spare() const { return padded - columns; }
};

// Registers: 0 and 1 hold sums of one tile of columns, 2 and 3 those of another. 4 holds the first operand of the one
// and then of the other. 5 and 6 hold second operands of 16 positions or dimensions each. Two tiles of columns at a
// time keep four sums busy. No register is used without need (amx/tiles_instructions.h).
template <typename Tiles>
class AttentionProducts {
 public:
  explicit AttentionProducts(const AttentionArgs& args)
      : args_(args),
        columns_(args.group * args.num_rows),
        width_(ValueWidth(args.kv.head_dim)),
        steps_((args.kv.head_dim + kLineDims - 1) / kLineDims),
        pairs_((columns_.count + 1) / 2),
        passes_(pairs_ * ((width_ + kLineDims - 1) / kLineDims)),
        fetch_with_steps_(columns_.columns < 2 * kTileRows),
        half_(args.kv.head_dim / 2),
        lines_of_share_(LinesOfShare()),
        q_(reinterpret_cast<uint8_t*>(args.scratch)),
        out_(args.scratch + columns_.padded * width_),
        last_keys_(reinterpret_cast<uint8_t*>(out_ + columns_.padded * width_)) {}

  const ColumnTiles& columns() const { return columns_; }
  float* out(int64_t column) { return out_ + column * width_; }  // [Dv]
  uint8_t* scratch_left() { return last_keys_ + kStepKeys; }     // of the arguments' scratch

  // Packs the queries and sets the outputs to 0.
  void Begin() {
    if (columns_.spare() > 0 || LastStepDims() > 0) {
      __builtin_memset(q_, 0, static_cast<uint64_t>(columns_.padded * steps_ * kLine));
      __builtin_memset(last_keys_, 0, static_cast<uint64_t>(kStepKeys));
    }
    for (int64_t i = 0; i < columns_.padded * width_; i += 16) Store(out_ + i, Set(0.0F));
    for (int64_t c = 0; c < columns_.columns; ++c) PackQuery(c);
    SetRows(columns_.rows);
  }
  void Release() { tiles_.Release(); }

  // Sets the number of lines of first operands and sums. Fewer lines take less time, and lines behind them are neither
  // read nor written.
  void SetRows(int64_t rows) {
    if (rows == configured_rows_) return;
    configured_rows_ = rows;
    TileConfig config = FullTiles(7);
    for (int t = 0; t < 5; ++t) config.rows[t] = static_cast<uint8_t>(rows);
    tiles_.Configure(config);
  }

  // Score and Add do all their work at once, for the tile of columns from `column` on. Scores are [16][32], with
  // `stride` floats from column to column. Add: outputs += weights [columns][16 pairs] * values.
  void Score(int64_t column, const uint8_t* keys, float* scores, int64_t stride) {
    CopyLastKeys(keys);
    for (int64_t step = 0; step < steps_; ++step) ScoreStep<1>(column, step, keys);
    StoreScores<1>(scores, stride);
  }
  void Add(int64_t column, const uint32_t* weights, const uint8_t* values) {
    for (int64_t d = 0; d < width_; d += kLineDims) AddStep<1>(column, d, weights, values, d == 0, true);
    StoreAllOutputs();
  }

  // BeginScores and BeginOutputs start work on all columns that Step does bit by bit, so that tiles multiply while
  // vector code makes the weights of another block. A step is four products.
  void BeginScores(const uint8_t* keys, float* scores) {
    CopyLastKeys(keys);
    keys_ = keys;
    scores_ = scores;
  }
  // Outputs += weights [count][kBlockWeights] * values [count]. A pass adds all `count` blocks to two tiles of columns
  // by 32 dimensions.
  void BeginOutputs(const uint32_t* weights, const uint8_t* const* values, int64_t count) {
    weights_ = weights;
    values_ = values;
    count_ = count;
    pass_ = due_ = values_tile_ = 0;
  }
  // Makes one more of `parts` equal parts of the passes due.
  void MakeDue(int64_t parts) {
    if (values_ == nullptr) return;
    due_ += (passes_ + parts - 1) / parts;
    if (due_ > passes_) due_ = passes_;
  }
  // Steps that are left of the passes that are due, and of scores that have just been begun.
  int64_t StepsLeft() const { return (due_ - pass_) * count_ + (keys_ != nullptr ? pairs_ * steps_ : 0); }
  void Step() {
    if (pass_ < due_) {
      StepOfOutputs();
    } else if (keys_ != nullptr) {
      StepOfScores();
    }
    if (fetch_with_steps_) Fetch(1);
  }
  // Finish does all steps of the passes that are due, FinishOutputs those of all passes.
  void Finish() {
    while (pass_ < due_ || keys_ != nullptr) Step();
  }
  void FinishOutputs() {
    Finish();
    if (values_ == nullptr) return;
    due_ = passes_;
    Finish();
  }

  // Fetches the keys and values of another block in equal shares: one with each column that is weighed, and also one
  // with each step where columns are few. Many prefetches in a row would hold up the tile loads behind them. Lines of
  // both halves of keys and values come in turn, which is faster than one half after the other (with 128 dimensions,
  // keys and values are two pages each).
  void FetchLater(const uint8_t* keys) {
    FetchRest();
    keys_ahead_ = keys;
    values_ahead_ = keys + (args_.kv.values - args_.kv.keys);
    lines_ahead_ = half_;
  }
  [[gnu::always_inline]] void Fetch(int64_t shares) {
    int64_t lines = shares * lines_of_share_;
    if (lines > lines_ahead_) lines = lines_ahead_;
    lines_ahead_ -= lines;
    for (const uint8_t* end = keys_ahead_ + lines * kLine; keys_ahead_ < end; keys_ahead_ += kLine) {
      __builtin_prefetch(keys_ahead_, 0, 2);
      __builtin_prefetch(values_ahead_, 0, 2);
      __builtin_prefetch(keys_ahead_ + half_ * kLine, 0, 2);
      __builtin_prefetch(values_ahead_ + half_ * kLine, 0, 2);
      values_ahead_ += kLine;
    }
  }
  void FetchRest() { Fetch(lines_ahead_); }  // a share is at least one line

 private:
  int64_t LinesOfShare() const {
    const int64_t shares = columns_.columns + (fetch_with_steps_ ? pairs_ * steps_ + passes_ : 0);
    return (half_ + shares - 1) / shares;
  }

  // Rounds a query and stores it to q_, [step][column][32].
  void PackQuery(int64_t column) {
    const int64_t head_dim = args_.kv.head_dim;
    const float* q = args_.q + column / args_.group * args_.q_stride + column % args_.group * head_dim;
    const auto load = [&](int64_t d) {
      const int64_t n = head_dim - d;
      return n >= 16 ? Load(q + d) : n > 0 ? LoadPart(q + d, n) : Set(0.0F);
    };
    for (int64_t d = 0; d < head_dim; d += kLineDims) {
      uint8_t* to = q_ + (d / kLineDims * columns_.padded + column) * kLine;
      StoreForTiles(reinterpret_cast<uint16_t*>(to), load(d), load(d + 16));
    }
  }

  // Dimensions of a last step that does not fill a tile line; 0: it does.
  int64_t LastStepDims() const { return args_.kv.head_dim % kLineDims; }
  // Copies the last step's keys where they do not fill a tile: the missing dimensions are zeros in keys and queries.
  void CopyLastKeys(const uint8_t* keys) {
    const int64_t dims = LastStepDims();
    if (dims == 0) return;
    __builtin_memcpy(last_keys_, keys + (steps_ - 1) * kStepKeys, static_cast<uint64_t>(dims / 2 * kKeyLineBytes));
  }

  // Step s of the scores of kTiles tiles of columns, from `column` on. CopyLastKeys must have seen this block.
  template <int kTiles>
  void ScoreStep(int64_t column, int64_t s, const uint8_t* keys) {
    const bool copied = s + 1 == steps_ && LastStepDims() > 0;
    const uint8_t* from = copied ? last_keys_ : keys + s * kStepKeys;
    const uint8_t* q = q_ + (s * columns_.padded + column) * kLine;
    if (s == 0) ZeroScores<kTiles>();
    tiles_.template LoadLines<4>(q, kLine);
    tiles_.template LoadLines<5>(from, kKeyLineBytes);
    tiles_.template MultiplyBf16<0, 4, 5>();
    tiles_.template LoadLines<6>(from + kLine, kKeyLineBytes);
    tiles_.template MultiplyBf16<1, 4, 6>();
    if constexpr (kTiles == 2) {
      tiles_.template LoadLines<4>(q + columns_.rows * kLine, kLine);
      tiles_.template MultiplyBf16<2, 4, 5>();
      tiles_.template MultiplyBf16<3, 4, 6>();
    }
  }
  template <int kTiles>
  void ZeroScores() {
    tiles_.template Zero<0>();
    tiles_.template Zero<1>();
    if constexpr (kTiles == 2) {
      tiles_.template Zero<2>();
      tiles_.template Zero<3>();
    }
  }
  template <int kTiles>
  void StoreScores(float* scores, int64_t stride) {
    const int64_t next = columns_.rows * stride, bytes = 4 * stride;
    tiles_.template StoreLines<0>(scores, bytes);
    tiles_.template StoreLines<1>(scores + 16, bytes);
    if constexpr (kTiles == 2) {
      tiles_.template StoreLines<2>(scores + next, bytes);
      tiles_.template StoreLines<3>(scores + next + 16, bytes);
    }
  }

  // out += weights * values, for kChunks * 16 dimensions from `out` on. The first tile's weights are in their register.
  // `change`: other outputs are in the registers.
  template <int kTiles, int kChunks>
  void AddChunks(float* out, const uint32_t* weights, const uint8_t* values, bool change) {
    const int64_t stride = 4 * width_, next = columns_.rows * width_;
    tiles_.template LoadLines<5>(values, stride);
    if (change) ChangeOutputs<0>(out);
    tiles_.template MultiplyBf16<0, 4, 5>();
    if constexpr (kChunks == 2) {
      tiles_.template LoadLines<6>(values + kLine, stride);
      if (change) ChangeOutputs<1>(out + 16);
      tiles_.template MultiplyBf16<1, 4, 6>();
    }
    if constexpr (kTiles == 2) {
      tiles_.template LoadLines<4>(weights + 16 * columns_.rows, kLine);
      if (change) ChangeOutputs<2>(out + next);
      tiles_.template MultiplyBf16<2, 4, 5>();
    }
    if constexpr (kTiles == 2 && kChunks == 2) {
      if (change) ChangeOutputs<3>(out + next + 16);
      tiles_.template MultiplyBf16<3, 4, 6>();
    }
  }
  // The same from dimension d on, for 32 dimensions or what is left. `load`: the first tile's weights have to be
  // loaded.
  template <int kTiles>
  void AddStep(int64_t column, int64_t d, const uint32_t* weights, const uint8_t* values, bool load, bool change) {
    weights += 16 * column;
    if (load) tiles_.template LoadLines<4>(weights, kLine);
    float* to = out(column) + d;
    d + kLineDims <= width_ ? AddChunks<kTiles, 2>(to, weights, values + 4 * d, change)
                            : AddChunks<kTiles, 1>(to, weights, values + 4 * d, change);
  }

  // Replaces the outputs in a register by those at `out`, right before the product that adds to them. Moving all four
  // registers together would fill the reorder buffer, where the stores wait for the products before them.
  template <int kSum>
  void ChangeOutputs(float* out) {
    StoreOutputs<kSum>();
    tiles_.template LoadLines<kSum>(out, 4 * width_);
    out_here_[kSum] = out;
  }
  template <int kSum>
  void StoreOutputs() {
    float*& out = out_here_[kSum];
    if (out != nullptr) tiles_.template StoreLines<kSum>(out, 4 * width_);
    out = nullptr;
  }
  // Call it before outputs in memory are read or written, or tiles get another number of rows.
  void StoreAllOutputs() {
    StoreOutputs<0>();
    StoreOutputs<1>();
    StoreOutputs<2>();
    StoreOutputs<3>();
  }

  void StepOfOutputs() {
    const uint32_t* weights = weights_ + block_ * kBlockWeights;
    const bool change = block_ == 0;
    const int64_t column = values_tile_ * columns_.rows;
    values_tile_ + 1 < columns_.count ? AddStep<2>(column, dimension_, weights, values_[block_], true, change)
                                      : AddStep<1>(column, dimension_, weights, values_[block_], true, change);
    if (++block_ < count_) return;
    block_ = 0;
    dimension_ += kLineDims;
    if (dimension_ >= width_) {
      dimension_ = 0;
      values_tile_ += 2;
    }
    if (++pass_ < due_) return;
    StoreAllOutputs();
    if (pass_ == passes_) values_ = nullptr;
  }
  void StepOfScores() {
    const int64_t column = tile_ * columns_.rows;
    const bool two = tile_ + 1 < columns_.count;
    two ? ScoreStep<2>(column, step_, keys_) : ScoreStep<1>(column, step_, keys_);
    if (++step_ < steps_) return;
    float* scores = scores_ + column * kBlockPositions;
    two ? StoreScores<2>(scores, kBlockPositions) : StoreScores<1>(scores, kBlockPositions);
    step_ = 0;
    tile_ += 2;
    if (tile_ < columns_.count) return;
    tile_ = 0;
    keys_ = nullptr;
  }

  const AttentionArgs& args_;
  const ColumnTiles columns_;
  const int64_t width_, steps_;   // Dv; products of 32 dimensions in a score
  const int64_t pairs_, passes_;  // pairs of tiles of columns; passes over a group of blocks' values
  const bool fetch_with_steps_;
  const int64_t half_, lines_of_share_;  // lines: of half of a block's keys (or values); of one share
  uint8_t* q_;                           // [step][column][32], bf16
  float* out_;                           // [column][Dv]
  uint8_t* last_keys_;                   // [16][32][2]
  int64_t configured_rows_ = 0;
  float* out_here_[4] = {};  // outputs in registers 0 .. 3
  // The work that has been begun (null: none, or all is done), and where its next step is.
  const uint8_t* keys_ = nullptr;
  float* scores_ = nullptr;
  int64_t tile_ = 0, step_ = 0;
  const uint32_t* weights_ = nullptr;
  const uint8_t* const* values_ = nullptr;
  int64_t count_ = 0, pass_ = 0, due_ = 0, values_tile_ = 0, dimension_ = 0, block_ = 0;
  const uint8_t *keys_ahead_ = nullptr, *values_ahead_ = nullptr;  // first half of what is left to fetch
  int64_t lines_ahead_ = 0;
  Tiles tiles_;
};
