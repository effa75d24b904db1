// SPDX-License-Identifier: Apache-2.0
// Scores and outputs of attention over bf16 keys and values by tile registers, over Tiles (amx/tiles.h). Included
// inside each target's unnamed namespace, after <target>/lanes.h and <target>/attention_lanes.h.
//
// Columns, (row, head) pairs, are the lines of the first operand: up to 16 queries x 32 dimensions, or 16 columns'
// weights x 32 positions. A block's keys, [Dh / 2][32][2], and its values, [16][Dv][2], are the second operand as they
// lie, in lines that are 128 bytes or a row of values apart: so the layout is every target's. Sums are scores,
// [column][position], and outputs, [column][dimension], whose running sums are loaded into tiles and stored again for
// every few blocks.
//
// Line m of a sum depends on line m of the first operand only, so one row and many, and rows in place and rows of a
// tree, go through the same instructions with equal bits.

constexpr int64_t kLineDims = 32;  // of a tile line: dimensions of a query, or positions of a block
constexpr int64_t kKeyLineBytes = kBlockPositions * 4;
constexpr int64_t kStepKeys = kLineDims / 2 * kKeyLineBytes;
constexpr int64_t kLine = kTileRowBytes;
constexpr int64_t kBlockWeights = kAttentionColumns * kLine / 4;  // [column][16 pairs]

// An item's columns, cut into as few tiles as can be, all of one number of columns.
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

// Registers: 0, 1 sums of a tile of columns, 2, 3 of another; 4 the first operand, of one and then of the other; 5, 6
// second operands, two times 16 positions or dimensions. Two tiles of columns at a time, so that four sums are busy,
// and no register more than needed (amx/tiles_instructions.h).
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

  // Queries, outputs of 0.
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

  // Lines of first operands and sums. Fewer take less time, and what lies behind them is neither read nor written.
  void SetRows(int64_t rows) {
    if (rows == configured_rows_) return;
    configured_rows_ = rows;
    TileConfig config = FullTiles(7);
    for (int t = 0; t < 5; ++t) config.rows[t] = static_cast<uint8_t>(rows);
    tiles_.Configure(config);
  }

  // At once, for the tile of columns from `column` on: scores [16][32], a column's `stride` floats behind that of the
  // one before, and outputs += weights [columns][16 pairs] * values.
  void Score(int64_t column, const uint8_t* keys, float* scores, int64_t stride) {
    CopyLastKeys(keys);
    for (int64_t step = 0; step < steps_; ++step) ScoreStep<1>(column, step, keys);
    StoreScores<1>(scores, stride);
  }
  void Add(int64_t column, const uint32_t* weights, const uint8_t* values) {
    for (int64_t d = 0; d < width_; d += kLineDims) AddStep<1>(column, d, weights, values, d == 0, true);
    StoreAllOutputs();
  }

  // For all columns and step by step, so that tiles multiply while vector code makes weights of another block. A step
  // is four products.
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
  // Makes one of `parts` parts of the passes due.
  void MakeDue(int64_t parts) {
    if (values_ == nullptr) return;
    due_ += (passes_ + parts - 1) / parts;
    if (due_ > passes_) due_ = passes_;
  }
  // Of passes that are due and of scores that have just been begun.
  int64_t StepsLeft() const { return (due_ - pass_) * count_ + (keys_ != nullptr ? pairs_ * steps_ : 0); }
  void Step() {
    if (pass_ < due_) {
      StepOfOutputs();
    } else if (keys_ != nullptr) {
      StepOfScores();
    }
    if (fetch_with_steps_) Fetch(1);
  }
  // All steps that are left, or those of all passes too.
  void Finish() {
    while (pass_ < due_ || keys_ != nullptr) Step();
  }
  void FinishOutputs() {
    Finish();
    if (values_ == nullptr) return;
    due_ = passes_;
    Finish();
  }

  // Keys and values of another block, by equal shares: with each column that is weighed, and with each step where
  // columns are few. Many prefetches in a row hold up the tile loads behind them, and both halves of both (two pages
  // each with 128 dimensions) in turn come faster than one after the other.
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
  void FetchRest() { Fetch(lines_ahead_); }  // a share is a line or more

 private:
  int64_t LinesOfShare() const {
    const int64_t shares = columns_.columns + (fetch_with_steps_ ? pairs_ * steps_ + passes_ : 0);
    return (half_ + shares - 1) / shares;
  }

  // To [step][column][32].
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

  // Of a last step that does not fill a tile line; 0: it does.
  int64_t LastStepDims() const { return args_.kv.head_dim % kLineDims; }
  // The last step's keys where they do not fill a tile: dimensions that are not there are zeros on both sides.
  void CopyLastKeys(const uint8_t* keys) {
    const int64_t dims = LastStepDims();
    if (dims == 0) return;
    __builtin_memcpy(last_keys_, keys + (steps_ - 1) * kStepKeys, static_cast<uint64_t>(dims / 2 * kKeyLineBytes));
  }

  // Step s of the scores of kTiles tiles of columns, from `column` on, against a block that CopyLastKeys has seen.
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

  // Outputs from `out` on, of kChunks * 16 dimensions: out += weights * values; the first tile's weights are in their
  // register.
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
  // The same from dimension d on, 32 or what is left. `load`: the first tile's weights are not in their register yet;
  // `change`: the outputs are not.
  template <int kTiles>
  void AddStep(int64_t column, int64_t d, const uint32_t* weights, const uint8_t* values, bool load, bool change) {
    weights += 16 * column;
    if (load) tiles_.template LoadLines<4>(weights, kLine);
    float* to = out(column) + d;
    d + kLineDims <= width_ ? AddChunks<kTiles, 2>(to, weights, values + 4 * d, change)
                            : AddChunks<kTiles, 1>(to, weights, values + 4 * d, change);
  }

  // The outputs at `out` in place of those in the register, right before the product that adds to them: the moves of
  // four together would fill the reorder buffer, which nothing leaves before the products that the stores wait for.
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
  // Before outputs in memory, or tiles' rows, are something else.
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
  const int64_t pairs_, passes_;  // of tiles of columns; of a group of blocks' values
  const bool fetch_with_steps_;
  const int64_t half_, lines_of_share_;  // lines of a half of a block's keys, and of its values; of them, in a share
  uint8_t* q_;                           // [step][column][32], bf16
  float* out_;                           // [column][Dv]
  uint8_t* last_keys_;                   // [16][32][2]
  int64_t configured_rows_ = 0;
  float* out_here_[4] = {};  // outputs in registers 0 .. 3
  // What has been begun (null: nothing, or no more), and where its next step is.
  const uint8_t* keys_ = nullptr;
  float* scores_ = nullptr;
  int64_t tile_ = 0, step_ = 0;
  const uint32_t* weights_ = nullptr;
  const uint8_t* const* values_ = nullptr;
  int64_t count_ = 0, pass_ = 0, due_ = 0, values_tile_ = 0, dimension_ = 0, block_ = 0;
  const uint8_t *keys_ahead_ = nullptr, *values_ahead_ = nullptr;  // half of what is left to fetch
  int64_t lines_ahead_ = 0;
  Tiles tiles_;
};
