// SPDX-License-Identifier: Apache-2.0
#include "engine/trees.h"

#include <algorithm>
#include <cstdio>
#include <filesystem>
#include <fstream>
#include <system_error>
#include <utility>

#include "base/paths.h"
#include "checkpoint/content_hash.h"
#include "hydrant/error.h"
#include "load/loaded_model.h"

namespace hydrant::engine {
namespace {

constexpr const char* kAuto = "auto";
constexpr const char* kDynamic = "dynamic";
constexpr const char* kBeam = "beam";

// The heads' own tree, or a published one, cut to their depth. (A tree that the user names is never cut.)
tree::NamedTopology DefaultTree(const std::string& folder, int32_t heads) {
  tree::NamedTopology named{.name = "mc_sim_7b_63", .topology = tree::Preset("mc_sim_7b_63")};
  const std::string file = folder + "/trees.json";
  if (!folder.empty() && base::IsThere(file)) named = tree::ReadTreeFile(file);
  named.topology = named.topology.CutToDepth(std::min(heads, named.topology.max_depth()));
  return named;
}

// Where a folder is, and the sizes and times of its files: other weights in the same place are told from these.
std::string MarkOf(const std::string& folder) {
  namespace fs = std::filesystem;
  std::error_code error;
  std::string mark = fs::weakly_canonical(folder, error).string();
  std::vector<std::string> files;
  for (fs::directory_iterator entry(folder, error), end; !error && entry != end; entry.increment(error)) {
    std::error_code unknown;
    if (!entry->is_regular_file(unknown)) continue;
    files.push_back(entry->path().filename().string() + ":" + std::to_string(entry->file_size(unknown)) + ":" +
                    std::to_string(entry->last_write_time(unknown).time_since_epoch().count()));
  }
  std::ranges::sort(files);
  for (const std::string& file : files) mark += " " + file;
  return mark;
}

// As Linux names it; empty where it does not.
std::string CpuModel() {
  std::ifstream info("/proc/cpuinfo");
  for (std::string line; std::getline(info, line);) {
    if (line.starts_with("model name")) return line.substr(std::min(line.find(':') + 1, line.size()));
  }
  return "";
}

// Same model, heads and machine: steps take and give the same. What this cannot tell apart only spoils a first guess,
// which the first steps correct.
std::string TreeKey(const load::LoadedModel& loaded) {
  std::string key = MarkOf(loaded.options.model) + "|" + MarkOf(loaded.options.draft);
  for (const std::string& folder : loaded.options.more_drafts) key += "|" + MarkOf(folder);
  for (const std::string& part :
       {std::string(loaded.weights.layers.front().q.format()), loaded.info.head_weights,
        std::string(loaded.options.kv_type), std::to_string(loaded.info.num_draft_vocab),
        std::string(loaded.queue.table->name), std::to_string(loaded.pool->num_threads()), CpuModel()}) {
    key += "|" + part;
  }
  return key;
}

std::string FileFor(const std::string& folder, const std::string& key) {
  const auto* bytes = reinterpret_cast<const uint8_t*>(key.data());
  char name[32];
  std::snprintf(name, sizeof name, "%016llx.json",
                static_cast<unsigned long long>(checkpoint::XxHash64(std::span(bytes, key.size()))));
  return folder + "/" + name;
}

std::unique_ptr<AutoTrees> MakeAutoTrees(load::LoadedModel& loaded, const tree::Limits& limits) {
  const EngineOptions& options = loaded.options;
  std::vector<tree::NamedTopology> own;
  const std::string trees_json = options.draft + "/trees.json";
  if (!options.draft.empty() && base::IsThere(trees_json)) own = tree::ReadAllTrees(trees_json);
  for (tree::NamedTopology& tree : own) {
    tree.topology = tree.topology.CutToDepth(std::min(limits.num_heads, tree.topology.max_depth()));
    tree::CheckFits(tree.topology, limits, "tree '" + tree.name + "'");
  }
  std::string key, file;
  if (!options.tree_memory.empty() && !options.model.empty() && !options.draft.empty()) {
    key = TreeKey(loaded);
    file = FileFor(options.tree_memory, key);
  }
  // Trees of the folder's own are shapes, and are tried as such.
  const bool grows = loaded.drafter->GrowsTrees() && own.empty();
  auto trees =
      std::make_unique<AutoTrees>(grows ? tree::GrownFamily(limits) : tree::TreeFamily(own, limits), file, key);
  if (!trees->problem().empty()) loaded.info.warnings.push_back(trees->problem());
  return trees;
}

}  // namespace

int32_t TreePlan::max_rows() const {
  if (is_dynamic) return 1 + dynamic.nodes;
  if (is_beam) return 1 + draft::NodesOf(beam);
  return auto_trees != nullptr ? auto_trees->max_rows() : shape->whole().num_nodes();
}

Trees::Trees(load::LoadedModel& loaded)
    : limits_{.num_heads = loaded.drafter->max_depth(),
              .vocab_size = static_cast<int32_t>(loaded.weights.config.vocab_size),
              .max_nodes = load::kMaxRows},
      grows_trees_(loaded.drafter->GrowsTrees()),
      is_merged_(loaded.drafter->num_trees() > 1),
      drafter_(loaded.drafter->name()),
      named_(loaded.options.tree) {
  tree::Limits usual = limits_;
  usual.num_heads = loaded.drafter->usual_depth();
  const tree::NamedTopology tree = DefaultTree(loaded.options.draft, usual.num_heads);
  default_ = Fixed(tree, "tree '" + tree.name + "'");
  auto_trees_ = MakeAutoTrees(loaded, usual);
  if (!named_.empty() && named_ != kAuto) static_cast<void>(For({}));
}

TreePlan Trees::Fixed(tree::NamedTopology tree, const std::string& where) const {
  tree::CheckFits(tree.topology, limits_, where);
  TreePlan plan{.name = std::move(tree.name), .choices = tree::ToJson(tree.topology), .shape = nullptr};
  plan.shape = std::make_shared<draft::StaticTree>(std::move(tree.topology));
  return plan;
}

void Trees::CheckGrows(const char* tree) const {
  if (grows_trees_) return;
  throw UserError(
      "EngineOptions::tree is \"" + std::string(tree) + "\", and " + drafter_ + " heads fill trees of a given shape",
      "name a preset, a file or a list of paths, or leave it out");
}

TreePlan Trees::Dynamic(const GenerationRequest& request) const {
  CheckGrows(kDynamic);
  // N nodes are at most N levels deep, and come from the N best of each level: more would be drafted in vain.
  DynamicTreeOptions tree = request.dynamic;
  if (request.max_nodes > 0) tree.nodes = std::min(tree.nodes, request.max_nodes);
  tree.depth = std::min(tree.depth, tree.nodes);
  tree.width = std::min(tree.width, tree.nodes);
  return {.name = kDynamic, .choices = "[]", .is_dynamic = true, .dynamic = tree};
}

TreePlan Trees::Beam(const GenerationRequest& request) const {
  CheckGrows(kBeam);
  return {.name = kBeam, .choices = "[]", .is_beam = true, .beam = request.beam};
}

TreePlan Trees::ChainOf(int32_t depth) const {
  const std::string name = "chain of " + std::to_string(depth);
  const std::vector<std::vector<int32_t>> path(1, std::vector<int32_t>(static_cast<size_t>(depth), 0));
  return Fixed({.name = name, .topology = tree::Topology::FromPaths(path)}, "GenerationRequest::draft_depth");
}

// Of a request for which nobody has named a tree.
TreePlan Trees::Default(const GenerationRequest& request) const {
  switch (request.accept.rule) {
    case AcceptRule::kTypical: return default_;
    // The chain that most tools draft by themselves is no longer.
    case AcceptRule::kRejection: return ChainOf(std::min(4, limits_.num_heads));
    case AcceptRule::kExact: break;
  }
  return {.name = kAuto, .choices = "[]", .shape = nullptr, .auto_trees = auto_trees_.get()};
}

TreePlan Trees::For(const GenerationRequest& request) const {
  if (is_merged_ && request.accept.rule == AcceptRule::kRejection) {
    throw UserError("AcceptOptions::rule is \"rejection\", which needs drafts of one distribution, and " + drafter_ +
                        " draft together",
                    "use the exact rule");
  }
  const std::string& name = request.tree.empty() ? named_ : request.tree;
  const AcceptRule rule = request.accept.rule;
  // A chain's length stands against the engine's tree, unless that one has a depth, too.
  if (request.tree.empty() && request.draft_depth > 0 && name != kDynamic) return ChainOf(request.draft_depth);
  if (name.empty()) return Default(request);
  if (name == kAuto && rule == AcceptRule::kTypical) {
    throw UserError(
        "EngineOptions::tree is \"auto\" with typical acceptance, whose text would depend on measured times",
        "name another tree, or leave it out for the heads' default one");
  }
  if ((name == kAuto || name == kDynamic || name == kBeam) && rule == AcceptRule::kRejection) {
    throw UserError("EngineOptions::tree is \"" + name +
                        "\" with the rejection rule, whose drafts must be as many as was decided "
                        "before they were drawn: else the text is not distributed as the model's own",
                    "name a preset, a file or a list of paths, or give a chain's length alone "
                    "(GenerationRequest::draft_depth)");
  }
  if (name == kAuto) return {.name = kAuto, .choices = "[]", .shape = nullptr, .auto_trees = auto_trees_.get()};
  if (name == kDynamic) return Dynamic(request);
  if (name == kBeam) return Beam(request);
  const tree::NamedTopology tree = tree::ParseTree(name);
  return Fixed({tree.name, tree::ForHeads(tree, limits_.num_heads)}, "tree '" + tree.name + "'");
}

}  // namespace hydrant::engine
