// SPDX-License-Identifier: Apache-2.0
// The trees published with Medusa (FasterDecoding/Medusa, medusa/model/medusa_choices.py, Apache-2.0), which Hydra and
// Spec-Bench use too, as leaf paths: one digit per rank, prefixes implied. "eagle_1" is EAGLE-1's tree of 25, which its
// code calls mc_sim_7b_63, too (SafeAILab/EAGLE, branch v1, eagle/model/choices.py, Apache-2.0). "blockwise" is as long
// as the longest block of Stern et al. (arXiv 1811.03115): k = 10, one token of which the base gives by itself.
#include <algorithm>
#include <array>

#include "base/nearest.h"
#include "hydrant/error.h"
#include "tree/parse.h"

namespace hydrant::tree {
namespace {

struct PresetRow {
  std::string_view name;
  std::string_view leaves;
};

// clang-format off
constexpr std::array kPresets = std::to_array<PresetRow>({
    {"mc_sim_7b_63",
     "0000 0001 001 002 003 004 005 006 007 008 009 010 011 012 020 021 030 040 050 060 070 08 09 100 101 11 "
     "12 13 14 15 16 200 21 22 30 31 40 50 60 70 80 90"},
    {"vicuna_7b_stage1",
     "0000 001 002 003 004 005 006 007 008 010 011 012 020 021 030 040 050 06 07 08 09 100 101 11 12 13 14 15 "
     "16 200 21 22 23 30 31 32 40 41 50 51 60 70 80 90"},
    {"vicuna_7b_stage1_ablation",
     "0000 0001 0002 0003 0010 0020 003 004 005 006 007 008 009 0100 011 012 013 020 021 030 040 050 06 07 08 "
     "09 100 101 102 110 12 13 200 21 300 31 40 50 60 7 8 9"},
    {"vicuna_7b_stage2",
     "0000 0001 0002 0003 0010 0020 003 004 005 006 007 008 0100 011 012 013 020 021 030 040 050 06 07 08 09 "
     "100 101 102 110 12 13 14 200 21 30 31 40 50 60 70 8 9"},
    {"vicuna_13b_stage1",
     "0000 001 002 003 004 005 006 007 008 009 010 011 012 013 020 021 030 040 050 06 07 08 09 100 101 110 12 "
     "13 14 15 16 200 21 22 23 30 31 40 41 50 60 70 80 9"},
    {"vicuna_13b_stage2",
     "0000 0001 0002 0003 0010 0011 0020 003 004 005 006 007 008 009 0100 011 012 013 020 021 030 040 050 06 "
     "07 08 09 1000 101 102 110 12 13 200 21 300 40 50 6 7 8 9"},
    {"vicuna_33b_stage1",
     "000 001 002 003 004 005 006 007 008 010 011 012 020 021 030 040 05 06 07 08 09 100 101 11 12 13 14 15 16 "
     "17 200 21 22 23 24 30 31 32 40 41 50 51 60 70 80 90"},
    {"vicuna_33b_stage2",
     "0000 0001 0002 0010 002 003 004 005 006 007 008 009 0100 011 012 013 020 021 030 040 050 06 07 08 09 100 "
     "101 102 110 12 13 14 200 21 22 30 31 40 50 60 70 8 9"},
    {"zephyr_stage2",
     "0000 0001 0010 002 003 004 005 006 007 008 009 010 011 012 013 020 021 030 040 050 06 07 08 09 100 101 "
     "110 12 13 14 15 200 21 22 23 30 31 40 41 50 60 70 8 9"},
    {"eagle_1", "00000 00001 0001 0002 001 002 010 011 020 021 100 11 20 21 30"},
    {"single", "0"},
    {"chain", "0000"},
    {"blockwise", "000000000"},
});
// clang-format on

constexpr auto kNames = [] {
  std::array<std::string_view, kPresets.size()> names;
  std::ranges::transform(kPresets, names.begin(), &PresetRow::name);
  return names;
}();

}  // namespace

std::span<const std::string_view> PresetNames() { return kNames; }

bool IsPreset(std::string_view name) { return std::ranges::find(kNames, name) != kNames.end(); }

Topology Preset(std::string_view name) {
  const auto row = std::ranges::find(kPresets, name, &PresetRow::name);
  if (row == kPresets.end()) {
    const std::string nearest = base::Nearest(name, kNames);
    throw UserError("no tree is called '" + std::string(name.substr(0, 100)) + "'",
                    nearest.empty() ? "" : "did you mean '" + nearest + "'?");
  }
  std::vector<std::vector<int32_t>> paths(1);
  for (const char c : row->leaves) {
    if (c == ' ') {
      paths.emplace_back();
    } else {
      paths.back().push_back(c - '0');
    }
  }
  return Topology::FromPaths(paths, std::string(row->name));
}

}  // namespace hydrant::tree
