// SPDX-License-Identifier: Apache-2.0
// What a TreeChooser keeps from one run to the next.
#include <algorithm>
#include <cmath>
#include <string>
#include <utility>

#include "base/json.h"
#include "tree/chooser.h"

namespace hydrant::tree {
namespace {

using base::Json;
using base::JsonView;

constexpr double kLearnedSteps = 32;      // steps that what earlier runs saw weighs
constexpr double kOtherDay = 0.05;        // doubt about costs that is added from one run to the next
constexpr int64_t kPauseAfterLearn = 64;  // plain steps at the start where drafting did not pay
constexpr int64_t kLongestLearnedPause = 128;
constexpr size_t kMostEntries = 4096;
constexpr double kLeastTime = 1e-6, kMostTime = 1e9;  // milliseconds
constexpr double kLeastCost = 1e-3, kMostCost = 1e6;

double NumberIn(const JsonView& view, double least, double most) {
  const double value = view.Number();
  if (!(value >= least && value <= most))
    view.Fail("a number from " + std::to_string(least) + " to " + std::to_string(most));
  return value;
}

JsonView ListIn(const JsonView& object, std::string_view key) {
  JsonView list = object.At(key);
  if (!list.is_array() || list.Size() > kMostEntries) list.Fail("a list of at most " + std::to_string(kMostEntries));
  return list;
}

bool IsSame(const FamilyTree& tree, const JsonView& entry) {
  if (tree.grown.nodes == 0) return !entry.Has("nodes") && Json(tree.topology.Paths()) == entry.At("choices").raw();
  return entry.Has("nodes") && entry.At("nodes").raw() == tree.grown.nodes &&
         entry.At("depth").raw() == tree.grown.depth;
}

}  // namespace

Json TreeChooser::Learned() const {
  Json json = {{"paused", std::max<int64_t>(paused_until_ - step_, 0)},  // plain steps that are left of the pause
               {"pause", pause_},
               {"trees", Json::array()},
               {"nodes", std::visit([](const auto& seen) { return seen.Learned(); }, seen_)}};
  for (size_t tree = 0; tree < family_.size(); ++tree) {
    if (times_.count(tree) == 0) continue;
    json["trees"].push_back({{"name", family_[tree].name},
                             {"choices", family_[tree].topology.Paths()},
                             {"steps", times_.count(tree)},
                             {"milliseconds", std::clamp(times_.Milliseconds(tree), kLeastTime, kMostTime)},
                             {"cost", std::clamp(times_.Cost(tree), kLeastCost, kMostCost)},
                             {"doubt", times_.Doubt(tree)},
                             {"tokens_per_step", yields_[tree]}});
    if (family_[tree].grown.nodes == 0) continue;
    json["trees"].back().update({{"nodes", family_[tree].grown.nodes}, {"depth", family_[tree].grown.depth}});
  }
  return json;
}

void TreeChooser::Learn(const JsonView& learned) {
  TreeChooser next = *this;  // so that a bad file changes nothing
  const JsonView trees = ListIn(learned, "trees");
  for (size_t i = 0; i < trees.Size(); ++i) {
    const JsonView entry = trees.At(i);
    const double milliseconds = NumberIn(entry.At("milliseconds"), kLeastTime, kMostTime);
    const double cost = NumberIn(entry.At("cost"), kLeastCost, kMostCost);
    const double doubt = NumberIn(entry.At("doubt"), 0, 10);
    const int64_t steps = entry.At("steps").Int(1, int64_t{1} << 50);
    const auto tree = std::ranges::find_if(family_, [&](const FamilyTree& one) { return IsSame(one, entry); });
    if (tree == family_.end()) continue;
    const auto index = static_cast<size_t>(tree - family_.begin());
    next.times_.Recall(index, index == 0 ? milliseconds : cost, std::hypot(doubt, kOtherDay), steps);
  }
  std::visit([&](auto& seen) { seen.Learn(learned.At("nodes")); }, next.seen_);
  const int64_t paused = learned.At("paused").Int(0, kLongestPause);
  next.pause_ = std::min(learned.At("pause").Int(kFirstPause, kLongestPause), kLongestLearnedPause);
  std::visit([](auto& seen) { seen.Forget(kLearnedSteps); }, next.seen_);
  next.UpdateYields();
  int64_t drafted = 0;
  for (size_t tree = 1; tree < family_.size(); ++tree) drafted += next.times_.count(tree);
  next.learned_ = next.times_.count(0) > 0 && drafted >= kMostLosses;  // else it opens as a new one does
  if (!next.learned_) {
    *this = std::move(next);
    return;
  }
  next.drafting_steps_ = kMostLosses;
  // A pause of the last run goes on where it stopped: otherwise short runs would never come to its end.
  if (paused > 0 || next.Best() == 0) {
    next.paused_until_ = paused > 0 ? std::min(paused, kPauseAfterLearn) : kPauseAfterLearn;
    next.probe_left_ = 2;
  }
  next.Choose();
  *this = std::move(next);
}

}  // namespace hydrant::tree
