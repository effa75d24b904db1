// SPDX-License-Identifier: Apache-2.0
// Matrix products of rows with weights in any format. The rows are made ready once (MatmulInput) for all weights that
// read them; several weights go in one call.
#pragma once

#include <cstdint>
#include <cstdlib>
#include <functional>
#include <memory>
#include <span>
#include <vector>

#include "kernels/arguments.h"
#include "kernels/ops/queue.h"
#include "kernels/ops/rows.h"
#include "kernels/packed.h"
#include "tensor/dtype.h"
#include "tensor/tensor.h"

namespace hydrant::kernels {

// What a weight's activations are rounded to.
enum class InputKind : uint8_t { kF32, kInt8, kInt16 };

// A weight matrix [O, I]. Floats: row-major in f32, bf16 or f16, possibly a column slice of a wider one, unaligned.
// Packed: packed.h.
struct Weight {
  const uint8_t* data = nullptr;
  DType dtype = DType::kF32;
  int64_t outputs = 0, inputs = 0;
  int64_t row_stride = 0;  // elements from one output row to the next
  PackedMatrix packed;     // where `kind` is not kF32
  InputKind kind = InputKind::kF32;

  static Weight Of(const TensorView& tensor);                             // [O, I]
  static Weight Of(const PackedMatrix& matrix, bool two_planes = false);  // two_planes: 16-bit activations
  int64_t num_panels() const { return (outputs + kPanelOutputs - 1) / kPanelOutputs; }
  Weight Columns(int64_t begin, int64_t count) const;  // input slice of a float weight
};

// Rows of a prompt that go fastest through one forward pass, with weights of this kind. More rows read the weights less
// often, but fewer of their activations stay in the caches between operations. Where tiles multiply, the codes must
// stay there: every two panels read those of all rows. Milliseconds of a prompt of 512 (Intel with AMX, two cores):
//   rows per pass             128     256
//   `amx`, 7B w4a8            1,440   1,635
//   `avx512`, 7B w4a8         7,420   6,960
//   `avx512`, embedded model   33.5    32.2
int64_t PromptRows(const KernelTable& table, InputKind kind);

enum class MatmulMode : uint8_t { kStore, kAdd };  // out = x W^T + bias | out += x W^T + bias

// One product of a call: out[r] = x[r] W^T (+ bias). bias empty or [O], out [R, O].
struct MatmulJob {
  const Weight* weight = nullptr;
  std::span<const float> bias;
  Rows out;
  MatmulMode mode = MatmulMode::kStore;
};

// How the panels of a call's jobs are shared out. Normally each thread begins with a contiguous part of all jobs.
// by_threads: it begins with a contiguous part of every job, so that outputs of several jobs that belong together are
// made by one thread. `later`: a list for this thread, or null.
struct MatmulOrder {
  bool by_threads = false;
  PrefetchList* later = nullptr;
};

// PackedMatmulArgs::next for a call on `weight` after which `then` is read from `panel` on.
const uint8_t* NextPanels(const Weight& weight, const Weight& then, int64_t panel);

class MatmulInput;

// The products of one input, as a part of a call.
struct InputJobs {
  const MatmulInput* input = nullptr;
  std::span<const MatmulJob> jobs;
};

// Rows x [R, I], made ready for matmuls. Call Reserve outside regions; the Load functions are ops.
class MatmulInput {
 public:
  // Makes room for rows of `inputs` for weights of `kind`.
  void Reserve(const KernelTable& table, InputKind kind, int64_t rows, int64_t inputs);
  // Takes the rows of x as they are.
  void Load(Queue& queue, ConstRows x);
  // x -> RmsNorm(x) -> ready. `normed` [R, I] receives the normed rows, too. It may have no rows, and is not written
  // then: for codes only.
  void LoadNormed(Queue& queue, ConstRows x, std::span<const float> weight, float eps, Rows normed);
  // silu(gate) * up -> ready. `out` [R, I] receives these products, too, and may be `gate`.
  void LoadSiluMul(Queue& queue, ConstRows gate, ConstRows up, Rows out);
  // residual + silu(linear) -> ready. `out` [R, I] receives these sums, too, and may be either input.
  void LoadResidualSilu(Queue& queue, ConstRows residual, ConstRows linear, Rows out);

  // Throws InternalError for a job that breaks what Panels relies on: its weight must have the loaded kind and width
  // and a layout that the target reads, and its bias as many numbers as outputs.
  void Check(const MatmulJob& job) const;
  // Serial: outputs 16 * panel_begin .. 16 * panel_end - 1 of job.weight, the first of them in column 0 of `out` [R,
  // ..]. `next` as in PackedMatmulArgs.
  void Panels(const MatmulJob& job, int64_t panel_begin, int64_t panel_end, Rows out,
              const uint8_t* next = nullptr) const;

  InputKind kind() const { return kind_; }
  int64_t rows() const { return rows_; }
  int64_t inputs() const { return inputs_; }

 private:
  friend void Matmul(Queue& queue, const MatmulInput& input, std::span<const MatmulJob> jobs, const MatmulOrder& order);
  friend void MatmulInOrder(Queue& queue, std::span<const InputJobs> groups,
                            const std::function<void(size_t, size_t, int64_t, int64_t)>& before);
  friend void MatmulSiluMul(Queue& queue, const MatmulInput& input, const MatmulJob& gate, const MatmulJob& up,
                            Rows out);

  // Rows for which the weights are read together.
  struct Chunk {
    int64_t first = 0, rows = 0;
    int64_t lane_rows = 0, lanes_offset = 0, slices_offset = 0;  // floats (MatmulArgs)
    int64_t first_block = 0, num_blocks = 0, code_rows = 0;      // codes
  };
  // Float rows that are packed together: a group by lanes, or one row by slices.
  struct Piece {
    int64_t first, rows;
    bool by_lanes;
    int64_t offset;  // floats
  };
  // Where a code row's first code is, and the bytes from 64 inputs to the next.
  struct CodePlace {
    int64_t offset, chunk_stride;
  };
  struct FreeLines {
    void operator()(uint8_t* p) const { std::free(p); }
  };

  void Grow(int64_t bytes);
  void PlanFloats();
  void PlanCodes();
  void Quantize(int64_t row, const float* x);
  void PackFloats(Queue& queue, ConstRows x);
  void PackQuads(int64_t block, int64_t group_begin, int64_t group_end);
  template <typename MakeRow>
  void LoadCodes(Queue& queue, int64_t operations_per_row, const MakeRow& make_row);
  template <typename MakeRow>
  void LoadMade(Queue& queue, ConstRows made, int64_t operations_per_row, const MakeRow& make_row);
  template <typename Fn>
  void ForPanels(Queue& queue, int64_t panels, int64_t weights, const Fn& fn) const;
  // Serial: a range of a job's panels, all rows.
  void Range(const MatmulJob& job, int64_t panel_begin, int64_t panel_end, const uint8_t* next,
             PrefetchList* later = nullptr) const;
  void Floats(const Chunk& chunk, const MatmulJob& job, int64_t panel_begin, int64_t panel_end) const;
  void Codes(const Chunk& chunk, const MatmulJob& job, int64_t panel_begin, int64_t panel_end, const uint8_t* next,
             PrefetchList* later) const;

  const KernelTable* table_ = nullptr;
  InputKind kind_ = InputKind::kF32;
  int64_t rows_ = 0, inputs_ = 0;
  bool ready_ = false;  // whether Reserve has made room for the rows
  std::vector<Chunk> chunks_;
  std::vector<Piece> pieces_;
  std::vector<RowBlock> blocks_;
  std::vector<CodePlace> places_;  // [code rows]
  int64_t lines_offset_ = -1;      // of the code rows one by one, before they become quads; -1: never
  // Packed floats or codes. Codes lie on lines of their own, since another thread may write to what malloc puts beside
  // them.
  std::unique_ptr<uint8_t[], FreeLines> memory_;
  int64_t capacity_ = 0;       // of memory_, bytes
  float* scales_ = nullptr;    // [R]
  int32_t* excess_ = nullptr;  // [code rows]
};

// out = x W^T of all jobs; their weights are of the input's kind. Floats: 8 input slices of ceil(I / 8), each one fused
// multiply-add chain in input order starting at 0, combined ((0+1)+(2+3))+((4+5)+(6+7)); then + bias; then (kAdd) out +
// that. Packed: as PackedMatmulArgs says.
void Matmul(Queue& queue, const MatmulInput& input, std::span<const MatmulJob> jobs, const MatmulOrder& order = {});
// Products of several inputs as one op. All groups have the same number of jobs, and their j-th jobs the same number of
// outputs. The thread that computes some columns of a j-th job computes these columns in all groups, in order, so that
// a job may add to what the group before it made. `before(group, j, first column, columns)` is called right before
// these columns are computed, by the same thread.
using BeforeJob = std::function<void(size_t group, size_t j, int64_t first, int64_t columns)>;
void MatmulInOrder(Queue& queue, std::span<const InputJobs> groups, const BeforeJob& before);

// out = silu(gate) * up, [R, O], for two weights that read the same input. `out` and `mode` of both jobs are not used.
// The bits are those of Matmul of both and then SiluMul, but neither product is stored whole.
void MatmulSiluMul(Queue& queue, const MatmulInput& input, const MatmulJob& gate, const MatmulJob& up, Rows out);

// The product with one weight, outside regions.
void Matmul(Queue& queue, ConstRows x, const Weight& weight, std::span<const float> bias, Rows out,
            MatmulMode mode = MatmulMode::kStore);

}  // namespace hydrant::kernels
