// SPDX-License-Identifier: Apache-2.0
// One decoding step over any number of sequences: draft, lay out, forward, verify, commit. And the prompt before it.
#pragma once

#include <cstdint>
#include <functional>
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
  draft::Drafter* drafter = nullptr;
  kv::BlockPool* pool = nullptr;
  kv::LayerRange base_layers = {};    // of the pool; the drafter's come after them
  draft::StaticTree* tree = nullptr;  // of typical acceptance, and of the exact rule without auto_trees
  AutoTrees* auto_trees = nullptr;    // null: the tree is fixed
  int32_t prefill_chunk = 256;        // rows
  std::string model = {};             // its folder, for errors
};

class Stepper {
 public:
  explicit Stepper(const StepContext& context);

  // Runs a sequence's prompt in chunks and takes the first token. Throws FileError where its logit is not finite.
  // Returns false, without a token, where `go_on`, asked between chunks, does.
  bool Prefill(sequence::Sequence& sequence, const std::function<bool()>& go_on);
  // One step of unfinished sequences. Likewise.
  void Step(std::span<sequence::Sequence* const> sequences);

  // Most rows that the step of one such sequence takes.
  int32_t RowsFor(const GenerationRequest& request) const;
  // Of the last step.
  const StepKind& kind() const { return kind_; }

 private:
  bool IsAuto(const sequence::Sequence& sequence) const;
  void ChooseTree(std::span<sequence::Sequence* const> sequences);
  void ObserveTree(std::span<sequence::Sequence* const> sequences, double milliseconds);
  draft::DraftKv DraftKvOf(sequence::Sequence& sequence) const;
  draft::ProposeInput ProposalOf(sequence::Sequence& sequence) const;
  void Draft(std::span<sequence::Sequence* const> sequences);
  void LayOut(std::span<sequence::Sequence* const> sequences);
  void Verify(std::span<sequence::Sequence* const> sequences);
  void CheckFinite(const verify::VerifyInput& input, const verify::Verdict& verdict) const;
  void CommitChunk(sequence::Sequence& sequence, std::span<const int32_t> tokens);
  void CommitSteps(std::span<sequence::Sequence* const> sequences);
  void PointAtCommitted(std::span<sequence::Sequence* const> sequences);
  void CheckKv(const sequence::Sequence& sequence, int32_t first, int32_t count) const;

  StepContext context_;
  int32_t max_nodes_ = 0;                 // that a sequence may draft in this step
  size_t num_wanted_;                     // layers whose hidden states the drafter takes
  tree::TreeChooser* chooser_ = nullptr;  // of this step; null: none is asked
  StepKind kind_;
  bool all_as_chosen_ = false;  // every sequence of this step drafted the chosen tree, whole
  std::vector<std::vector<tree::VisitedNode>> walks_;
  model::RowBatch batch_;
  model::ForwardOutput output_;
  std::vector<int32_t> first_row_;     // per sequence, of its tree in the batch
  std::vector<tree::NodeId> node_at_;  // of one tree, by place
  std::vector<verify::Verdict> verdicts_;
  std::vector<draft::ProposeInput> proposals_;
  // What the drafter is told of a step.
  std::vector<draft::CommitInput> commits_;
  std::vector<int32_t> committed_rows_, committed_tokens_;  // of all sequences, one behind the other
  std::vector<Matrix> committed_hidden_;                    // [wanted layers] of [committed rows, D]
  std::vector<kernels::ConstRows> hidden_parts_;            // of commits_
};

}  // namespace hydrant::engine
