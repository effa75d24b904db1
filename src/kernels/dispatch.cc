// SPDX-License-Identifier: Apache-2.0
#include <array>
#include <cstdlib>

#include "base/nearest.h"
#include "hydrant/error.h"
#include "kernels/cpu_features.h"
#include "kernels/kernels.h"
#include "kernels/noise.h"
#include "kernels/targets.h"

namespace hydrant::kernels {
namespace {

constexpr std::array<std::string_view, 8> kNames{"auto",   "portable",  "avx2", "avx-vnni",
                                                 "avx512", "amx-quads", "amx",  "amx-twin"};

// The rest of a table is the target's entries, one by one.
KernelTable WithRowwise(KernelTable table, const RowwiseEntries& rowwise) {
  table.rms_norm = rowwise.rms_norm;
  table.rope_table = rowwise.rope_table;
  table.rope = rowwise.rope;
  table.silu_mul = rowwise.silu_mul;
  table.residual_silu = rowwise.residual_silu;
  table.exp_sums = rowwise.exp_sums;
  table.widen = rowwise.widen;
  return table;
}

KernelTable MakePortable() {
  KernelTable table{};
  table.name = "portable";
  table.matmul = MatmulPortable;
  table.packed_matmul = PackedMatmulPortable;
  table.reads_lines = table.reads_interleaved = true;
  table.quantize_row = QuantizeRowPortable;
  table.plan_row_blocks = PlanRowBlocksPortable;
  table.attention = AttentionPortable;
  table.store_kv = StoreKvPortable;
  table.gumbel_row = GumbelRowPortable;
  table.peak = kPeakPortable;
  return WithRowwise(table, kRowwisePortable);
}

#if defined(__x86_64__)
KernelTable MakeAvx2() {
  KernelTable table{};
  table.name = "avx2";
  table.matmul = MatmulAvx2;
  table.row_lanes = 8;
  table.min_row_lanes = 3;
  table.pack_lanes = PackLanesAvx2;
  table.packed_matmul = DetectCpuFeatures().reads_in_turns ? PackedMatmulInTurnsAvx2 : PackedMatmulAvx2;
  table.reads_lines = true;
  table.quantize_row = QuantizeRowAvx2;
  table.plan_row_blocks = PlanRowBlocksAvx2;
  table.sign_codes = true;
  table.attention = AttentionAvx2;
  table.store_kv = StoreKvAvx2;
  table.gumbel_row = GumbelRowAvx2;
  table.peak = kPeakAvx2;
  return WithRowwise(table, kRowwiseAvx2);
}

// The loops of another target, its products of bytes replaced.
std::vector<PeakLoop> WithInt8(const PeakEntries& entries, const PeakLoop& bytes) {
  std::vector<PeakLoop> loops(entries.loops, entries.loops + entries.num_loops);
  std::erase_if(loops, [](const PeakLoop& loop) { return loop.type == PeakType::kInt8; });
  loops.push_back(bytes);
  return loops;
}

// Between avx2 and avx512: clients without AVX-512 (Intel's since Alder Lake).
KernelTable MakeAvxVnni() {
  KernelTable table = MakeAvx2();
  table.name = "avx-vnni";
  table.packed_matmul = PackedMatmulAvxVnni;
  table.quantize_row = QuantizeRowAvxVnni;
  table.plan_row_blocks = PlanRowBlocksAvxVnni;
  table.sign_codes = false;
  static const std::vector<PeakLoop> loops = WithInt8(kPeakAvx2, kPeakAvxVnni);
  table.peak.loops = loops.data();
  table.peak.num_loops = static_cast<int64_t>(loops.size());
  return table;
}

KernelTable MakeAvx512() {
  KernelTable table{};
  table.name = "avx512";
  table.matmul = MatmulAvx512;
  table.row_lanes = 16;
  table.min_row_lanes = 9;
  table.pack_lanes = PackLanesAvx512;
  table.packed_matmul = DetectCpuFeatures().reads_in_turns ? PackedMatmulInTurnsAvx512 : PackedMatmulAvx512;
  table.quantize_row = QuantizeRowAvx512;
  table.plan_row_blocks = PlanRowBlocksAvx512;
  table.reads_interleaved = true;
  table.fetches_lists = !DetectCpuFeatures().reads_in_turns;
  table.attention = DetectCpuFeatures().slow_bf16_dots ? AttentionFusedAvx512 : AttentionAvx512;
  table.store_kv = StoreKvAvx512;
  table.gumbel_row = GumbelRowAvx512;
  table.peak = kPeakAvx512;
  return WithRowwise(table, kRowwiseAvx512);
}

KernelTable MakeAmx() {
  KernelTable table = MakeAvx512();
  table.name = "amx";
  table.packed_matmul = PackedMatmulAmx;
  table.reads_lines = true;
  table.reads_interleaved = false;
  table.fetches_lists = false;
  table.attention = AttentionAmx;
  static const std::vector<PeakLoop> loops = WithInt8(kPeakAvx512, kPeakTiles);
  table.peak.loops = loops.data();
  table.peak.num_loops = static_cast<int64_t>(loops.size());
  table.plan_row_blocks = PlanRowBlocksTiles;
  table.quad_codes = true;
  table.pack_quads = PackQuadsAvx512;
  return table;
}

// avx512 but for quads times enough rows and for attention: for small models.
KernelTable MakeAmxQuads() {
  KernelTable table = MakeAvx512();
  table.name = "amx-quads";
  table.packed_matmul = PackedMatmulAmxQuads;
  table.fetches_lists = false;
  table.attention = AttentionAmxQuads;
  table.peak = MakeAmx().peak;
  return table;
}
#endif

// What "amx" does, with tiles in software: on a machine with AVX-512 everything else is the code that "amx" runs.
KernelTable MakeAmxTwin() {
  KernelTable table = MakePortable();
  table.packed_matmul = PackedMatmulAmxTwin;
  table.attention = AttentionAmxTwin;
  table.pack_quads = PackQuadsPortable;
#if defined(__x86_64__)
  if (DetectCpuFeatures().avx512) {
    table = MakeAvx512();
    table.packed_matmul = PackedMatmulAmxTwinAvx512;
    table.attention = AttentionAmxTwinAvx512;
    table.pack_quads = PackQuadsAvx512;
  }
#endif
  table.name = "amx-twin";
  table.reads_lines = true;
  table.reads_interleaved = false;
  table.fetches_lists = false;
  table.plan_row_blocks = PlanRowBlocksTiles;
  table.quad_codes = true;
  return table;
}

struct Target {
  std::string_view name;
  const KernelTable* table;  // null: not compiled in
  bool supported;            // by this machine
  const char* needs;
};

constexpr const char* kNeedsOfAmx =
    "avx512, AMX TILE, INT8 and BF16, and the operating system's leave to use tiles (Linux gives none where a thread "
    "has an alternate signal stack of less than some 12 KB)";

// Slowest first: "auto" takes the last that the machine has, but never the twin.
const std::array<Target, 7>& Targets() {
  static const KernelTable twin = MakeAmxTwin();
#if defined(__x86_64__)
  static const KernelTable avx2 = MakeAvx2();
  static const KernelTable avx_vnni = MakeAvxVnni();
  static const KernelTable avx512 = MakeAvx512();
  static const KernelTable* const avx2_table = &avx2;
  static const KernelTable* const avx_vnni_table = &avx_vnni;
  static const KernelTable* const avx512_table = &avx512;
  static const KernelTable amx = MakeAmx();
  static const KernelTable* const amx_table = &amx;
  static const KernelTable amx_quads = MakeAmxQuads();
  static const KernelTable* const amx_quads_table = &amx_quads;
#else
  static const KernelTable* const avx2_table = nullptr;
  static const KernelTable* const avx_vnni_table = nullptr;
  static const KernelTable* const avx512_table = nullptr;
  static const KernelTable* const amx_table = nullptr;
  static const KernelTable* const amx_quads_table = nullptr;
#endif
  static const std::array<Target, 7> targets{{
      {"portable", &PortableKernels(), true, ""},
      {"amx-twin", &twin, true, ""},
      {"avx2", avx2_table, DetectCpuFeatures().avx2, "AVX2, FMA and F16C"},
      {"avx-vnni", avx_vnni_table, DetectCpuFeatures().avx_vnni, "avx2 and AVX-VNNI"},
      {"avx512", avx512_table, DetectCpuFeatures().avx512, "AVX-512 F, BW, VL, DQ, VNNI, VBMI and BF16"},
      {"amx-quads", amx_quads_table, DetectCpuFeatures().amx, kNeedsOfAmx},
      {"amx", amx_table, DetectCpuFeatures().amx, kNeedsOfAmx},
  }};
  return targets;
}

const KernelTable& Best() {
  const KernelTable* best = &PortableKernels();
  for (const Target& target : Targets()) {
    if (target.table != nullptr && target.supported && target.name != "amx-twin") best = target.table;
  }
  return *best;
}

const KernelTable& Named(std::string_view name, const std::string& where) {
  for (const Target& target : Targets()) {
    if (name != target.name) continue;
    if (target.table == nullptr) {
      throw UserError(where + " '" + std::string(name) + "' is not compiled into this binary");
    }
    if (!target.supported) {
      throw UserError(where + " '" + std::string(name) + "' is not supported by this machine: it needs " + target.needs,
                      "use --cpu-target auto");
    }
    return *target.table;
  }
  std::string names;
  for (const std::string_view known : kNames) names.append(names.empty() ? "" : ", ").append(known);
  const std::string nearest = base::Nearest(name, kNames);
  throw UserError(where + " '" + std::string(name) + "' is unknown, expected one of " + names,
                  nearest.empty() ? "" : "did you mean " + nearest + "?");
}

std::string_view TargetOfEnvironment() {
  const char* environment = std::getenv("HYDRANT_CPU_TARGET");
  return environment == nullptr || *environment == '\0' ? "auto" : environment;
}

}  // namespace

const KernelTable& PortableKernels() {
  static const KernelTable table = MakePortable();
  return table;
}

const KernelTable& AttentionTwin(const KernelTable& table, DType kv_type) {
  const bool tiles = std::string_view(table.name).starts_with("amx");
  return tiles && kv_type == DType::kBF16 ? KernelsFor("amx-twin") : PortableKernels();
}

const KernelTable& KernelsFor(std::string_view cpu_target) {
  if (cpu_target != "auto") return Named(cpu_target, "--cpu-target");
  const std::string_view named = TargetOfEnvironment();
  return named == "auto" ? Best() : Named(named, "HYDRANT_CPU_TARGET");
}

const KernelTable& KernelsForModel(std::string_view cpu_target, int64_t hidden_size) {
  constexpr int64_t kFewInputs = 768;  // up to which avx512, too, treats matrices as small
  const KernelTable& table = KernelsFor(cpu_target);
  const bool chosen = cpu_target == "auto" && TargetOfEnvironment() == "auto";
  return chosen && table.name == std::string_view("amx") && hidden_size <= kFewInputs ? KernelsFor("amx-quads") : table;
}

std::vector<const KernelTable*> AvailableKernels() {
  std::vector<const KernelTable*> tables;
  for (const Target& target : Targets()) {
    if (target.table != nullptr && target.supported) tables.push_back(target.table);
  }
  return tables;
}

std::span<const std::string_view> CpuTargetNames() { return kNames; }

}  // namespace hydrant::kernels
