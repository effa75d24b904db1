// SPDX-License-Identifier: Apache-2.0
#include <array>
#include <cstdlib>

#include "base/nearest.h"
#include "hydrant/error.h"
#include "kernels/cpu_features.h"
#include "kernels/kernels.h"
#include "kernels/targets.h"

namespace hydrant::kernels {
namespace {

// Targets as users name them. amx-quads is missing: "auto" takes it in place of amx for small models.
constexpr std::array<std::string_view, 7> kNames{"auto", "portable", "avx2", "avx-vnni", "avx512", "amx", "amx-twin"};

struct Target {
  std::string_view name;
  const KernelTable* table;  // null: not compiled in
  bool supported;            // by this machine
  const char* needs;
};

constexpr const char* kNeedsOfAmx =
    "avx512, AMX TILE, INT8 and BF16, and the operating system's leave to use tiles (Linux gives none where a thread "
    "has an alternate signal stack of less than some 12 KB)";

#if defined(HYDRANT_X86_KERNELS)
#define HYDRANT_X86_TABLE(table) &(table)
const KernelTable* AmxTwin(const CpuFeatures& cpu) { return cpu.avx512 ? &kAmxTwinAvx512 : &kAmxTwin; }
#else
#define HYDRANT_X86_TABLE(table) nullptr
const KernelTable* AmxTwin(const CpuFeatures&) { return &kAmxTwin; }
#endif

// Slowest first. "auto" takes the last one that the machine can run, but never amx-twin.
const std::array<Target, 7>& Targets() {
  static const CpuFeatures& cpu = DetectCpuFeatures();
  static const std::array<Target, 7> targets{{
      {"portable", &kPortable, true, ""},
      {"amx-twin", AmxTwin(cpu), true, ""},
      {"avx2", HYDRANT_X86_TABLE(kAvx2[cpu.reads_in_turns]), cpu.avx2, "AVX2, FMA and F16C"},
      {"avx-vnni", HYDRANT_X86_TABLE(kAvxVnni), cpu.avx_vnni, "avx2 and AVX-VNNI"},
      {"avx512", HYDRANT_X86_TABLE(kAvx512[cpu.reads_in_turns][cpu.slow_bf16_dots]), cpu.avx512,
       "AVX-512 F, BW, VL, DQ, VNNI, VBMI and BF16"},
      {"amx-quads", HYDRANT_X86_TABLE(kAmxQuads), cpu.amx, kNeedsOfAmx},
      {"amx", HYDRANT_X86_TABLE(kAmx), cpu.amx, kNeedsOfAmx},
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
                      "use EngineOptions::cpu_target auto");
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

const KernelTable& PortableKernels() { return kPortable; }

const KernelTable& AttentionTwin(const KernelTable& table, DType kv_type) {
  return table.attends_by_tiles && kv_type == DType::kBF16 ? KernelsFor("amx-twin") : PortableKernels();
}

const KernelTable& KernelsFor(std::string_view cpu_target) {
  if (cpu_target != "auto") return Named(cpu_target, "EngineOptions::cpu_target");
  const std::string_view named = TargetOfEnvironment();
  return named == "auto" ? Best() : Named(named, "HYDRANT_CPU_TARGET");
}

const KernelTable& KernelsForModel(std::string_view cpu_target, int64_t hidden_size) {
  constexpr int64_t kFewInputs = 768;  // matrices of so many inputs are small for avx512, too
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
