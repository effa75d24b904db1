// SPDX-License-Identifier: Apache-2.0
// Every spelling in which a user may give a tree, and the published presets.
#pragma once

#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "tree/topology.h"

namespace hydrant::tree {

struct NamedTopology {
  std::string name;  // preset name, file name, or "custom" for a literal list
  Topology topology;
};

// Published presets: nine of Medusa's (mc_sim_7b_63 is also Hydra's and Spec-Bench's), "single", "chain", and
// "blockwise", a chain through all heads.
// Names in the order of documentation.
std::span<const std::string_view> PresetNames();
bool IsPreset(std::string_view name);
Topology Preset(std::string_view name);  // throws UserError with the nearest name
// "blockwise" is cut to heads that are fewer than it is deep; every other tree stays as it is.
Topology ForHeads(const NamedTopology& tree, int32_t num_heads);

// A preset name, a JSON file of at most 4 MiB (a list; or an object {"tree": [...]} / {"name": ..., "choices": [...]} /
// trees.json's {"trees": [{"nodes": .., "choices": [...]}], "default": i}), or a literal JSON list ("[[0],[0,0],[1]]").
// `where` names the source in errors. Throws UserError.
inline constexpr const char* kTreeOption = "EngineOptions::tree";
NamedTopology ParseTree(const std::string& text, const std::string& where = kTreeOption);
// The JSON spellings alone, no names and no files.
Topology ParseTreeJson(std::string_view text, const std::string& where);
NamedTopology ReadTreeFile(const std::string& path);
// Every tree of such a file, each named "FILE[i]" where there are several; at most kMostTrees.
std::vector<NamedTopology> ReadAllTrees(const std::string& path);
inline constexpr size_t kMostTrees = 16;

// "[[0],[0,0],[1]]", one line, in node order.
std::string ToJson(const Topology& topology);

}  // namespace hydrant::tree
