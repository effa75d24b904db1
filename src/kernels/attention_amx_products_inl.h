// SPDX-License-Identifier: Apache-2.0
// Scores and outputs of attention over bf16 keys and values by tile registers, over Tiles (amx_tiles.h). Included
// inside each target's unnamed namespace, after lanes_<target>.h and attention_lanes_<target>.h.
//
// Columns, (row, head) pairs, are the lines of the first operand: up to 16 queries x 32 dimensions, or 16 columns'
// weights x 32 positions. A block's keys, [Dh / 2][32][2], and its values, [16][Dv][2], are the second operand as they
// lie, in lines that are 128 bytes or a row of values apart: so the layout is every target's. Sums are scores,
// [column][position], and outputs, [column][dimension], whose running sums are loaded into tiles and stored again for
// every block.
//
// Line m of a sum depends on line m of the first operand only, so one row and many, and rows in place and rows of a
// tree, go through the same instructions with equal bits.

constexpr int64_t kLineDims = 32;  // of a tile line: dimensions of a query, or positions of a block
constexpr int64_t kKeyLineBytes = kBlockPositions * 4;
constexpr int64_t kStepKeys = kLineDims / 2 * kKeyLineBytes;
constexpr int64_t kLine = kTileRowBytes;

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

// Registers: 0, 1 first operands of two tiles of columns; 2, 3 sums of the first of them, 4, 5 of the second; 6, 7
// second operands, two times 16 positions or dimensions. Two tiles of columns at a time, so that four sums are busy.
template <typename Tiles>
class AttentionProducts {
 public:
  explicit AttentionProducts(const AttentionArgs& args)
      : args_(args),
        columns_(args.group * args.num_rows),
        width_(ValueWidth(args.kv.head_dim)),
        steps_((args.kv.head_dim + kLineDims - 1) / kLineDims),
        per_product_(columns_.columns < 2 * kTileRows ? args.kv.head_dim / (2 * steps_ * columns_.count) : 2),
        per_pair_(per_product_ * steps_ * (columns_.count == 1 ? 2 : 4) * kLine),
        share_(ShareOfColumn()),
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
    TileConfig config = FullTiles();
    for (int t = 0; t < 6; ++t) config.rows[t] = static_cast<uint8_t>(rows);
    tiles_.Configure(config);
  }

  // At once, for the tile of columns from `column` on: scores [16][32], and outputs += weights [columns][16 pairs] *
  // values.
  void Score(int64_t column, const uint8_t* keys, float* scores) {
    CopyLastKeys(keys);
    const uint8_t* ahead = nullptr;
    for (int64_t step = 0; step < steps_; ++step) ScoreStep<1>(column, step, keys, &ahead);
    StoreScores<1>(scores);
  }
  void Add(int64_t column, const uint32_t* weights, const uint8_t* values) {
    const uint8_t* ahead = nullptr;
    for (int64_t d = 0; d < width_; d += kLineDims) AddStep<1>(column, d, weights, values, &ahead);
    StoreAllOutputs();
  }

  // For all columns and step by step, so that tiles multiply while vector code makes weights of another block: first
  // the outputs, then the scores, whichever were begun. A step is four products. `ahead`: what to fetch meanwhile.
  void BeginOutputs(const uint32_t* weights, const uint8_t* values, const uint8_t* ahead) {
    weights_ = weights;
    values_ = values;
    values_ahead_ = ahead;
  }
  void BeginScores(const uint8_t* keys, const uint8_t* ahead, float* scores) {
    CopyLastKeys(keys);
    keys_ = keys;
    keys_ahead_ = ahead;
    scores_ = scores;
  }
  int64_t StepsLeft() const {  // of what has just been begun
    const int64_t pairs = (columns_.count + 1) / 2;
    return (values_ != nullptr ? pairs * ((width_ + kLineDims - 1) / kLineDims) : 0) +
           (keys_ != nullptr ? pairs * steps_ : 0);
  }
  void Step() {
    if (values_ != nullptr) {
      StepOfOutputs();
    } else if (keys_ != nullptr) {
      StepOfScores();
    }
  }
  void FinishOutputs() {
    while (values_ != nullptr) StepOfOutputs();
  }
  void Finish() {
    while (values_ != nullptr || keys_ != nullptr) Step();
  }

  // A column's part of what is fetched of a block, while its weights are made.
  [[gnu::always_inline]] void FetchShare(int64_t column, const uint8_t* keys, const uint8_t* values) const {
    const int64_t begin = columns_.count / 2 * per_pair_ + column * share_;
    for (int64_t at = begin; at < begin + share_; at += kLine) {
      __builtin_prefetch(keys + at, 0, 2);
      __builtin_prefetch(values + at, 0, 2);
    }
  }

 private:
  // To [step][column][32].
  void PackQuery(int64_t column) {
    const int64_t head_dim = args_.kv.head_dim;
    const float* q = args_.q + column / args_.group * args_.q_stride + column % args_.group * head_dim;
    for (int64_t d = 0; d < head_dim; d += 16) {
      const int64_t n = head_dim - d < 16 ? head_dim - d : 16;
      uint8_t* to = q_ + (d / kLineDims * columns_.padded + column) * kLine + d % kLineDims * 2;
      StoreBf16(reinterpret_cast<uint16_t*>(to), RoundBf16(n == 16 ? Load(q + d) : LoadPart(q + d, n)));
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
  void ScoreStep(int64_t column, int64_t s, const uint8_t* keys, const uint8_t** ahead) {
    const bool copied = s + 1 == steps_ && LastStepDims() > 0;
    const uint8_t* from = copied ? last_keys_ : keys + s * kStepKeys;
    const uint8_t* q = q_ + (s * columns_.padded + column) * kLine;
    if (s == 0) ZeroScores<kTiles>();
    tiles_.template LoadLines<0>(q, kLine);
    tiles_.template LoadLines<6>(from, kKeyLineBytes);
    tiles_.template MultiplyBf16<2, 0, 6>();
    Fetch(ahead);
    tiles_.template LoadLines<7>(from + kLine, kKeyLineBytes);
    tiles_.template MultiplyBf16<3, 0, 7>();
    Fetch(ahead);
    if constexpr (kTiles == 2) {
      tiles_.template LoadLines<1>(q + columns_.rows * kLine, kLine);
      tiles_.template MultiplyBf16<4, 1, 6>();
      Fetch(ahead);
      tiles_.template MultiplyBf16<5, 1, 7>();
      Fetch(ahead);
    }
  }
  template <int kTiles>
  void ZeroScores() {
    tiles_.template Zero<2>();
    tiles_.template Zero<3>();
    if constexpr (kTiles == 2) {
      tiles_.template Zero<4>();
      tiles_.template Zero<5>();
    }
  }
  template <int kTiles>
  void StoreScores(float* scores) {
    const int64_t next = columns_.rows * kBlockPositions;
    tiles_.template StoreLines<2>(scores, kKeyLineBytes);
    tiles_.template StoreLines<3>(scores + 16, kKeyLineBytes);
    if constexpr (kTiles == 2) {
      tiles_.template StoreLines<4>(scores + next, kKeyLineBytes);
      tiles_.template StoreLines<5>(scores + next + 16, kKeyLineBytes);
    }
  }

  // Outputs from `out` on, of kChunks * 16 dimensions: out += weights in registers 0, 1 * values.
  template <int kTiles, int kChunks>
  void AddChunks(float* out, const uint8_t* values, const uint8_t** ahead) {
    const int64_t stride = 4 * width_, next = columns_.rows * width_;
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
  // The same from dimension d on, 32 or what is left. Weights are loaded with the first.
  template <int kTiles>
  void AddStep(int64_t column, int64_t d, const uint32_t* weights, const uint8_t* values, const uint8_t** ahead) {
    if (d == 0) {
      tiles_.template LoadLines<0>(weights + 16 * column, kLine);
      if constexpr (kTiles == 2) tiles_.template LoadLines<1>(weights + 16 * (column + columns_.rows), kLine);
    }
    float* to = out(column) + d;
    d + kLineDims <= width_ ? AddChunks<kTiles, 2>(to, values + 4 * d, ahead)
                            : AddChunks<kTiles, 1>(to, values + 4 * d, ahead);
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

  void StepOfOutputs() {
    const int64_t column = tile_ * columns_.rows, d = step_ * kLineDims;
    if (d == 0) ahead_ = PartOf(values_ahead_);
    tile_ + 1 < columns_.count ? AddStep<2>(column, d, weights_, values_, &ahead_)
                               : AddStep<1>(column, d, weights_, values_, &ahead_);
    if (!NextStep(d + kLineDims >= width_)) return;
    StoreAllOutputs();
    values_ = nullptr;
  }
  void StepOfScores() {
    const int64_t column = tile_ * columns_.rows, step = step_;
    const bool two = tile_ + 1 < columns_.count, last = step + 1 == steps_;
    if (step == 0) ahead_ = PartOf(keys_ahead_);
    two ? ScoreStep<2>(column, step, keys_, &ahead_) : ScoreStep<1>(column, step, keys_, &ahead_);
    float* scores = scores_ + column * kBlockPositions;
    if (last) two ? StoreScores<2>(scores) : StoreScores<1>(scores);
    if (NextStep(last)) keys_ = nullptr;
  }
  // Whether that was the last.
  bool NextStep(bool last_of_tile) {
    ++step_;
    if (!last_of_tile) return false;
    step_ = 0;
    tile_ += 2;
    if (tile_ < columns_.count) return false;
    tile_ = 0;
    return true;
  }

  // What a product has time for.
  void Fetch(const uint8_t** ahead) const {
    if (*ahead == nullptr) return;
    for (int64_t i = 0; i < per_product_; ++i, *ahead += kLine) __builtin_prefetch(*ahead, 0, 2);
  }
  // What the products of tile_ and the one behind fetch of a block's keys or values.
  const uint8_t* PartOf(const uint8_t* ahead) const {
    const int64_t begin = tile_ / 2 * per_pair_;
    return begin + per_pair_ <= args_.kv.head_dim * kLine ? ahead + begin : nullptr;
  }
  int64_t ShareOfColumn() const {
    const int64_t left = args_.kv.head_dim * kLine - columns_.count / 2 * per_pair_;
    if (columns_.columns < 2 * kTileRows || left <= 0) return 0;
    return (left / kLine + columns_.columns - 1) / columns_.columns * kLine;
  }

  const AttentionArgs& args_;
  const ColumnTiles columns_;
  const int64_t width_, steps_;  // Dv; products of 32 dimensions in a score
  // Lines of another block that are fetched with each product, bytes of its keys, and of its values, with the products
  // of two tiles and with each column's weights. Many prefetches in a row hold up the tile loads behind them. Few
  // columns have no time for a block: all lines go with the products.
  const int64_t per_product_, per_pair_, share_;
  uint8_t* q_;          // [step][column][32], bf16
  float* out_;          // [column][Dv]
  uint8_t* last_keys_;  // [16][32][2]
  int64_t configured_rows_ = 0;
  float* out_here_[4] = {};  // outputs in registers 2 .. 5
  // What has been begun (null: nothing, or no more), where its next step is, and what that fetches.
  const uint32_t* weights_ = nullptr;
  const uint8_t *values_ = nullptr, *values_ahead_ = nullptr;
  const uint8_t *keys_ = nullptr, *keys_ahead_ = nullptr;
  float* scores_ = nullptr;
  int64_t tile_ = 0, step_ = 0;
  const uint8_t* ahead_ = nullptr;
  Tiles tiles_;
};
