// SPDX-License-Identifier: Apache-2.0
// One step over any number of sequences, some with a chunk of their prompts and some with a tree: draft, lay out,
// forward, verify, commit.
#pragma once

#include <cstdint>
#include <exception>
#include <span>
#include <string>
#include <vector>

#include "draft/drafter.h"
#include "engine/auto_trees.h"
#include "kv/kv_cache.h"
#include "model/decoder.h"
#include "sequence/sequence.h"
#include "tree/topology.h"

namespace hydrant::engine {

// What a step works with. Everything pointed to outlives it.
struct StepContext {
  model::Decoder* decoder = nullptr;
  base::ThreadPool* pool = nullptr;
  draft::Drafter* drafter = nullptr;
  const kv::BlockPool* blocks = nullptr;
  kv::LayerRange base_layers = {};  // of the pool; the drafter's come after them
  std::string model = {};           // its folder, for errors
};

// What a sequence does in a step. Its table has room for the rows.
struct Part {
  sequence::Sequence* sequence = nullptr;
  int32_t prompt_rows = 0;             // of its known tokens; 0: it decodes
  int32_t tree_rows = 0;               // at most, the root included
  draft::StaticTree* shape = nullptr;  // for drafters that fill one
  AutoTrees* auto_trees = nullptr;     // chooses the shape, where set
  // What went wrong with this sequence alone: its numbers are not finite, or beyond the type of keys and values. It
  // must not be used again.
  std::exception_ptr error = nullptr;
};

class Stepper {
 public:
  explicit Stepper(const StepContext& context);

  void Step(std::span<Part> parts);
  // How the last step's trees were drafted.
  const StepKind& kind() const { return kind_; }

 private:
  void ChooseTree();
  void ObserveTree(double milliseconds);
  draft::DraftKv DraftKvOf(const Part& part) const;
  draft::ProposeInput ProposalOf(const Part& part) const;
  void Draft();
  void LayOutPrompts();
  void LayOutTrees();
  void FinishPrompts();
  void Verify(size_t t);
  void FinishTrees();
  void CommitPrompts();
  void CommitTrees();
  void PointAtCommitted();
  void CheckKv(const Part& part, int32_t first, int32_t count) const;
  void CheckFinite(const verify::VerifyInput& input, const verify::Verdict& verdict) const;

  StepContext context_;
  size_t num_wanted_;                   // layers whose hidden states the drafter takes
  std::vector<Part*> prompts_, trees_;  // of this step
  AutoTrees* auto_trees_ = nullptr;     // of this step; null: none is asked
  tree::TreeChooser* chooser_ = nullptr;
  StepKind kind_;
  bool all_as_chosen_ = false;  // every sequence of this step drafted the chosen tree, whole, and there was no prompt
  std::vector<std::vector<tree::VisitedNode>> walks_;
  model::RowBatch batch_;
  model::ForwardOutput output_;
  std::vector<int32_t> first_row_, first_logits_;    // [trees]
  std::vector<int32_t> prompt_row_, prompt_logits_;  // [prompts]; -1: none wanted
  std::vector<tree::NodeId> node_at_;                // of one tree, by place
  std::vector<verify::Verdict> verdicts_;            // [trees]
  std::vector<draft::ProposeInput> proposals_;
  // What the drafter is told of a step.
  std::vector<draft::CommitInput> commits_;
  std::vector<int32_t> committed_rows_, committed_tokens_;  // of all sequences, one behind the other
  std::vector<size_t> num_committed_;                       // [commits_]
  std::vector<Matrix> committed_hidden_;                    // [wanted layers] of [committed rows, D]
  std::vector<kernels::ConstRows> hidden_parts_;            // of commits_
};

}  // namespace hydrant::engine
