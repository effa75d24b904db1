// SPDX-License-Identifier: Apache-2.0
// 06, 07, 09: the packed matmul of a target from the second-level cache and from memory. 12: what is done per row.
#include <chrono>
#include <cstring>
#include <string>

#include "kernels/kernels.h"
#include "kernels/packed.h"
#include "kernels/test_util/row_block.h"
#include "micro.h"
#include "quant/pack.h"

namespace hydrant::micro {
namespace {

using kernels::KernelTable;
using kernels::PackedMatmulArgs;

// A random matrix in 4 bits, as `table` reads it, and rows of codes for it, packed for one table.
class Problem {
 public:
  Problem(const KernelTable& table, int64_t outputs, int64_t inputs, int64_t rows)
      : rows_(rows), codes_(RandomLines<int8_t>(rows * inputs, 1)) {
    matrix_.type = TypeIn(table.layout(), true);
    matrix_.outputs = outputs;
    matrix_.inputs = inputs;
    panels_ = RandomLines<uint8_t>(matrix_.num_panels() * matrix_.panel_bytes(), 2);
    quant::ShareTables(matrix_, panels_.get());
    dictionary_ = RandomLines<uint8_t>(kernels::kNumTables * kernels::kTableEntries, 3);
    for (int64_t i = 0; i < kernels::kNumTables * kernels::kTableEntries; ++i) dictionary_[i] |= 1;
    row_scales_.assign(static_cast<size_t>(outputs), 0.01F);
    scales_.assign(static_cast<size_t>(rows), 0.02F);
    out_.assign(static_cast<size_t>(outputs * rows), 0.0F);
  }

  PackedMatmulArgs ArgsFor(const KernelTable& table) {
    Pack(table);
    PackedMatmulArgs args;
    args.type = matrix_.type;
    args.panels = panels_.get();
    args.panel_bytes = matrix_.panel_bytes();
    args.code_offset = matrix_.code_offset();
    args.steps = matrix_.steps();
    args.outputs = matrix_.outputs;
    args.row_scales = row_scales_.data();
    args.dictionary = dictionary_.get();
    args.blocks = blocks_.data();
    args.num_blocks = static_cast<int64_t>(blocks_.size());
    args.code_rows = rows_;
    args.scales = scales_.data();
    args.excess = excess_.data();
    args.out = out_.data();
    args.out_stride = matrix_.outputs;
    return args;
  }

  // The first and last panel against the portable kernel.
  bool Check(const KernelTable& table) {
    const int64_t last = matrix_.num_panels() - 1;
    for (const int64_t panel : {int64_t{0}, last}) {
      kernels::PortableKernels().packed_matmul(ArgsFor(kernels::PortableKernels()), panel, panel + 1);
      const std::vector<float> expected = out_;
      out_.assign(out_.size(), 0.0F);
      table.packed_matmul(ArgsFor(table), panel, panel + 1);
      if (std::memcmp(out_.data(), expected.data(), out_.size() * sizeof(float)) != 0) return false;
      out_.assign(out_.size(), 0.0F);
    }
    return true;
  }

  const kernels::PackedMatrix& matrix() const { return matrix_; }

 private:
  void Pack(const KernelTable& table) {
    int64_t sizes[kernels::kMaxCodeRows] = {};
    const int64_t num_blocks = table.plan_row_blocks(rows_, sizes), inputs = matrix_.inputs;
    blocks_.clear();
    packed_.clear();
    excess_.clear();
    for (int64_t b = 0, first = 0; b < num_blocks; first += sizes[b++]) {
      const int64_t rows = sizes[b];
      kernels::RowBlock block{first, rows, nullptr};
      packed_.push_back(RandomLines<int8_t>(inputs / kernels::kGroupInputs * table.BlockBytes(block), 4));
      int8_t* to = packed_.back().get();
      for (int64_t r = 0; r < rows; ++r) {
        uint32_t excess = 0;
        for (int64_t i = 0; i < inputs; ++i) {
          const int8_t code = codes_[(first + r) * inputs + i];
          kernels::SetCode(table, block, r, i, code, to);
          excess += kernels::ExcessOf(table, code);
        }
        excess_.push_back(static_cast<int32_t>(excess));
      }
      block.codes = to;
      blocks_.push_back(block);
    }
  }

  int64_t rows_;
  kernels::PackedMatrix matrix_;
  Lines<int8_t> codes_;
  Lines<uint8_t> panels_, dictionary_;
  std::vector<Lines<int8_t>> packed_;
  std::vector<kernels::RowBlock> blocks_;
  std::vector<int32_t> excess_;
  std::vector<float> row_scales_, scales_, out_;
};

// 64 outputs x 4096 inputs, 135 KB. Cycles of a step of `outputs` outputs x 128 inputs.
void MatmulFromL2(benchmark::State& state, const char* name, int64_t step_outputs) {
  const KernelTable* table = RequireTarget(state, name);
  if (table == nullptr) return;
  Problem problem(*table, 80, 4096, state.range(0));
  if (!Require(state, problem.Check(*table), "differs from the portable kernel")) return;
  const PackedMatmulArgs args = problem.ArgsFor(*table);
  const Stopwatch watch;
  while (state.KeepRunning()) table->packed_matmul(args, 0, 4);
  watch.CountCycles(state, 64 / step_outputs * args.steps);
}

// 65,536 outputs x 4096 inputs, 138 MB: more than a last-level cache holds. In turn with reads of the same bytes.
void MatmulFromMemory(benchmark::State& state, const char* name) {
  const KernelTable* table = RequireTarget(state, name);
  if (table == nullptr) return;
  Problem problem(*table, 65536, 4096, state.range(0));
  if (!Require(state, problem.Check(*table), "differs from the portable kernel")) return;
  const PackedMatmulArgs args = problem.ArgsFor(*table);
  const int64_t panels = problem.matrix().num_panels(), bytes = panels * args.panel_bytes;
  uint64_t sums[2] = {};
  double read_seconds = 0, seconds = 0;
  const auto timed = [](const auto& work) {
    const auto start = std::chrono::steady_clock::now();
    Pool(2).Run(work);
    return std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
  };
  while (state.KeepRunning()) {
    read_seconds += timed(
        [&](int thread) { sums[thread] += table->peak->read_lines(args.panels + thread * (bytes / 2), bytes / 2); });
    const double took =
        timed([&](int thread) { table->packed_matmul(args, thread * panels / 2, (thread + 1) * panels / 2); });
    state.SetIterationTime(took);
    seconds += took;
  }
  benchmark::DoNotOptimize(sums);
  CountBytes(state, bytes);
  state.counters["read/time"] = read_seconds / seconds;
}

void QuantizeRow(benchmark::State& state, const KernelTable* table, bool quads) {
  constexpr int64_t kInputs = 4096;
  std::mt19937 random(1);
  std::normal_distribution<float> normal;
  std::vector<float> x(kInputs);
  for (float& value : x) value = normal(random);
  const int64_t rows = quads ? 16 : table->sign_codes ? 2 : 1;  // whose place a row takes
  const auto codes = RandomLines<int8_t>(rows * kInputs, 2), expected = RandomLines<int8_t>(rows * kInputs, 2);
  kernels::QuantizeArgs args;
  args.x = x.data();
  args.inputs = args.padded_inputs = kInputs;
  args.chunk_stride = 64 * rows;
  args.quad_stride = quads ? 4 * rows : 4;
  float scale = 0;
  int32_t sum = 0;
  args.scale = &scale;
  args.excess = &sum;
  args.codes = expected.get();
  kernels::PortableKernels().quantize_row(args);
  for (int64_t i = 0; table->sign_codes && i < kInputs; ++i) {
    kernels::SetCode(*table, {.rows = 1}, 0, i, args.codes[i / 64 * args.chunk_stride + i % 64], expected.get());
  }
  args.codes = codes.get();
  const Stopwatch watch;
  while (state.KeepRunning()) table->quantize_row(args);
  if (std::memcmp(codes.get(), expected.get(), static_cast<size_t>(rows * kInputs)) != 0) {
    state.SkipWithError("differs from the portable kernel");
  }
  watch.CountCycles(state, kInputs);
}

// An exponential, a division and two products for each.
void Silu(benchmark::State& state, const KernelTable* table) {
  constexpr int64_t kCount = 4096;
  std::vector<float> gate(kCount), up(kCount, 1.5F), out(kCount), expected(kCount);
  for (size_t i = 0; i < gate.size(); ++i) gate[i] = 0.003F * static_cast<float>(i) - 6.0F;
  kernels::PortableKernels().silu_mul(gate.data(), up.data(), kCount, expected.data());
  const Stopwatch watch;
  while (state.KeepRunning()) table->silu_mul(gate.data(), up.data(), kCount, out.data());
  if (out != expected) state.SkipWithError("differs from the portable kernel");
  watch.CountCycles(state, kCount);
}

}  // namespace

void RegisterMatmulBenchmarks() {
  const auto rows = [](benchmark::internal::Benchmark* benchmark, const std::vector<int64_t>& counts) {
    for (const int64_t r : counts) benchmark->Arg(r);
    return benchmark->ArgName("R");
  };
  rows(benchmark::RegisterBenchmark("06_tile_step_from_L2/amx", MatmulFromL2, "amx", 32), {16, 32, 64, 128})
      ->UseRealTime();
  rows(benchmark::RegisterBenchmark("07_tiles_from_memory/amx", MatmulFromMemory, "amx"), {1, 16, 32, 64})
      ->UseManualTime()
      ->Unit(benchmark::kMillisecond);
  for (const char* target : {"avx512", "avx2"}) {
    const std::string name = target;
    rows(benchmark::RegisterBenchmark(("09_line_from_L2/" + name).c_str(), MatmulFromL2, target, 1),
         {1, 2, 4, 6, 8, 12, 16})
        ->UseRealTime();
    rows(benchmark::RegisterBenchmark(("09_from_memory/" + name).c_str(), MatmulFromMemory, target), {1, 4, 8, 16})
        ->UseManualTime()
        ->Unit(benchmark::kMillisecond);
  }
  for (const KernelTable* table : kernels::AvailableKernels()) {
    const std::string name = table->name;
    const std::string form = table->sign_codes ? "signs" : "lines";
    benchmark::RegisterBenchmark(("12_quantize_4096_to_" + form + "/" + name).c_str(), QuantizeRow, table, false)
        ->UseRealTime();
    if (!table->sign_codes) {
      benchmark::RegisterBenchmark(("12_quantize_4096_to_quads/" + name).c_str(), QuantizeRow, table, true)
          ->UseRealTime();
    }
    benchmark::RegisterBenchmark(("12_silu_4096/" + name).c_str(), Silu, table)->UseRealTime();
  }
}

}  // namespace hydrant::micro
