// SPDX-License-Identifier: Apache-2.0
// 05: expansion of 4-bit codes. 08: the epilogue of a tile.
#include <algorithm>
#include <cstring>

#include "kernels/amx/tiles.h"
#include "kernels/cpu_features.h"
#include "kernels/packed.h"
#include "micro.h"
#include "micro_loops.h"

namespace hydrant::kernels {
namespace {

#include "kernels/amx/matmul_packed_vectors_plain.h"

}  // namespace
}  // namespace hydrant::kernels

namespace hydrant::micro {
namespace {

#if defined(__x86_64__)

constexpr const char* kNoAvx512 = "skipped: this machine has no AVX-512 with VBMI";

using ExpandLoop = void (*)(const uint8_t* lines, const uint8_t* tables, const uint8_t* dictionary, int64_t count,
                            uint8_t* out);

// 4 KB to 8 KB, dictionary of 4 KB.
void Expand(benchmark::State& state, ExpandLoop loop) {
  if (!Require(state, kernels::DetectCpuFeatures().avx512, kNoAvx512)) return;
  constexpr int64_t kCount = 64;
  const auto lines = RandomLines<uint8_t>(kCount * 64, 1), tables = RandomLines<uint8_t>(kCount * 2, 2);
  for (int64_t n = 2; n < kCount * 2; n += 4) std::copy_n(&tables[n - 2], 2, &tables[n]);  // two outputs share them
  const auto dictionary = RandomLines<uint8_t>(4096, 3), out = RandomLines<uint8_t>(kCount * 128, 4);
  uint8_t expected[4 * 128];
  loop(lines.get(), tables.get(), dictionary.get(), kCount, out.get());
  for (int64_t n = 0; n < kCount; n += 4) {
    kernels::PlainVectors::Expand<4>(&lines[n * 64], &tables[n * 2], dictionary.get(), expected);
    if (!Require(state, std::memcmp(expected, &out[n * 128], 4 * 128) == 0, "differs from the plain loop")) return;
  }
  const Stopwatch watch;
  while (state.KeepRunning()) {
    loop(lines.get(), tables.get(), dictionary.get(), kCount, out.get());
    benchmark::ClobberMemory();
  }
  watch.CountCycles(state, kCount);
}

void Finish(benchmark::State& state) {
  if (!Require(state, kernels::DetectCpuFeatures().avx512, kNoAvx512)) return;
  const auto sums = RandomLines<int32_t>(256, 1), excess = RandomLines<int32_t>(16, 2);
  const std::vector<float> row_scales(16, 0.01F), scales(16, 0.02F);
  std::vector<float> out(256), expected(256);
  kernels::PackedMatmulArgs args;
  args.outputs = 16;
  args.row_scales = row_scales.data();
  args.scales = scales.data();
  args.excess = excess.get();
  args.out_stride = 16;
  const kernels::RowBlock block{.rows = state.range(0)};
  args.out = expected.data();
  kernels::PlainVectors::Finish(args, 0, block, sums.get());
  args.out = out.data();
  const Stopwatch watch;
  while (state.KeepRunning()) {
    FinishTileByAvx512(args, block, sums.get());
    benchmark::ClobberMemory();
  }
  if (out != expected) state.SkipWithError("differs from the plain loop");
  watch.CountCycles(state, 1);
}

#endif

}  // namespace

void RegisterVectorBenchmarks() {
#if defined(__x86_64__)
  benchmark::RegisterBenchmark("05_expand_line/vpermb", Expand, ExpandByVpermb)->UseRealTime();
  benchmark::RegisterBenchmark("05_expand_line/vpshufb", Expand, ExpandByVpshufb)->UseRealTime();
  benchmark::RegisterBenchmark("08_epilogue_of_a_tile", Finish)->Arg(1)->Arg(4)->Arg(16)->ArgName("R")->UseRealTime();
#endif
}

}  // namespace hydrant::micro
