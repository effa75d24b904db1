// SPDX-License-Identifier: Apache-2.0
// One decoding step over any number of sequences: draft, lay out, forward, verify, commit. And the prompt before it.
#pragma once

#include <cstdint>
#include <functional>
#include <span>
#include <string>
#include <vector>

#include "draft/drafter.h"
#include "kv/kv_cache.h"
#include "model/decoder.h"
#include "sequence/sequence.h"
#include "tree/topology.h"

namespace hydrant::engine {

// What a step works with. Everything pointed to outlives it.
struct StepContext {
  model::Decoder* decoder = nullptr;
  draft::Drafter* drafter = nullptr;  // null: plain decoding
  kv::BlockPool* pool = nullptr;
  const tree::Topology* topology = nullptr;
  int32_t prefill_chunk = 256;  // rows
  std::string model = {};       // its folder, for errors
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

 private:
  const tree::Topology& TopologyFor(const sequence::Sequence& sequence);
  const tree::Topology& Chain(int32_t nodes);
  void PlantChain(sequence::Sequence& sequence);
  void Draft(std::span<sequence::Sequence* const> sequences);
  void LayOut(std::span<sequence::Sequence* const> sequences);
  void Verify(std::span<sequence::Sequence* const> sequences);
  void CheckFinite(const verify::VerifyInput& input, const verify::Verdict& verdict) const;
  void Absorb(std::span<sequence::Sequence* const> sequences);

  StepContext context_;
  std::vector<tree::Topology> by_depth_;  // the tree cut to depth d, made when first needed
  std::vector<tree::Topology> chains_;    // of i nodes below the root, likewise
  model::RowBatch batch_;
  model::ForwardOutput output_;
  std::vector<int32_t> first_row_;     // per sequence, of its tree in the batch
  std::vector<tree::NodeId> node_at_;  // of one tree, by place
  std::vector<verify::Verdict> verdicts_;
  std::vector<draft::ProposeInput> proposals_;
  std::vector<draft::AbsorbInput> absorbs_;
  std::vector<sequence::Sequence*> absorbing_;  // whose they are
};

}  // namespace hydrant::engine
