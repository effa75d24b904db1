// SPDX-License-Identifier: Apache-2.0
// The products of matmul.h as ops: how panels are shared out among threads.
#include <algorithm>
#include <span>

#include "base/check.h"
#include "kernels/kernels.h"
#include "kernels/ops/matmul.h"

namespace hydrant::kernels {
namespace {

// Least number of panels that a thread takes together where tiles multiply. Tiles take panels by two or four, and each
// call begins with a step that nothing hides. Milliseconds with pieces of one panel and of four, in three pairs of runs
// (Intel with AMX, 7B w4a8):
//   64 rows   245, 275, 240 -> 232, 289, 224
//   16 rows   142, 143, 139 -> 141, 139, 138
// Pieces of eight panels are as good as pieces of four.
constexpr int64_t kTilePanels = 4;

// Number of panels of the gate, and of up, whose outputs stay in a cache until they are multiplied. With outputs of 16,
// 32 and 128 KB a pass takes 127, 126 and 127 ms, with 64 KB 126 ms. Both whole products first, and then SiluMul, take
// 129 ms. (Intel with AMX, 7B w4a8, 16 rows, in one run.)
int64_t GatedPanels(int64_t rows) {
  constexpr int64_t kBytes = 64 * 1024;
  const int64_t panels = kBytes / (std::max<int64_t>(1, rows) * kPanelOutputs * int64_t{sizeof(float)});
  return std::max(kTilePanels, panels / kTilePanels * kTilePanels);
}

}  // namespace

const uint8_t* NextPanels(const Weight& weight, const Weight& then, int64_t panel) {
  const PackedMatrix& matrix = then.packed;
  const bool alike = weight.packed.type == matrix.type && weight.packed.panel_bytes() == matrix.panel_bytes();
  if (weight.kind == InputKind::kF32 || !alike) return nullptr;
  return panel + kTilePanels <= matrix.num_panels() ? matrix.panels + panel * matrix.panel_bytes() : nullptr;
}

// Shares out `panels`, each of which stands for one panel of `weights` weights: fn(begin, end) for ranges of them.
template <typename Fn>
void MatmulInput::ForPanels(Queue& queue, int64_t panels, int64_t weights, const Fn& fn) const {
  const int64_t unit = kind_ != InputKind::kF32 && table_->multiplies_by_tiles ? kTilePanels : 1;
  const int64_t operations = weights * unit * kPanelOutputs * (rows_ + 2) * inputs_ / 4;
  ForItemsShared(queue, (panels + unit - 1) / unit, operations,
                 [&](int64_t begin, int64_t end) { fn(begin * unit, std::min(end * unit, panels)); });
}

int64_t PromptRows(const KernelTable& table, InputKind kind) {
  return kind == InputKind::kF32 || !table.multiplies_by_tiles ? 256 : kMaxCodeRows;
}

// The panels of all jobs stand in one row, and each thread begins with a contiguous part of it: one stream per weight.
// Threads that are done early take panels from the others. (In place of fixed parts: 0.93 of the time with 8 rows, 0.97
// with 16; 7B w4a8, AMD Zen 4, 2 cores that other guests disturb.) by_threads: as many parts as threads; the row holds
// the first part of every job, then the second part of every job, and so on.
void Matmul(Queue& queue, const MatmulInput& input, std::span<const MatmulJob> jobs, const MatmulOrder& order) {
  int64_t panels = 0;
  for (const MatmulJob& job : jobs) {
    input.Check(job);
    HYDRANT_CHECK(job.out.cols == job.weight->outputs && job.out.rows == input.rows_);
    panels += job.weight->num_panels();
  }
  const int64_t parts = order.by_threads ? queue.pool->num_threads() : 1;
  input.ForPanels(queue, panels, 1, [&](int64_t begin, int64_t end) {
    int64_t row = 0;  // where in the row of panels this part begins
    for (int64_t part = 0; part < parts; ++part) {
      for (const MatmulJob& job : jobs) {
        const int64_t all = job.weight->num_panels(), first = all * part / parts, last = all * (part + 1) / parts;
        const int64_t from = std::max(first, first + begin - row), to = std::min(last, first + end - row);
        row += last - first;
        if (from < to) input.Range(job, from, to, NextPanels(*job.weight, *job.weight, to), order.later);
      }
    }
  });
}

void MatmulInOrder(Queue& queue, std::span<const InputJobs> groups, const BeforeJob& before) {
  const std::span<const MatmulJob> jobs = groups.front().jobs;
  const MatmulInput* tallest = groups.front().input;
  int64_t panels = 0;
  for (const MatmulJob& job : jobs) panels += job.weight->num_panels();
  for (const InputJobs& group : groups) {
    HYDRANT_CHECK(group.jobs.size() == jobs.size());
    for (size_t j = 0; j < jobs.size(); ++j) {
      group.input->Check(group.jobs[j]);
      HYDRANT_CHECK(group.jobs[j].weight->outputs == jobs[j].weight->outputs);
      HYDRANT_CHECK(group.jobs[j].out.cols == jobs[j].weight->outputs && group.jobs[j].out.rows == group.input->rows_);
    }
    if (group.input->rows_ > tallest->rows_) tallest = group.input;
  }
  tallest->ForPanels(queue, panels, static_cast<int64_t>(groups.size()), [&](int64_t begin, int64_t end) {
    int64_t first = 0;  // where in the row of panels the job begins
    for (size_t j = 0; j < jobs.size(); ++j) {
      const int64_t count = jobs[j].weight->num_panels();
      const int64_t from = std::max(begin - first, int64_t{0}), to = std::min(end - first, count);
      first += count;
      if (from >= to) continue;
      const int64_t column = from * kPanelOutputs, last = std::min(to * kPanelOutputs, jobs[j].weight->outputs);
      for (size_t g = 0; g < groups.size(); ++g) {
        before(g, j, column, last - column);
        groups[g].input->Range(groups[g].jobs[j], from, to, nullptr);
      }
    }
  });
}

void MatmulSiluMul(Queue& queue, const MatmulInput& input, const MatmulJob& gate, const MatmulJob& up, Rows out) {
  input.Check(gate);
  input.Check(up);
  HYDRANT_CHECK(out.rows == input.rows_ && out.cols == gate.weight->outputs && out.cols == up.weight->outputs);
  const int64_t together = GatedPanels(out.rows);
  input.ForPanels(queue, gate.weight->num_panels(), 2, [&](int64_t begin, int64_t end) {
    static thread_local Matrix gates, ups;  // kept for the next call
    for (Matrix* part : {&gates, &ups}) part->Resize(out.rows, std::min(together, end - begin) * kPanelOutputs);
    for (int64_t panel = begin; panel < end; panel += together) {
      const int64_t last = std::min(panel + together, end), first = panel * kPanelOutputs;
      input.Panels(gate, panel, last, gates, NextPanels(*gate.weight, *up.weight, panel));
      input.Panels(up, panel, last, ups, NextPanels(*up.weight, *gate.weight, last));
      const int64_t count = std::min(last * kPanelOutputs, out.cols) - first;
      for (int64_t r = 0; r < out.rows; ++r) {
        queue.table->silu_mul(gates.row(r), ups.row(r), count, out.row(r) + first);
      }
    }
  });
}

void Matmul(Queue& queue, ConstRows x, const Weight& weight, std::span<const float> bias, Rows out, MatmulMode mode) {
  HYDRANT_CHECK(!queue.in_region());
  static thread_local MatmulInput input;  // kept for the next call
  input.Reserve(*queue.table, weight.kind, x.rows, x.cols);
  input.Load(queue, x);
  const MatmulJob job{&weight, bias, out, mode};
  Matmul(queue, input, std::span(&job, 1));
}

}  // namespace hydrant::kernels
