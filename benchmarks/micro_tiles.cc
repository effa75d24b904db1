// SPDX-License-Identifier: Apache-2.0
// 02, 03, 04, 10, 13, 14, 15: tile instructions alone, where there are any.
#include <cmath>
#include <cstring>

#include "kernels/cpu_features.h"
#include "kernels/kernels.h"
#include "micro.h"
#if defined(__x86_64__)
#include "kernels/amx/tiles_instructions.h"
#endif

namespace hydrant::micro {
namespace {

constexpr const char* kNoAmx = "skipped: this machine has no AMX";
bool HasAmx() { return kernels::DetectCpuFeatures().amx; }

#if defined(__x86_64__)

using kernels::kTileBytes;
using kernels::TileConfig;
using kernels::TileInstructions;

constexpr int64_t kRounds = 1000;

// Weights in 4, activations in 6: `rows` x 16 x `inputs` products.
TileConfig ConfigOf(int64_t rows, int64_t inputs) {
  TileConfig config = kernels::FullTiles();
  for (const int t : {0, 1, 2, 3, 4, 5}) config.rows[t] = static_cast<uint8_t>(rows);
  for (const int t : {4, 5}) config.row_bytes[t] = static_cast<uint16_t>(inputs);
  for (const int t : {6, 7}) config.rows[t] = static_cast<uint8_t>(inputs / 4);
  return config;
}

// 4 * kRounds products of ones, in 4 sums in turn or all in one. Returns the first sum's first number.
template <bool kOneSum>
int32_t MultiplyOnes(const TileConfig& config, const uint8_t* ones) {
  TileInstructions tiles;
  alignas(64) int32_t sums[256];
  tiles.Configure(config);
  tiles.Load<4>(ones);
  tiles.Load<6>(ones);
  tiles.Zero<0>();
  for (int64_t n = 0; n < kRounds; ++n) {
    tiles.MultiplyU8S8<0, 4, 6>();
    tiles.MultiplyU8S8<kOneSum ? 0 : 1, 4, 6>();
    tiles.MultiplyU8S8<kOneSum ? 0 : 2, 4, 6>();
    tiles.MultiplyU8S8<kOneSum ? 0 : 3, 4, 6>();
  }
  tiles.Store<0>(sums);
  tiles.Release();
  return sums[0];
}

void Multiply(benchmark::State& state, bool one_sum, int64_t rows, int64_t inputs) {
  if (!Require(state, HasAmx(), kNoAmx)) return;
  const TileConfig config = ConfigOf(rows, inputs);
  const std::vector<uint8_t> ones(kTileBytes, 1);
  int32_t sum = 0;
  const Stopwatch watch;
  while (state.KeepRunning()) {
    sum = one_sum ? MultiplyOnes<true>(config, ones.data()) : MultiplyOnes<false>(config, ones.data());
  }
  const auto expected = static_cast<int32_t>((one_sum ? 4 : 1) * kRounds * inputs);
  if (sum != expected) state.SkipWithError("the sum of the products is wrong");
  watch.CountCycles(state, 4 * kRounds);
}

template <int kTile>
void LoadStrided(const uint8_t* from, int64_t stride, bool t1) {
  if (t1) {
    __asm__ volatile("tileloaddt1 (%1,%2,1), %%tmm%c0" : : "i"(kTile), "r"(from), "r"(stride) : "memory");
  } else {
    __asm__ volatile("tileloadd (%1,%2,1), %%tmm%c0" : : "i"(kTile), "r"(from), "r"(stride) : "memory");
  }
}

// Loads every tile of `bytes` bytes in turn; the lines of one are `stride` apart.
void Load(benchmark::State& state, int64_t bytes, int64_t stride, bool t1) {
  if (!Require(state, HasAmx(), kNoAmx)) return;
  const auto memory = RandomLines<uint8_t>(bytes + 16 * stride, 1);
  const int64_t tiles = bytes / kTileBytes;
  TileInstructions registers;
  registers.Configure(kernels::FullTiles());
  const Stopwatch watch;
  while (state.KeepRunning()) {
    for (int64_t n = 0; n < tiles; n += 2) {
      // Where lines are far apart, tiles interleave: the same bytes are loaded.
      const int64_t place = stride == 64 ? n * kTileBytes : n * 64 % stride + n * 64 / stride * 16 * stride;
      LoadStrided<0>(memory.get() + place % bytes, stride, t1);
      LoadStrided<1>(memory.get() + (place + (stride == 64 ? kTileBytes : 64)) % bytes, stride, t1);
    }
  }
  alignas(64) uint8_t out[kTileBytes];
  registers.Store<0>(out);
  registers.Release();
  const int64_t n = tiles - 2;
  const int64_t place = stride == 64 ? n * kTileBytes : n * 64 % stride + n * 64 / stride * 16 * stride;
  if (std::memcmp(out, memory.get() + place % bytes, 64) != 0) state.SkipWithError("a tile is not what was loaded");
  watch.CountCycles(state, tiles);
}

// Two tiles a step are written line by line and loaded `distance` steps later, with two products: the cost of a step.
void StoreThenLoad(benchmark::State& state) {
  if (!Require(state, HasAmx(), kNoAmx)) return;
  constexpr int64_t kSteps = 8;
  const int64_t distance = state.range(0);
  const auto ring = RandomLines<uint8_t>(kSteps * 2 * kTileBytes, 1);
  TileInstructions tiles;
  tiles.Configure(kernels::FullTiles());
  tiles.Load<6>(ring.get());
  int64_t step = 0;
  const Stopwatch watch;
  while (state.KeepRunning()) {
    for (int64_t n = 0; n < kRounds; ++n, ++step) {
      uint8_t* to = ring.get() + step % kSteps * 2 * kTileBytes;
      for (int64_t line = 0; line < 32; ++line) std::memset(to + line * 64, static_cast<int>(step & 127), 64);
      __asm__ volatile("" : : : "memory");
      const uint8_t* from = ring.get() + (step + kSteps - distance) % kSteps * 2 * kTileBytes;
      tiles.Load<4>(from);
      tiles.MultiplyU8S8<0, 4, 6>();
      tiles.Load<5>(from + kTileBytes);
      tiles.MultiplyU8S8<1, 5, 6>();
    }
  }
  alignas(64) uint8_t out[kTileBytes];
  tiles.Store<5>(out);
  tiles.Release();
  if (out[0] != ((step - 1 - distance) & 127)) state.SkipWithError("a tile is not what was stored");
  watch.CountCycles(state, kRounds);
}

void Configure(benchmark::State& state) {
  if (!Require(state, HasAmx(), kNoAmx)) return;
  const TileConfig config = kernels::FullTiles();
  TileInstructions tiles;
  const Stopwatch watch;
  while (state.KeepRunning()) {
    tiles.Configure(config);
    tiles.Release();
  }
  watch.CountCycles(state, 1);
}

void MultiplyOnAllCores(benchmark::State& state) {
  if (!Require(state, HasAmx(), kNoAmx)) return;
  const auto threads = static_cast<int>(state.range(0));
  const TileConfig config = ConfigOf(16, 64);
  const std::vector<uint8_t> ones(kTileBytes, 1);
  int32_t sums[2] = {};
  while (state.KeepRunning()) {
    Pool(threads).Run([&](int thread) {
      for (int n = 0; n < 100; ++n) sums[thread] = MultiplyOnes<false>(config, ones.data());
    });
  }
  if (sums[threads - 1] != kRounds * 64) state.SkipWithError("the sum of the products is wrong");
  const double products = 100.0 * 4 * kRounds * 16384 * threads * static_cast<double>(state.iterations());
  state.counters["TOPS"] = benchmark::Counter(2e-12 * products, benchmark::Counter::kIsRate);
}

// So many instructions, that do nothing.
template <int kCount>
void Room() {
  __asm__ volatile(".rept %c0\n\tnop\n\t.endr" : : "i"(kCount));
}

// A load and a product, in turn, that use kRegisters registers: sums in all but the last two.
template <int kRegisters, int kRoom, int kNumber = 0>
void LoadAndMultiply(TileInstructions& tiles, const uint8_t* ones) {
  constexpr int kSums = kRegisters - 2;
  LoadStrided<kSums>(ones + kNumber % 8 * kTileBytes, 64, false);
  Room<kRoom>();
  tiles.MultiplyU8S8<kNumber % kSums, kSums, kSums + 1>();
  Room<kRoom>();
  if constexpr (kNumber + 1 < 4 * kSums) LoadAndMultiply<kRegisters, kRoom, kNumber + 1>(tiles, ones);
}

// The cost of both. Beside a neighbour on the core's other hardware thread that uses tiles it grows with the registers.
template <int kRegisters, int kRoom>
void RegistersInUse(benchmark::State& state) {
  if (!Require(state, HasAmx(), kNoAmx)) return;
  constexpr int kSums = kRegisters - 2;
  const Lines<uint8_t> ones(8 * kTileBytes);
  std::memset(ones.get(), 1, ones.bytes());
  alignas(64) int32_t sums[256] = {};
  TileInstructions tiles;
  tiles.Configure(kernels::FullTiles(kRegisters));
  tiles.Load<kSums + 1>(ones.get());
  const Stopwatch watch;
  while (state.KeepRunning()) {
    tiles.Zero<0>();
    for (int64_t n = 0; n < kRounds; ++n) LoadAndMultiply<kRegisters, kRoom>(tiles, ones.get());
  }
  tiles.Store<0>(sums);
  tiles.Release();
  if (sums[0] != 4 * kRounds * 64) state.SkipWithError("the sum of the products is wrong");
  watch.CountCycles(state, 4 * kSums * kRounds);
}

void RegisterInstructions() {
  const auto add = [](const char* name, auto... arguments) {
    return benchmark::RegisterBenchmark(name, arguments...)->UseRealTime();
  };
  add("02_tdpbusd/4_sums", Multiply, false, 16, 64);
  add("02_tdpbusd/1_sum", Multiply, true, 16, 64);
  add("02_tdpbusd/4_sums_8_weight_rows", Multiply, false, 8, 64);
  add("02_tdpbusd/4_sums_32_inputs", Multiply, false, 16, 32);
  add("03_tile_load/L1", Load, 16384, 64, false);
  add("03_tile_load/L2", Load, 524288, 64, false);
  add("03_tile_load/L2_stride_4096", Load, 524288, 4096, false);
  add("03_tile_load/L2_stride_4160", Load, 524288, 4160, false);
  add("03_tile_load/L2_t1", Load, 524288, 64, true);
  add("04_store_to_tile_load", StoreThenLoad)->DenseRange(0, 4)->ArgName("steps");
  add("10_ldtilecfg_and_tilerelease", Configure);
  add("14_tdpbusd_on_cores", MultiplyOnAllCores)->Arg(1)->Arg(2)->ArgName("threads");
  add("15_load_and_tdpbusd/4_registers", RegistersInUse<4, 0>);
  add("15_load_and_tdpbusd/6_registers", RegistersInUse<6, 0>);
  add("15_load_and_tdpbusd/8_registers", RegistersInUse<8, 0>);
  add("15_load_and_tdpbusd/4_registers_room", RegistersInUse<4, 4>);
  add("15_load_and_tdpbusd/6_registers_room", RegistersInUse<6, 4>);
  add("15_load_and_tdpbusd/7_registers_room", RegistersInUse<7, 4>);
  add("15_load_and_tdpbusd/8_registers_room", RegistersInUse<8, 4>);
}

#else

void RegisterInstructions() {}

#endif

// One kv head of 128 dimensions over blocks that stay in L2, for so many columns: the cost of a block.
void BlockAttention(benchmark::State& state, const char* target, kernels::FloatType type) {
  const kernels::KernelTable* table = RequireTarget(state, target);
  if (table == nullptr) return;
  constexpr int64_t kHeadDim = 128;
  constexpr int32_t kBlocks = 16;
  const int64_t columns = state.range(0), bytes = type == kernels::FloatType::kF32 ? 4 : 2;
  const int64_t block_bytes = 2 * kernels::kBlockPositions * kHeadDim * bytes;
  const Lines<uint8_t> kv(kBlocks * block_bytes);
  std::memset(kv.get(), 0x3c, kv.bytes());  // small positive numbers in either type
  const Lines<float> q(columns * kHeadDim), out(columns * kHeadDim),
      scratch(kernels::AttentionScratch(kHeadDim, columns, 0));
  for (int64_t i = 0; i < columns * kHeadDim; ++i) q[i] = 0.25F;
  int32_t blocks[kBlocks];
  for (int32_t b = 0; b < kBlocks; ++b) blocks[b] = b;
  kernels::AttentionRow row;
  row.last = kBlocks * kernels::kBlockPositions - 1;
  row.in_place_end = row.last + 1;
  kernels::AttentionArgs args;
  args.kv = {kv.get(), kv.get() + block_bytes / 2, block_bytes, type, kHeadDim};
  args.group = columns;
  args.num_rows = 1;
  args.rows = &row;
  args.blocks = blocks;
  args.scale = 0.125F;
  args.q = q.get();
  args.q_stride = args.out_stride = columns * kHeadDim;
  args.out = out.get();
  args.scratch = scratch.get();
  const Stopwatch watch;
  while (state.KeepRunning()) table->attention(args);
  float value;
  std::memset(&value, 0x3c, sizeof(value));
  if (std::abs(out[0] / value - 1) > 0.01F) state.SkipWithError("the mean of equal values is another");
  watch.CountCycles(state, kBlocks);
}

}  // namespace

void RegisterTileBenchmarks() {
  RegisterInstructions();
  const auto attention = [](const char* name, auto... arguments) {
    benchmark::RegisterBenchmark(name, BlockAttention, arguments...)->Arg(1)->Arg(16)->Arg(64)->ArgName("columns");
  };
  attention("13_attention_block/amx", "amx", kernels::FloatType::kBF16);
  attention("13_attention_block/avx512_bf16", "avx512", kernels::FloatType::kBF16);
  attention("13_attention_block/avx512_f32", "avx512", kernels::FloatType::kF32);
  attention("13_attention_block/avx2_bf16", "avx2", kernels::FloatType::kBF16);
  attention("13_attention_block/avx2_f32", "avx2", kernels::FloatType::kF32);
}

}  // namespace hydrant::micro
