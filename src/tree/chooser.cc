// SPDX-License-Identifier: Apache-2.0
#include "tree/chooser.h"

#include <algorithm>
#include <array>
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

// Belief about acceptance before anything was seen: the chance that the base chooses the candidate of a rank, if it
// chose none of the ranks before. (The rates of the embedded model's Medusa and Hydra heads and of Vicuna's published
// heads are close to it.)
constexpr std::array<double, 10> kRankPrior = {.6, .3, .2, .15, .12, .1, .09, .08, .07, .06};
constexpr double kPriorSteps = 1;  // steps that this belief weighs for the first candidate
constexpr double kRankSteps = 4;   // the same for the other candidates
constexpr double kNodeSteps = 4;   // steps that the mean of a rank weighs for a single node of that rank

// Belief about cost before anything was measured, in plain steps: of each row, and of each level of heads.
constexpr double kRowCost = 0.02, kLevelCost = 0.04;

}  // namespace

TreeChooser::TreeChooser(std::span<const NamedTopology> family)
    : family_(family), times_(family.size()), looks_(family.size()) {
  HYDRANT_CHECK(!family.empty() && family.front().topology.num_nodes() == 1);
  forest_.emplace_back();
  for (const NamedTopology& tree : family) AddToForest(tree.topology);
  UpdateYields();
}

void TreeChooser::AddToForest(const Topology& topology) {
  std::vector<int32_t> index(static_cast<size_t>(topology.num_nodes()), 0);  // in the forest, of each node
  for (size_t node = 1; node < index.size(); ++node) {
    const int32_t parent = index[static_cast<size_t>(topology.parent()[node])], rank = topology.child_rank()[node];
    std::vector<int32_t>& siblings = forest_[static_cast<size_t>(parent)].children;
    if (static_cast<size_t>(rank) == siblings.size()) {  // siblings come in order
      siblings.push_back(static_cast<int32_t>(forest_.size()));
      forest_.push_back({.parent = parent, .rank = rank, .children = {}});
    }
    index[node] = forest_[static_cast<size_t>(parent)].children[static_cast<size_t>(rank)];
  }
  index.erase(index.begin());
  nodes_.push_back(std::move(index));
}

void TreeChooser::Observe(const StepOutcome& outcome) {
  HYDRANT_CHECK(!outcome.walks.empty());
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
    for (Node& node : forest_) {
      node.offered *= kDecay;
      node.accepted *= kDecay;
    }
    size_t tokens = 0;
    for (const std::vector<VisitedNode>& walk : outcome.walks) {
      TakeWalk(walk);
      tokens += walk.size();
    }
    UpdateYields();
    const auto sequences = static_cast<double>(outcome.walks.size());
    const bool lost = static_cast<double>(tokens) < CostOf(next_) * sequences;
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

void TreeChooser::TakeWalk(std::span<const VisitedNode> walk) {
  int32_t node = 0;
  for (const VisitedNode& visited : walk) {
    const std::vector<int32_t>& children = forest_[static_cast<size_t>(node)].children;
    const int32_t seen = visited.accepted < 0 ? visited.num_children : visited.accepted + 1;
    for (int32_t rank = 0; rank < seen && static_cast<size_t>(rank) < children.size(); ++rank) {
      Node& child = forest_[static_cast<size_t>(children[static_cast<size_t>(rank)])];
      child.offered += 1;
      if (rank == visited.accepted) child.accepted += 1;
    }
    if (visited.accepted < 0 || static_cast<size_t>(visited.accepted) >= children.size()) return;
    node = children[static_cast<size_t>(visited.accepted)];
  }
}

// A node's chance of acceptance: its own rate, drawn towards the rate of all nodes of its rank, which in turn is drawn
// towards the belief.
void TreeChooser::UpdateYields() {
  std::array<double, kRankPrior.size()> offered{}, accepted{}, by_rank{};
  const auto slot = [](const Node& node) { return std::min(static_cast<size_t>(node.rank), kRankPrior.size() - 1); };
  for (size_t i = 1; i < forest_.size(); ++i) {
    offered[slot(forest_[i])] += forest_[i].offered;
    accepted[slot(forest_[i])] += forest_[i].accepted;
  }
  for (size_t rank = 0; rank < by_rank.size(); ++rank) {
    // Belief in the other candidates follows the first one's rate: heads that miss with it miss with the others too.
    const double belief = rank == 0 ? kRankPrior[0] : kRankPrior[rank] * std::min(1.3, by_rank[0] / kRankPrior[0]);
    const double steps = rank == 0 ? kPriorSteps : kRankSteps;
    by_rank[rank] = (accepted[rank] + steps * belief) / (offered[rank] + steps);
  }
  std::vector<double> reached(forest_.size(), 1);
  for (size_t i = 0; i < forest_.size(); ++i) {
    double left = reached[i];  // chance that the walk is here and has taken no child so far
    for (const int32_t child : forest_[i].children) {
      const Node& node = forest_[static_cast<size_t>(child)];
      const double chance = (node.accepted + kNodeSteps * by_rank[slot(node)]) / (node.offered + kNodeSteps);
      reached[static_cast<size_t>(child)] = left * chance;
      left *= 1 - chance;
    }
  }
  yields_.assign(family_.size(), 1);
  for (size_t tree = 0; tree < family_.size(); ++tree) {
    for (const int32_t node : nodes_[tree]) yields_[tree] += reached[static_cast<size_t>(node)];
  }
}

double TreeChooser::BelievedExcess(int32_t tree) const {
  const Topology& topology = family_[static_cast<size_t>(tree)].topology;
  return kRowCost * (topology.num_nodes() - 1) + kLevelCost * topology.max_depth();
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

void TreeChooser::Forget(double steps) {
  const double seen = forest_.front().children.empty() ? 0 : forest_[1].offered;
  if (seen <= steps) return;
  for (Node& node : forest_) {
    node.offered *= steps / seen;
    node.accepted *= steps / seen;
  }
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
    Forget(kProbeMemory);
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
