// SPDX-License-Identifier: Apache-2.0
#include "engine/auto_trees.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstdio>
#include <filesystem>
#include <utility>

#include "base/atomic_file.h"
#include "base/json.h"
#include "base/mapped_file.h"
#include "base/paths.h"
#include "draft/drafter.h"
#include "hydrant/error.h"

namespace hydrant::engine {
namespace {

using base::Json;
using base::JsonView;

constexpr int64_t kFormat = 2;
constexpr size_t kMostBytes = size_t{4} << 20;
constexpr size_t kMostKinds = 64;

std::string Fixed(double value, int digits) {
  char text[64];
  std::snprintf(text, sizeof text, "%.*f", digits, value);
  return text;
}

double RateOf(const TreeUse& use) { return use.tokens_per_step / use.milliseconds; }

// Why `best` was chosen among those tried. `tried` has "nothing" first.
std::string WhyChosen(const TreeUse& best, const std::vector<TreeUse>& tried) {
  if (tried.size() < 2) return "too few steps to tell";
  const TreeUse& plain = tried.front();
  if (plain.milliseconds <= 0) return "too few steps to tell";
  const TreeUse* rival = nullptr;
  for (const TreeUse& use : tried) {
    if (use.name != best.name && use.nodes > 0 && (rival == nullptr || RateOf(use) > RateOf(*rival))) rival = &use;
  }
  if (best.nodes == 0 && rival == nullptr) return "too few steps to tell";
  const auto give = [&plain](const TreeUse& use) {
    return "gives " + Fixed(use.tokens_per_step, 2) + " tokens for " + Fixed(use.milliseconds / plain.milliseconds, 2) +
           " times the time of a plain step";
  };
  if (best.nodes == 0) return "drafting does not pay here: " + rival->name + " " + give(*rival);
  std::string why = best.name + " " + give(best);
  if (rival != nullptr) {
    const double less = 100 * (1 - RateOf(*rival) / RateOf(best));
    why += "; next is " + rival->name + ", " + Fixed(std::max(less, 0.0), 0) + " % slower";
  }
  return why;
}

}  // namespace

StepKind KindOfStep(size_t sequences, bool sampled, bool pruned) {
  const size_t bucket = sequences <= 4 ? sequences : std::bit_ceil(sequences);
  return {.sequences = static_cast<int32_t>(bucket), .sampled = sampled, .pruned = pruned};
}

AutoTrees::AutoTrees(std::vector<tree::FamilyTree> family, std::string file, std::string key)
    : family_(std::move(family)), file_(std::move(file)), key_(std::move(key)) {
  for (const tree::FamilyTree& tree : family_) shapes_.emplace_back(tree.topology);
  if (file_.empty() || !base::IsThere(file_)) return;
  try {
    Load();
  } catch (const UserError& error) {
    learned_.clear();
    problem_ = std::string("what EngineOptions::tree auto learned before is not used: ") + error.what();
  }
}

void AutoTrees::Load() {
  const Json json = base::ParseJson(base::ReadTextFile(file_, kMostBytes), file_);
  const JsonView view(json, file_);
  if (view.At("format").raw() != kFormat || view.At("key").String() != key_)
    return;  // of another version, or a collision
  const JsonView list = view.At("kinds");
  if (!list.is_array() || list.Size() > kMostKinds) list.Fail("a list of at most " + std::to_string(kMostKinds));
  for (size_t i = 0; i < list.Size(); ++i) {
    const JsonView entry = list.At(i);
    const StepKind kind{.sequences = static_cast<int32_t>(entry.At("sequences").Int(1, 1 << 20)),
                        .sampled = entry.At("sampled").Bool(),
                        .pruned = entry.At("pruned").Bool()};
    tree::TreeChooser(family_).Learn(entry.At("learned"));  // throws where it cannot be used
    learned_[kind] = base::DumpJson(entry.At("learned").raw());
  }
}

int32_t AutoTrees::max_rows() const {
  int32_t drafted = 0;
  for (const tree::FamilyTree& tree : family_) drafted = std::max(drafted, tree.num_drafted());
  return 1 + drafted;
}

int32_t AutoTrees::max_slots() const {
  int32_t slots = max_rows();
  for (const tree::FamilyTree& tree : family_) {
    if (tree.grown.nodes > 0) slots = std::max(slots, draft::SlotsOf(tree.grown));
  }
  return slots;
}

int32_t AutoTrees::max_depth() const {
  int32_t depth = 0;
  for (const tree::FamilyTree& tree : family_) depth = std::max(depth, tree.depth());
  return depth;
}

tree::TreeChooser& AutoTrees::For(const StepKind& kind) {
  const auto [place, is_new] = choosers_.try_emplace(kind, family_);
  const auto learned = learned_.find(kind);
  if (is_new && learned != learned_.end()) {
    const Json json = base::ParseJson(learned->second, file_);
    place->second.Learn(JsonView(json, file_));
  }
  return place->second;
}

TreeUse AutoTrees::UseOf(const tree::TreeEstimate& estimate, std::span<const int64_t> steps) const {
  const auto index = static_cast<size_t>(estimate.tree);
  const tree::FamilyTree& tree = family_[index];
  return {.name = tree.name,
          .choices = tree::ToJson(tree.topology),
          .nodes = tree.num_drafted(),
          .steps = index < steps.size() ? steps[index] : 0,
          .tokens_per_step = estimate.tokens_per_step,
          .milliseconds = estimate.milliseconds};
}

TreeReport AutoTrees::Report(const StepKind& kind, std::span<const int64_t> steps) const {
  TreeReport report;
  report.is_auto = true;
  const auto chooser = choosers_.find(kind);
  if (chooser == choosers_.end()) {
    report.chosen = UseOf({}, steps);
    report.why = "no step was taken";
    return report;
  }
  for (const tree::TreeEstimate& estimate : chooser->second.Estimates()) report.tried.push_back(UseOf(estimate, steps));
  report.chosen = UseOf(chooser->second.EstimateOf(chooser->second.Best()), steps);
  report.why = WhyChosen(report.chosen, report.tried);
  return report;
}

void AutoTrees::Save() {
  if (file_.empty() || choosers_.empty()) return;
  Json kinds = Json::array();
  for (const auto& [kind, chooser] : choosers_) learned_[kind] = base::DumpJson(chooser.Learned());
  for (const auto& [kind, learned] : learned_) {
    if (kinds.size() == kMostKinds) break;
    kinds.push_back({{"sequences", kind.sequences},
                     {"sampled", kind.sampled},
                     {"pruned", kind.pruned},
                     {"learned", base::ParseJson(learned, file_)}});
  }
  const std::string text = base::DumpJson({{"format", kFormat}, {"key", key_}, {"kinds", std::move(kinds)}}) + "\n";
  problem_.clear();
  try {
    std::error_code error;  // a folder that cannot be made makes the file fail
    std::filesystem::create_directories(std::filesystem::path(file_).parent_path(), error);
    base::AtomicFile file(file_);
    file.Write(text.data(), text.size());
    file.Keep();
  } catch (const UserError& error) {
    if (!save_failed_) problem_ = std::string("what EngineOptions::tree auto has learned is not kept: ") + error.what();
    save_failed_ = true;
  }
}

}  // namespace hydrant::engine
