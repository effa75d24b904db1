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
  kv::LayerRange base_layers = {};  // the base model's layers of the pool; the drafter's follow
  std::string model = {};           // its folder, for errors
};

// What a sequence does in a step. Its block table must have room for the rows.
struct Part {
  sequence::Sequence* sequence = nullptr;
  int32_t prompt_rows = 0;                      // rows of its known tokens to compute; 0: it decodes
  int32_t tree_rows = 0;                        // most rows of its tree, the root included
  draft::StaticTree* shape = nullptr;           // for drafters that fill one
  AutoTrees* auto_trees = nullptr;              // chooses the shape, where set
  const DynamicTreeOptions* dynamic = nullptr;  // for drafters that grow trees, in place of a shape
  const BeamOptions* beam = nullptr;            // likewise
  // An error of this sequence alone: a number is not finite, or does not fit the type of keys and values. The sequence
  // must not be used again.
  std::exception_ptr error = nullptr;
};

class Stepper {
 public:
  explicit Stepper(const StepContext& context);

  // `kind`: how many sequences are to decode, and how. Where a part has AutoTrees, its tree_rows are those of the tree
  // that they choose for steps of that kind.
  void Step(std::span<Part> parts, const StepKind& kind);
  // How the last step's trees were drafted.
  const StepKind& kind() const { return kind_; }

 private:
  void ChooseTree(const StepKind& kind);
  void ObserveTree(double milliseconds);
  void TakeWalks();
  void TakeGrown();
  draft::DraftKv DraftKvOf(const Part& part) const;
  const DynamicTreeOptions* GrownOf(const Part& part) const;
  draft::ProposeInput ProposalOf(const Part& part) const;
  void Draft();
  void LayOutPrompts();
  void LayOutTrees();
  void FinishPrompts();
  void ScorePrompt(size_t p);
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
  bool all_as_chosen_ = false;  // no prompts, and each sequence drafted the whole chosen tree
  std::vector<std::vector<tree::VisitedNode>> walks_;
  std::vector<std::vector<tree::GrownNode>> grown_;
  model::RowBatch batch_;
  model::ForwardOutput output_;
  std::vector<int32_t> first_row_, first_logits_;    // [trees] in the batch
  std::vector<int32_t> prompt_row_, prompt_logits_;  // [prompts]: its first row, and its first row of logits
  std::vector<int32_t> num_prompt_logits_;           // [prompts]
  std::vector<tree::NodeId> node_at_;                // of the tree in hand, by place
  std::vector<verify::Verdict> verdicts_;            // [trees]
  std::vector<draft::ProposeInput> proposals_;
  // What the drafter is told of a step.
  std::vector<draft::CommitInput> commits_;
  std::vector<int32_t> committed_rows_, committed_tokens_;  // of all sequences, one behind the other
  std::vector<size_t> num_committed_;                       // [commits_]
  std::vector<Matrix> committed_hidden_;                    // [wanted layers] of [committed rows, D]
  std::vector<kernels::ConstRows> hidden_parts_;            // parts of committed_hidden_, for commits_
};

}  // namespace hydrant::engine
