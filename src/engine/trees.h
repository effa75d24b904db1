// SPDX-License-Identifier: Apache-2.0
// From the name of a tree to what a request drafts.
#pragma once

#include <memory>
#include <string>

#include "draft/static_tree.h"
#include "engine/auto_trees.h"
#include "hydrant/engine.h"
#include "load/loaded_model.h"

namespace hydrant::engine {

// What one request drafts: a shape, or what AutoTrees chooses step by step.
struct TreePlan {
  std::string name;     // "auto", preset name, file name or "custom"
  std::string choices;  // its paths as a JSON list; "[]" for auto
  std::shared_ptr<draft::StaticTree> shape = nullptr;
  AutoTrees* auto_trees = nullptr;  // set: it chooses, and `shape` is not used
  bool is_dynamic = false;          // no shape, but:
  DynamicTreeOptions dynamic = {};  // no deeper and no wider than its nodes can be
  bool is_beam = false;             // likewise, but:
  BeamOptions beam = {};

  int32_t max_rows() const;  // of its largest tree, the root included
};

// The trees of one model with its heads.
class Trees {
 public:
  // Reads the default trees. Throws UserError for ones that do not fit; `loaded` gets warnings.
  explicit Trees(load::LoadedModel& loaded);

  // What a request drafts by GenerationRequest::tree, or where that is empty by EngineOptions::tree. Throws UserError
  // for a tree that cannot be read or does not fit, for auto under typical acceptance, whose text would depend on time,
  // and for auto and dynamic under the rejection rule. From any thread.
  TreePlan For(const GenerationRequest& request) const;

  AutoTrees& auto_trees() { return *auto_trees_; }

 private:
  TreePlan Fixed(tree::NamedTopology tree, const std::string& where) const;
  TreePlan ChainOf(int32_t depth) const;
  TreePlan Default(const GenerationRequest& request) const;
  TreePlan Dynamic(const GenerationRequest& request) const;
  TreePlan Beam(const GenerationRequest& request) const;
  void CheckGrows(const char* tree) const;

  tree::Limits limits_;
  bool grows_trees_;     // the drafter makes dynamic ones and beams
  bool is_merged_;       // a step's tree is made of several
  std::string drafter_;  // its name
  std::string named_;    // EngineOptions::tree
  TreePlan default_;     // of typical acceptance, where none is named
  std::unique_ptr<AutoTrees> auto_trees_;
};

}  // namespace hydrant::engine
