// SPDX-License-Identifier: Apache-2.0
#include "kernels/ops/matmul.h"

#include <algorithm>
#include <new>

#include "base/check.h"
#include "kernels/kernels.h"

namespace hydrant::kernels {
namespace {

int64_t SliceOf(int64_t inputs) { return (inputs + kSlices - 1) / kSlices; }
int64_t PaddedSliceOf(int64_t inputs) { return (SliceOf(inputs) + 7) / 8 * 8; }

int64_t RoundToLines(int64_t bytes) { return (bytes + kLineBytes - 1) / kLineBytes * kLineBytes; }

int64_t PaddedInputs(int64_t inputs) { return (inputs + kStepInputs - 1) / kStepInputs * kStepInputs; }

// Tiles expand weights once for all code rows of a call, so that a call takes as many code rows as it may.
int64_t ChunkRows(const KernelTable& table, InputKind kind) {
  if (kind == InputKind::kF32 || !table.multiplies_by_tiles) return kMatmulRows;
  return kind == InputKind::kInt16 ? kMaxCodeRows / 2 : kMaxCodeRows;
}

// Whether each thread makes whole blocks of quads. A row's quads are four bytes here and there in lines that sixteen
// rows share: threads that wrote them row by row would take each line from one another (4.5 % of a pass: 7B, 16 rows,
// two cores with AMX). So rows become lines first. Where there are enough blocks for all threads, each thread makes
// whole blocks. Otherwise all threads turn lines into quads after all rows are there.
bool DividesWell(int64_t blocks, int threads) { return blocks % threads == 0 || blocks >= 4 * threads; }

// Number of panels that stay in a second-level cache (1 or 2 MB) while several chunks of rows go through them.
int64_t GroupPanels(const MatmulJob& job) {
  constexpr int64_t kGroupBytes = 512 * 1024;
  const int64_t bytes = job.weight->packed.panel_bytes();
  return std::max<int64_t>(2, kGroupBytes / std::max<int64_t>(1, bytes) / 2 * 2);
}

// For few rows slices are faster, also where a vector has only eight lanes, as long as the inputs stay in L1. GMAC/s on
// one core of AMD Zen 3, bf16 from memory:
//   rows, inputs   8, 256   8, 704   8, 2,048   6, 2,048
//   by slices      27       30       19         19
//   by lanes       19       25       25         20
bool GoBySlices(int64_t rows, int64_t inputs) {
  constexpr int64_t kL1Bytes = 24 * 1024;
  return rows <= 6 || (rows <= kSliceRows && rows * inputs * int64_t{sizeof(float)} <= kL1Bytes);
}

// Packs one row as [padded slice][8], with zeros past the inputs, so that the vector kernels may multiply there.
void PackSlices(const float* x, int64_t inputs, float* packed) {
  const int64_t slice = SliceOf(inputs), padded = PaddedSliceOf(inputs);
  for (int64_t s = 0; s < kSlices; ++s) {
    const int64_t begin = std::min(s * slice, inputs);
    const int64_t count = std::min(slice, inputs - begin);
    for (int64_t j = 0; j < count; ++j) packed[j * kSlices + s] = x[begin + j];
    for (int64_t j = count; j < padded; ++j) packed[j * kSlices + s] = 0.0F;
  }
}

}  // namespace

Weight Weight::Of(const TensorView& tensor) {
  HYDRANT_CHECK(tensor.shape.size() == 2);
  Weight weight;
  weight.data = tensor.data;
  weight.dtype = tensor.dtype;
  weight.outputs = tensor.shape[0];
  weight.inputs = tensor.shape[1];
  weight.row_stride = tensor.shape[1];
  return weight;
}

Weight Weight::Of(const PackedMatrix& matrix, bool two_planes) {
  HYDRANT_CHECK(matrix.inputs <= kMaxPackedInputs);
  Weight weight;
  weight.outputs = matrix.outputs;
  weight.inputs = matrix.inputs;
  weight.packed = matrix;
  weight.kind = two_planes ? InputKind::kInt16 : InputKind::kInt8;
  return weight;
}

Weight Weight::Columns(int64_t begin, int64_t count) const {
  HYDRANT_CHECK(kind == InputKind::kF32 && begin >= 0 && count >= 0 && begin + count <= inputs);
  Weight part = *this;
  part.data += static_cast<size_t>(begin) * SizeOf(dtype);
  part.inputs = count;
  return part;
}

void MatmulInput::Reserve(const KernelTable& table, InputKind kind, int64_t rows, int64_t inputs) {
  const bool same = kind == kind_ && rows == rows_ && inputs == inputs_ && table_ == &table;
  if (same && ready_) return;
  ready_ = false;
  table_ = &table;
  kind_ = kind;
  rows_ = rows;
  inputs_ = inputs;
  chunks_.clear();
  const int64_t chunk_rows = ChunkRows(table, kind);
  for (int64_t first = 0; first < rows; first += chunk_rows) {
    chunks_.push_back({.first = first, .rows = std::min(chunk_rows, rows - first)});
  }
  if (kind == InputKind::kF32) {
    PlanFloats();
  } else {
    PlanCodes();
  }
  ready_ = true;
}

void MatmulInput::Grow(int64_t bytes) {
  if (bytes <= capacity_) return;
  auto* memory = static_cast<uint8_t*>(std::aligned_alloc(64, static_cast<size_t>(RoundToLines(bytes))));
  if (memory == nullptr) throw std::bad_alloc();
  memory_.reset(memory);
  capacity_ = bytes;
}

// Decides which rows go by lanes and where each group and row is packed.
void MatmulInput::PlanFloats() {
  pieces_.clear();
  int64_t floats = 0;
  for (Chunk& chunk : chunks_) {
    int64_t groups = 0;
    if (table_->row_lanes > 0 && !GoBySlices(chunk.rows, inputs_)) {
      groups = chunk.rows / table_->row_lanes;
      if (chunk.rows % table_->row_lanes >= table_->min_row_lanes) ++groups;
    }
    chunk.lane_rows = std::min(chunk.rows, groups * table_->row_lanes);
    chunk.lanes_offset = floats;
    for (int64_t g = 0; g < groups; ++g, floats += table_->row_lanes * inputs_) {
      const int64_t first = g * table_->row_lanes;
      pieces_.push_back({chunk.first + first, std::min(table_->row_lanes, chunk.rows - first), true, floats});
    }
    chunk.slices_offset = floats;
    for (int64_t r = chunk.lane_rows; r < chunk.rows; ++r, floats += PaddedSliceOf(inputs_) * kSlices) {
      pieces_.push_back({chunk.first + r, 1, false, floats});
    }
  }
  Grow(floats * 4);
}

void MatmulInput::PlanCodes() {
  const int64_t planes = kind_ == InputKind::kInt16 ? 2 : 1;
  const int64_t padded = PaddedInputs(inputs_), code_rows = rows_ * planes;
  int64_t sizes[kMaxCodeRows];
  blocks_.clear();
  places_.clear();
  int64_t bytes = 0;
  for (Chunk& chunk : chunks_) {
    chunk.code_rows = chunk.rows * planes;
    chunk.first_block = static_cast<int64_t>(blocks_.size());
    chunk.num_blocks = table_->plan_row_blocks(chunk.code_rows, sizes);
    int64_t first = 0;
    for (int64_t b = 0; b < chunk.num_blocks; ++b) {
      blocks_.push_back({.first = first, .rows = sizes[b], .codes = nullptr});
      const int64_t stride = table_->BlockBytes(blocks_.back());
      const int64_t row_bytes = table_->quad_codes ? 4 : stride / sizes[b];
      for (int64_t r = 0; r < sizes[b]; ++r) places_.push_back({bytes + row_bytes * r, stride});
      first += sizes[b];
      bytes += padded / kLineBytes * stride;
    }
    HYDRANT_CHECK(first == chunk.code_rows);
  }
  lines_offset_ = table_->quad_codes && code_rows > 1 ? bytes : -1;
  if (lines_offset_ >= 0) {
    for (int64_t r = 0; r < code_rows; ++r) places_[static_cast<size_t>(r)] = {bytes + r * padded, kLineBytes};
    bytes += code_rows * padded;
  }
  bytes = RoundToLines(bytes);
  const int64_t excess_at = bytes + RoundToLines(rows_ * int64_t{sizeof(float)});
  Grow(excess_at + code_rows * int64_t{sizeof(int32_t)});
  scales_ = reinterpret_cast<float*>(memory_.get() + bytes);
  excess_ = reinterpret_cast<int32_t*>(memory_.get() + excess_at);
  bytes = 0;
  for (RowBlock& block : blocks_) {
    block.codes = reinterpret_cast<const int8_t*>(memory_.get()) + bytes;
    bytes += padded / kLineBytes * table_->BlockBytes(block);
  }
}

// Packs the quads of block `block`, whose rows are lines already: groups of 64 inputs.
void MatmulInput::PackQuads(int64_t block, int64_t group_begin, int64_t group_end) {
  const int64_t padded = PaddedInputs(inputs_), groups = padded / kLineBytes;
  auto* memory = reinterpret_cast<int8_t*>(memory_.get());
  // Chunks are whole numbers of blocks, except for the last one; so block b begins with code row 16 b.
  const int8_t* lines = memory + lines_offset_ + block * kQuadRows * padded;
  int8_t* quads = memory + block * groups * kQuadRows * kLineBytes;
  for (int64_t g = group_begin; g < group_end; ++g) {
    table_->pack_quads(lines + g * kLineBytes, padded, blocks_[static_cast<size_t>(block)].rows,
                       quads + g * kQuadRows * kLineBytes);
  }
}

void MatmulInput::Quantize(int64_t row, const float* x) {
  QuantizeArgs args;
  args.x = x;
  args.inputs = inputs_;
  args.padded_inputs = PaddedInputs(inputs_);
  args.quad_stride = table_->quad_codes && lines_offset_ < 0 ? kLineBytes : 4;
  args.scale = scales_ + row;
  auto* memory = reinterpret_cast<int8_t*>(memory_.get());
  const auto first = static_cast<size_t>(kind_ == InputKind::kInt16 ? 2 * row : row);
  args.codes = memory + places_[first].offset;
  args.chunk_stride = places_[first].chunk_stride;
  args.excess = excess_ + first;
  if (kind_ == InputKind::kInt16) {
    args.low = memory + places_[first + 1].offset;
    args.low_chunk_stride = places_[first + 1].chunk_stride;
    args.low_excess = excess_ + first + 1;
  }
  table_->quantize_row(args);
}

void MatmulInput::PackFloats(Queue& queue, ConstRows x) {
  auto* floats = reinterpret_cast<float*>(memory_.get());
  ForItems(queue, static_cast<int64_t>(pieces_.size()), inputs_ * 4, [&](int64_t begin, int64_t end) {
    for (int64_t i = begin; i < end; ++i) {
      const Piece& piece = pieces_[static_cast<size_t>(i)];
      if (piece.by_lanes) {
        table_->pack_lanes(x.row(piece.first), x.stride, piece.rows, inputs_, floats + piece.offset);
      } else {
        PackSlices(x.row(piece.first), inputs_, floats + piece.offset);
      }
    }
  });
}

template <typename MakeRow>
void MatmulInput::LoadCodes(Queue& queue, int64_t operations_per_row, const MakeRow& make_row) {
  const int64_t row_operations = operations_per_row + 4 * inputs_;
  const auto load = [&](int64_t begin, int64_t end) {
    for (int64_t r = begin; r < end; ++r) Quantize(r, make_row(r));
  };
  if (lines_offset_ < 0) return ForItems(queue, rows_, row_operations, load);
  const auto blocks = static_cast<int64_t>(blocks_.size());
  const int64_t groups = PaddedInputs(inputs_) / kLineBytes;
  const int64_t block_rows = kind_ == InputKind::kInt16 ? kQuadRows / 2 : kQuadRows;
  if (DividesWell(blocks, queue.pool->num_threads())) {
    ForItems(queue, blocks, block_rows * row_operations, [&](int64_t begin, int64_t end) {
      for (int64_t b = begin; b < end; ++b) {
        load(b * block_rows, std::min((b + 1) * block_rows, rows_));
        PackQuads(b, 0, groups);
      }
    });
    return;
  }
  ForItems(queue, rows_, row_operations, load);
  ForItems(queue, blocks * groups, 4 * kLineBytes, [&](int64_t begin, int64_t end) {
    for (int64_t i = begin; i < end; ++i) PackQuads(i / groups, i % groups, i % groups + 1);
  });
}

template <typename MakeRow>
void MatmulInput::LoadMade(Queue& queue, ConstRows made, int64_t operations_per_row, const MakeRow& make_row) {
  HYDRANT_CHECK(made.rows == rows_ && made.cols == inputs_ && queue.table == table_);
  if (kind_ != InputKind::kF32) {
    return LoadCodes(queue, operations_per_row, [&](int64_t r) {
      make_row(r);
      return made.row(r);
    });
  }
  ForItems(queue, rows_, operations_per_row, [&](int64_t begin, int64_t end) {
    for (int64_t r = begin; r < end; ++r) make_row(r);
  });
  PackFloats(queue, made);
}

void MatmulInput::Load(Queue& queue, ConstRows x) {
  HYDRANT_CHECK(x.rows == rows_ && x.cols == inputs_ && queue.table == table_);
  if (kind_ == InputKind::kF32) {
    PackFloats(queue, x);
  } else {
    LoadMade(queue, x, 0, [](int64_t) {});
  }
}

void MatmulInput::LoadNormed(Queue& queue, ConstRows x, std::span<const float> weight, float eps, Rows normed) {
  HYDRANT_CHECK(x.cols == static_cast<int64_t>(weight.size()) && x.rows == rows_);
  const auto norm = [&](int64_t r, float* to) { queue.table->rms_norm(x.row(r), weight.data(), eps, x.cols, to); };
  if (normed.rows > 0 || x.rows == 0) {
    return LoadMade(queue, normed, 2 * inputs_, [&](int64_t r) { norm(r, normed.row(r)); });
  }
  HYDRANT_CHECK(kind_ != InputKind::kF32 && x.cols == inputs_ && queue.table == table_);
  LoadCodes(queue, 2 * inputs_, [&](int64_t r) {
    static thread_local Matrix row;  // kept for the next call
    row.Resize(1, inputs_);
    norm(r, row.data());
    return static_cast<const float*>(row.data());
  });
}

void MatmulInput::LoadSiluMul(Queue& queue, ConstRows gate, ConstRows up, Rows out) {
  HYDRANT_CHECK(gate.rows == rows_ && up.rows == rows_ && gate.cols == inputs_ && up.cols == inputs_);
  LoadMade(queue, out, 16 * inputs_,
           [&](int64_t r) { queue.table->silu_mul(gate.row(r), up.row(r), gate.cols, out.row(r)); });
}

void MatmulInput::LoadResidualSilu(Queue& queue, ConstRows residual, ConstRows linear, Rows out) {
  HYDRANT_CHECK(residual.rows == rows_ && linear.rows == rows_ && residual.cols == inputs_ && linear.cols == inputs_);
  LoadMade(queue, out, 16 * inputs_,
           [&](int64_t r) { queue.table->residual_silu(residual.row(r), linear.row(r), inputs_, out.row(r)); });
}

void MatmulInput::Floats(const Chunk& chunk, const MatmulJob& job, int64_t panel_begin, int64_t panel_end) const {
  const auto* floats = reinterpret_cast<const float*>(memory_.get());
  MatmulArgs args;
  args.packed_lanes = floats + chunk.lanes_offset;
  args.packed_slices = floats + chunk.slices_offset;
  args.rows = chunk.rows;
  args.lane_rows = chunk.lane_rows;
  args.inputs = inputs_;
  args.slice = SliceOf(inputs_);
  args.padded_slice = PaddedSliceOf(inputs_);
  args.weight = job.weight->data;
  args.type = FloatTypeOf(job.weight->dtype);
  args.row_stride = job.weight->row_stride;
  args.bias = job.bias.empty() ? nullptr : job.bias.data();
  args.out = job.out.row(chunk.first);
  args.out_stride = job.out.stride;
  args.add = job.mode == MatmulMode::kAdd;
  table_->matmul(args, panel_begin * kPanelOutputs, std::min(panel_end * kPanelOutputs, job.weight->outputs));
}

void MatmulInput::Codes(const Chunk& chunk, const MatmulJob& job, int64_t panel_begin, int64_t panel_end,
                        const uint8_t* next, PrefetchList* later) const {
  const PackedMatrix& matrix = job.weight->packed;
  PackedMatmulArgs args;
  args.type = matrix.type;
  args.panels = matrix.panels;
  args.next = next;
  args.later = later;
  args.panel_bytes = matrix.panel_bytes();
  args.code_offset = matrix.code_offset();
  args.steps = matrix.steps();
  args.outputs = matrix.outputs;
  args.row_scales = matrix.row_scales;
  args.dictionary = matrix.dictionary;
  args.blocks = blocks_.data() + chunk.first_block;
  args.num_blocks = chunk.num_blocks;
  args.code_rows = chunk.code_rows;
  args.two_planes = kind_ == InputKind::kInt16;
  args.scales = scales_ + chunk.first;
  args.excess = excess_ + (args.two_planes ? 2 : 1) * chunk.first;
  args.bias = job.bias.empty() ? nullptr : job.bias.data();
  args.out = job.out.row(chunk.first);
  args.out_stride = job.out.stride;
  args.add = job.mode == MatmulMode::kAdd;
  table_->packed_matmul(args, panel_begin, panel_end);
}

void MatmulInput::Range(const MatmulJob& job, int64_t panel_begin, int64_t panel_end, const uint8_t* next,
                        PrefetchList* later) const {
  if (kind_ == InputKind::kF32) {
    for (const Chunk& chunk : chunks_) Floats(chunk, job, panel_begin, panel_end);
    return;
  }
  const int64_t group = chunks_.size() > 1 ? GroupPanels(job) : panel_end - panel_begin;
  for (int64_t p = panel_begin; p < panel_end; p += group) {
    for (const Chunk& chunk : chunks_) {
      const bool last = p + group >= panel_end && &chunk == &chunks_.back();
      Codes(chunk, job, p, std::min(p + group, panel_end), last ? next : nullptr, later);
    }
  }
}

void MatmulInput::Panels(const MatmulJob& job, int64_t panel_begin, int64_t panel_end, Rows out,
                         const uint8_t* next) const {
  MatmulJob moved = job;
  moved.mode = MatmulMode::kStore;
  moved.out = Rows(out.data - panel_begin * kPanelOutputs, out.rows, job.weight->outputs, out.stride);
  Range(moved, panel_begin, panel_end, next);
}

void MatmulInput::Check(const MatmulJob& job) const {
  HYDRANT_CHECK(job.weight->kind == kind_ && job.weight->inputs == inputs_);
  HYDRANT_CHECK(kind_ == InputKind::kF32 || table_->Reads(job.weight->packed.type));
  HYDRANT_CHECK(job.bias.empty() || static_cast<int64_t>(job.bias.size()) == job.weight->outputs);
}

}  // namespace hydrant::kernels
