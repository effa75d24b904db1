// SPDX-License-Identifier: Apache-2.0
#include "tree/chooser.h"

#include <algorithm>
#include <cmath>
#include <utility>

#include "base/check.h"

namespace hydrant::tree {
namespace {

constexpr int64_t kFirstGap = 32;    // steps until a tree near the best is measured again; then twice as many
constexpr int64_t kLookEvery = 4;    // at most one step in so many goes to another tree than the best
constexpr double kNear = 0.7;        // share of the best rate from which a tree is near
constexpr double kDoubt = 1.0;       // standard deviations by which a cost may lie below the belief
constexpr int64_t kLongPause = 8;    // plain steps after which the first drafting step says little of its tree
constexpr double kMargin = 1.02;     // factor by which drafting must beat plain decoding
constexpr double kCuriosity = 1.05;  // factor on the rate of a tree that was never tried
constexpr int64_t kOpening = 4;      // steps that take turns between nothing and a chain of two
constexpr int32_t kProbe = 2;        // steps until a probe is judged
constexpr double kDecay = 0.9946;    // per drafting step, of what was seen before: half of it counts after 128
constexpr double kProbeMemory = 8;   // steps that earlier observations weigh after a pause

// Belief about cost before anything was measured, in plain steps: of each row, and of each level of heads.
constexpr double kRowCost = 0.02, kLevelCost = 0.04;

}  // namespace

TreeChooser::Yields TreeChooser::YieldsOf(std::span<const FamilyTree> family) {
  const bool grows = std::ranges::any_of(family, [](const FamilyTree& tree) { return tree.grown.nodes > 0; });
  if (grows) {
    GrownYields yields;
    for (const FamilyTree& tree : family) yields.Add(tree.grown);
    return yields;
  }
  ShapeYields yields;
  for (const FamilyTree& tree : family) yields.Add(tree.topology);
  return yields;
}

TreeChooser::TreeChooser(std::span<const FamilyTree> family)
    : family_(family), times_(family.size()), looks_(family.size()), seen_(YieldsOf(family)) {
  HYDRANT_CHECK(!family.empty() && family.front().num_drafted() == 0);
  UpdateYields();
}

void TreeChooser::Observe(const StepOutcome& outcome) {
  Look& look = looks_[static_cast<size_t>(next_)];
  ++look.steps;
  ++step_;
  if (!checking_) look.gap = looking_ ? std::min(2 * look.gap, kLongestPause) : kFirstGap;
  look.next = step_ + look.gap;
  // The first drafting step after a pause also hands the heads what was committed meanwhile.
  const bool catches_up = next_ != 0 && plain_in_a_row_ >= kLongPause;
  if (!catches_up) times_.Observe(static_cast<size_t>(next_), outcome.milliseconds, CostOf(next_));
  plain_in_a_row_ = next_ == 0 ? plain_in_a_row_ + 1 : 0;
  if (next_ != 0) {
    ++drafting_steps_;
    ++steps_since_pause_;
    const double tokens = TakeOutcome(outcome);
    UpdateYields();
    const bool lost = tokens < CostOf(next_);
    losses_ = lost ? losses_ + 1 : 0;
    if (probe_left_ > 0) --probe_left_;
  }
  const int32_t taken = next_;
  const bool asks = times_.unsettled() && !checking_ && step_ > kOpening && probe_left_ == 0;
  Choose();
  checking_ =
      asks && next_ != 0;  // one step with the tree before tells whether the machine has changed or the tree is dear
  if (checking_) {
    next_ = last_tree_;
    looking_ = false;
  }
  if (!catches_up) last_tree_ = taken;
}

// Returns the tokens that a sequence got in the mean.
double TreeChooser::TakeOutcome(const StepOutcome& outcome) {
  HYDRANT_CHECK(!outcome.walks.empty());
  std::visit([](auto& seen) { seen.Decay(kDecay); }, seen_);
  size_t tokens = 0;
  for (size_t s = 0; s < outcome.walks.size(); ++s) {
    tokens += outcome.walks[s].size();
    if (auto* const shapes = std::get_if<ShapeYields>(&seen_)) {
      shapes->Take(outcome.walks[s]);
    } else {
      HYDRANT_CHECK(outcome.grown.size() == outcome.walks.size());
      std::get<GrownYields>(seen_).Take(outcome.walks[s], outcome.grown[s], family_[static_cast<size_t>(next_)].grown);
    }
  }
  return static_cast<double>(tokens) / static_cast<double>(outcome.walks.size());
}

void TreeChooser::UpdateYields() {
  yields_ = std::visit([](const auto& seen) { return seen.Tokens(); }, seen_);
}

double TreeChooser::BelievedExcess(int32_t tree) const {
  const FamilyTree& drafted = family_[static_cast<size_t>(tree)];
  return kRowCost * drafted.num_drafted() + kLevelCost * drafted.depth();
}

// A tree's measured cost. Without one, an estimate from the two measured trees whose believed costs are next to its
// own.
double TreeChooser::CostOf(int32_t tree) const {
  if (tree == 0 || IsMeasured(tree)) return times_.Cost(static_cast<size_t>(tree));
  const double excess = BelievedExcess(tree);
  int32_t below = 0, above = -1;
  for (int32_t other = 1; other < static_cast<int32_t>(family_.size()); ++other) {
    if (!IsMeasured(other)) continue;
    const double its = BelievedExcess(other);
    if (its <= excess && its >= BelievedExcess(below)) below = other;
    if (its > excess && (above < 0 || its < BelievedExcess(above))) above = other;
  }
  const double low = times_.Cost(static_cast<size_t>(below));
  double slope = 1;
  if (above >= 0) {
    slope = (times_.Cost(static_cast<size_t>(above)) - low) / (BelievedExcess(above) - BelievedExcess(below));
  } else if (below > 0) {
    slope = std::max((low - 1) / BelievedExcess(below), 0.1);
  }
  return std::max(low + slope * (excess - BelievedExcess(below)), 0.1);
}

double TreeChooser::RateOf(int32_t tree) const {
  const double rate = yields_[static_cast<size_t>(tree)] / CostOf(tree);
  return IsMeasured(tree) ? rate : rate * kCuriosity;
}

// Larger trees are tried step by step: only after a tree of about half the believed cost was measured.
bool TreeChooser::MayTry(int32_t tree) const {
  if (tree == 0 || IsMeasured(tree)) return true;
  double most = 0;
  for (int32_t other = 0; other < static_cast<int32_t>(family_.size()); ++other) {
    if (IsMeasured(other)) most = std::max(most, BelievedExcess(other));
  }
  return BelievedExcess(tree) <= 2 * most + 2 * kLevelCost;
}

int32_t TreeChooser::BestOf(int32_t first) const {
  int32_t best = first;
  for (int32_t tree = first; tree < static_cast<int32_t>(family_.size()); ++tree) {
    if (MayTry(tree) && RateOf(tree) > RateOf(best) * (best == 0 ? kMargin : 1)) best = tree;
  }
  return best;
}

int32_t TreeChooser::Best() const { return BestOf(0); }

TreeEstimate TreeChooser::EstimateOf(int32_t tree) const {
  const auto t = static_cast<size_t>(tree);
  const double cost = CostOf(tree);
  return {.tree = tree,
          .steps = looks_[t].steps,
          .milliseconds = IsMeasured(0) ? cost * times_.Milliseconds(0) : 0,
          .relative_cost = cost,
          .tokens_per_step = yields_[t]};
}

std::vector<TreeEstimate> TreeChooser::Estimates() const {
  std::vector<TreeEstimate> estimates;
  for (int32_t tree = 0; tree < static_cast<int32_t>(family_.size()); ++tree) {
    if (IsMeasured(tree)) estimates.push_back(EstimateOf(tree));
  }
  return estimates;
}

// A tree that may turn out faster than `best`, because its measurements are few, or because it is near and its last
// measurement is long ago. `best` where there is none.
int32_t TreeChooser::RivalOf(int32_t best) const {
  int32_t rival = best;
  double most = RateOf(best);
  for (int32_t tree = 0; tree < static_cast<int32_t>(family_.size()); ++tree) {
    if (tree == best || !IsMeasured(tree)) continue;
    const Look& look = looks_[static_cast<size_t>(tree)];
    const double doubt = kDoubt * times_.Doubt(static_cast<size_t>(tree), static_cast<size_t>(best));
    double hope = RateOf(tree) * std::exp(doubt);
    // A plain step now and then is worth it, however slow plain decoding seems: it tells whether drafting pays at all.
    if (step_ >= look.next) hope = tree == 0 && step_ >= look.next + look.gap ? 2 * most : hope / kNear;
    if (hope <= most) continue;
    most = hope;
    rival = tree;
  }
  return rival;
}

void TreeChooser::Pause() {
  if (steps_since_pause_ >= kFirstPause) pause_ = kFirstPause;  // drafting paid for a while
  paused_until_ = step_ + pause_;
  pause_ = std::min(2 * pause_, kLongestPause);
  probe_left_ = kProbe;
  losses_ = 0;
  steps_since_pause_ = 0;
  next_ = 0;
}

void TreeChooser::Choose() {
  const auto last = static_cast<int32_t>(family_.size()) - 1;
  looking_ = false;
  if (last == 0) return;
  if (step_ < kOpening && !learned_) {
    next_ = step_ % 2 == 0 ? 0 : std::min(2, last);
    return;
  }
  if (step_ < paused_until_) {
    next_ = 0;
    return;
  }
  if (step_ == paused_until_) {
    std::visit([](auto& seen) { seen.Forget(kProbeMemory); }, seen_);
    UpdateYields();
  }
  if (losses_ >= kMostLosses) return Pause();
  if (probe_left_ > 0 || drafting_steps_ < kMostLosses) {
    next_ = BestOf(1);
    return;
  }
  next_ = BestOf(0);
  if (next_ == 0) return Pause();
  if (step_ == 0 || step_ % kLookEvery != 0) return;
  const int32_t rival = RivalOf(next_);
  looking_ = rival != next_;
  next_ = rival;
}

}  // namespace hydrant::tree
