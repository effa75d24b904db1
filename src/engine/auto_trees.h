// SPDX-License-Identifier: Apache-2.0
// The tree "auto": one chooser for each number of sequences that share a step and each way of drafting, and the file
// that keeps what they learn from run to run.
#pragma once

#include <compare>
#include <cstdint>
#include <map>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "draft/static_tree.h"
#include "hydrant/generation.h"
#include "tree/chooser.h"
#include "tree/family.h"

namespace hydrant::engine {

// What a step's cost and acceptance depend on, besides model, heads and machine.
struct StepKind {
  int32_t sequences = 1;  // in the step; 1 to 4, then the next power of two
  bool sampled = false;   // is one of them sampled?
  bool pruned = false;    // has one a draft_p_min?

  auto operator<=>(const StepKind&) const = default;
};
StepKind KindOfStep(size_t sequences, bool sampled, bool pruned);

class AutoTrees {
 public:
  // `key` names model, heads and machine. `file` holds what was learned before: it is read if it exists and has the
  // same key, and empty means that nothing is kept. If a file cannot be used, problem() says why, and it is replaced.
  AutoTrees(std::vector<tree::FamilyTree> family, std::string file, std::string key);

  std::span<const tree::FamilyTree> family() const { return family_; }
  // Of a tree of the family: its shape, the root alone where it grows.
  draft::StaticTree& shape(int32_t tree) { return shapes_[static_cast<size_t>(tree)]; }
  // How far it grows; null: it does not.
  const DynamicTreeOptions* grown(int32_t tree) const {
    const DynamicTreeOptions& size = family_[static_cast<size_t>(tree)].grown;
    return size.nodes > 0 ? &size : nullptr;
  }
  bool grows() const { return grown(static_cast<int32_t>(family_.size()) - 1) != nullptr; }
  int32_t max_rows() const;   // of the widest tree, its root included
  int32_t max_slots() const;  // of keys and values behind the committed positions, of the tree that needs most
  int32_t max_depth() const;  // of the deepest

  tree::TreeChooser& For(const StepKind& kind);
  // Rows of the tree that it chooses for the next step of that kind, the root included.
  int32_t RowsOf(const StepKind& kind) { return 1 + family_[static_cast<size_t>(For(kind).Next())].num_drafted(); }

  // What was chosen for steps of that kind. `steps` [family]: those of the request with each tree.
  TreeReport Report(const StepKind& kind, std::span<const int64_t> steps) const;

  // Writes what was learned so far. Problems are told by problem() the first time.
  void Save();
  const std::string& problem() const { return problem_; }

 private:
  void Load();
  TreeUse UseOf(const tree::TreeEstimate& estimate, std::span<const int64_t> steps) const;

  std::vector<tree::FamilyTree> family_;
  std::vector<draft::StaticTree> shapes_;  // [family]
  std::string file_, key_, problem_;
  bool save_failed_ = false;
  std::map<StepKind, tree::TreeChooser> choosers_;
  std::map<StepKind, std::string> learned_;  // as JSON, for kinds of steps that have not occurred yet
};

}  // namespace hydrant::engine
