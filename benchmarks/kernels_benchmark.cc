// SPDX-License-Identifier: Apache-2.0
// Speed of the kernels on every CPU target of this machine. Each benchmark first compares its answer with the portable
// twin's, bit for bit.  build/release/benchmarks/kernels_benchmark --benchmark_filter=Matmul/avx512
#include <benchmark/benchmark.h>

#include <cmath>
#include <cstring>
#include <random>
#include <string>
#include <vector>

#include "base/thread_pool.h"
#include "kernels/kernels.h"
#include "kernels/ops/ops.h"
#include "tensor/tensor.h"

namespace hydrant::kernels {
namespace {

base::ThreadPool& Pool() {
  static base::ThreadPool pool(base::DefaultThreads(), true);
  return pool;
}

Matrix RandomMatrix(int64_t rows, int64_t cols, uint32_t seed) {
  std::mt19937 random(seed);
  std::normal_distribution<float> normal;
  Matrix matrix(rows, cols);
  for (int64_t r = 0; r < rows; ++r) {
    for (int64_t c = 0; c < cols; ++c) matrix.row(r)[c] = normal(random);
  }
  return matrix;
}

bool Equal(const Matrix& a, const Matrix& b) {
  for (int64_t r = 0; r < a.rows(); ++r) {
    if (std::memcmp(a.row(r), b.row(r), static_cast<size_t>(a.cols()) * sizeof(float)) != 0) return false;
  }
  return true;
}

// Several copies of a small weight, so that it comes from memory as in a forward pass: 128 MiB in all.
constexpr int64_t kColdBytes = int64_t{128} << 20;

void BenchmarkMatmul(benchmark::State& state, const KernelTable* table) {
  const int64_t outputs = state.range(0), inputs = state.range(1), rows = state.range(2);
  const int64_t copies = std::max<int64_t>(1, kColdBytes / (outputs * inputs * 2));
  std::vector<uint16_t> values(static_cast<size_t>(copies * outputs * inputs));
  std::mt19937 random(1);
  for (uint16_t& value : values) value = static_cast<uint16_t>(0x3c00 | (random() & 0x83ff));
  const Matrix x = RandomMatrix(rows, inputs, 2);
  const auto weight_at = [&](int64_t copy) {
    TensorView tensor;
    tensor.data = reinterpret_cast<const uint8_t*>(values.data() + copy * outputs * inputs);
    tensor.dtype = DType::kBF16;
    tensor.shape = {outputs, inputs};
    return Weight::Of(tensor);
  };
  Queue queue{&Pool(), table}, portable{&Pool(), &PortableKernels()};
  Matrix out(rows, outputs), expected(rows, outputs);
  Matmul(queue, x, weight_at(0), {}, out);
  Matmul(portable, x, weight_at(0), {}, expected);
  if (!Equal(out, expected)) state.SkipWithError("differs from the portable kernel");
  int64_t copy = 0;
  while (state.KeepRunning()) {
    Matmul(queue, x, weight_at(copy), {}, out);
    copy = (copy + 1) % copies;
  }
  const double weights = static_cast<double>(outputs * inputs) * static_cast<double>(state.iterations());
  state.counters["GB/s"] = benchmark::Counter(2e-9 * weights, benchmark::Counter::kIsRate);
  state.counters["GFMA/s"] =
      benchmark::Counter(1e-9 * weights * static_cast<double>(rows), benchmark::Counter::kIsRate);
}

void BenchmarkAttention(benchmark::State& state, const KernelTable* table) {
  const int64_t heads = state.range(0), kv_heads = state.range(1), head_dim = state.range(2);
  const auto context = static_cast<int32_t>(state.range(3));
  const int64_t num_rows = state.range(4);
  KvLayer kv;
  kv.dtype = state.range(5) != 0 ? DType::kBF16 : DType::kF32;
  kv.num_kv_heads = kv_heads;
  kv.head_dim = head_dim;
  const int32_t num_blocks = (context + kBlockPositions - 1) / kBlockPositions;
  kv.num_blocks = num_blocks;
  std::vector<uint8_t> bytes(static_cast<size_t>(kv.num_bytes()));
  kv.data = bytes.data();
  std::vector<int32_t> blocks;
  for (int32_t b = 0; b < num_blocks; ++b) blocks.push_back(b);
  Queue queue{&Pool(), table}, portable{&Pool(), &PortableKernels()};
  std::vector<RowKv> all;
  for (int32_t p = 0; p < context; ++p) all.push_back({blocks.data(), nullptr, p, p + 1, p});
  StoreKv(queue, RandomMatrix(context, kv_heads * head_dim, 1), RandomMatrix(context, kv_heads * head_dim, 2), all, kv);
  const std::vector<RowKv> rows(static_cast<size_t>(num_rows), all.back());
  const AttentionOptions options{heads, 1.0F / std::sqrt(static_cast<float>(head_dim)), 0};
  const Matrix q = RandomMatrix(num_rows, heads * head_dim, 3);
  Matrix out(num_rows, q.cols()), expected(num_rows, q.cols());
  Attention(queue, q, rows, kv, options, out);
  Attention(portable, q, rows, kv, options, expected);
  if (!Equal(out, expected)) state.SkipWithError("differs from the portable kernel");
  while (state.KeepRunning()) Attention(queue, q, rows, kv, options, out);
  state.counters["GFMA/s"] = benchmark::Counter(
      2e-9 * static_cast<double>(num_rows * heads * head_dim * context) * static_cast<double>(state.iterations()),
      benchmark::Counter::kIsRate);
}

void BenchmarkSiluMul(benchmark::State& state, const KernelTable* table) {
  const int64_t cols = state.range(0), rows = state.range(1);
  const Matrix gate = RandomMatrix(rows, cols, 1), up = RandomMatrix(rows, cols, 2);
  Queue queue{&Pool(), table};
  Matrix out(rows, cols);
  while (state.KeepRunning()) SiluMul(queue, gate, up, out);
}

void BenchmarkRmsNorm(benchmark::State& state, const KernelTable* table) {
  const int64_t cols = state.range(0), rows = state.range(1);
  const Matrix x = RandomMatrix(rows, cols, 1);
  const std::vector<float> weight(static_cast<size_t>(cols), 1.0F);
  Queue queue{&Pool(), table};
  Matrix out(rows, cols);
  while (state.KeepRunning()) RmsNorm(queue, x, weight, 1e-5F, out);
}

void BenchmarkForkJoin(benchmark::State& state) {
  while (state.KeepRunning()) Pool().Run([](int) {});
}

void Register() {
  benchmark::RegisterBenchmark("ForkJoin", BenchmarkForkJoin);
  for (const KernelTable* table : AvailableKernels()) {
    const std::string name = table->name;
    const bool slow = table == &PortableKernels();
    auto* matmul = benchmark::RegisterBenchmark(("Matmul/" + name).c_str(), BenchmarkMatmul, table);
    for (const auto& [outputs, inputs] :
         {std::pair<int64_t, int64_t>{704, 256}, {256, 704}, {4096, 256}, {4096, 4096}}) {
      for (const int64_t rows : {1, 4, 16, 64}) {
        if (!slow || outputs * inputs * rows < 4000000) matmul->Args({outputs, inputs, rows});
      }
    }
    matmul->ArgNames({"O", "I", "R"})->UseRealTime()->Unit(benchmark::kMicrosecond);
    auto* attention = benchmark::RegisterBenchmark(("Attention/" + name).c_str(), BenchmarkAttention, table);
    for (const int64_t bf16 : {0, 1}) {
      attention->Args({4, 4, 64, 200, 1, bf16})->Args({4, 4, 64, 200, 64, bf16})->Args({32, 8, 128, 1000, 16, bf16});
    }
    attention->ArgNames({"H", "Hk", "Dh", "context", "R", "bf16"})->UseRealTime()->Unit(benchmark::kMicrosecond);
    benchmark::RegisterBenchmark(("SiluMul/" + name).c_str(), BenchmarkSiluMul, table)
        ->Args({704, 1})
        ->Args({704, 64})
        ->UseRealTime();
    benchmark::RegisterBenchmark(("RmsNorm/" + name).c_str(), BenchmarkRmsNorm, table)
        ->Args({256, 1})
        ->Args({256, 64})
        ->UseRealTime();
  }
}

}  // namespace
}  // namespace hydrant::kernels

int main(int argc, char** argv) {
  benchmark::Initialize(&argc, argv);
  if (benchmark::ReportUnrecognizedArguments(argc, argv)) return 2;
  hydrant::kernels::Register();
  benchmark::RunSpecifiedBenchmarks();
  return 0;
}
