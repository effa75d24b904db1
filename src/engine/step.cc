// SPDX-License-Identifier: Apache-2.0
#include "engine/step.h"

#include <algorithm>
#include <chrono>

#include "base/check.h"

namespace hydrant::engine {
namespace {

// Adds the wall time of a phase to every sequence that took part.
class PhaseClock {
 public:
  explicit PhaseClock(std::span<sequence::Sequence* const> sequences)
      : sequences_(sequences), last_(std::chrono::steady_clock::now()) {}

  void Lap(double PhaseTimes::*phase) {
    const auto now = std::chrono::steady_clock::now();
    const double ms = std::chrono::duration<double, std::milli>(now - last_).count();
    for (sequence::Sequence* sequence : sequences_) sequence->times().*phase += ms;
    last_ = now;
  }

 private:
  std::span<sequence::Sequence* const> sequences_;
  std::chrono::steady_clock::time_point last_;
};

}  // namespace

Stepper::Stepper(const StepContext& context) : context_(context) {
  by_depth_.resize(static_cast<size_t>(context.topology->max_depth()) + 1);
}

void Stepper::Prefill(sequence::Sequence& sequence) {
  sequence::Sequence* const one[] = {&sequence};
  PhaseClock clock(one);
  const std::vector<int32_t>& prompt = sequence.request().prompt_ids;
  const auto length = static_cast<int32_t>(prompt.size());
  const bool reserved = sequence.table().Reserve(length);
  HYDRANT_CHECK(reserved);
  for (int32_t first = 0; first < length; first += context_.prefill_chunk) {
    const int32_t count = std::min(context_.prefill_chunk, length - first);
    batch_.Clear();
    batch_.AddChain(std::span(prompt).subspan(static_cast<size_t>(first), static_cast<size_t>(count)), first,
                    sequence.table().blocks());
    if (first + count == length) batch_.WantLogits();
    batch_.Seal();
    context_.decoder->Forward(batch_, *context_.pool, output_);
    sequence.table().Append(count);
    if (sequence.drafts()) {
      const Matrix& hidden = context_.drafter->hidden_layer_offset() > 0 ? output_.captured : output_.hidden;
      draft::AbsorbInput input{.state = sequence.draft_state(), .hidden = hidden};
      context_.drafter->Absorb(std::span(&input, 1));
    }
  }
  sequence.TakeFirst(std::as_const(output_.logits).row_span(0));
  clock.Lap(&PhaseTimes::prefill);
}

void Stepper::Step(std::span<sequence::Sequence* const> sequences) {
  PhaseClock clock(sequences);
  Draft(sequences);
  clock.Lap(&PhaseTimes::draft);
  LayOut(sequences);
  context_.decoder->Forward(batch_, *context_.pool, output_);
  clock.Lap(&PhaseTimes::forward);
  Verify(sequences);
  clock.Lap(&PhaseTimes::verify);
  for (size_t s = 0; s < sequences.size(); ++s) sequences[s]->Commit(verdicts_[s]);
  clock.Lap(&PhaseTimes::commit);
  Absorb(sequences);
  clock.Lap(&PhaseTimes::draft);
}

// The tree, cut so that no row passes the context limit.
const tree::Topology& Stepper::TopologyFor(const sequence::Sequence& sequence) {
  const int32_t room = sequence.depth_room();
  HYDRANT_CHECK(room >= 0);
  const int32_t depth = sequence.drafts() ? std::min(room, context_.topology->max_depth()) : 0;
  if (depth == context_.topology->max_depth()) return *context_.topology;
  tree::Topology& cut = by_depth_[static_cast<size_t>(depth)];
  if (cut.max_depth() != depth) cut = context_.topology->CutToDepth(depth);
  return cut;
}

void Stepper::Draft(std::span<sequence::Sequence* const> sequences) {
  proposals_.clear();
  for (sequence::Sequence* sequence : sequences) {
    sequence->Plant(TopologyFor(*sequence));
    if (sequence->tree().topology.num_nodes() == 1) continue;
    const GenerationRequest& request = sequence->request();
    proposals_.push_back({.state = sequence->draft_state(),
                          .tree = &sequence->tree(),
                          .min_probability = request.draft_p_min,
                          .sampling = &request.sampling,
                          .coupled = DraftsSeeNoise(request.accept),
                          .prompt = request.prompt_ids,
                          .output = sequence->output(),
                          .noise = &sequence->noise()});
  }
  if (!proposals_.empty()) context_.drafter->Propose(proposals_);
}

// All trees as one flat batch; node i of a tree gets the KV slot root + i.
void Stepper::LayOut(std::span<sequence::Sequence* const> sequences) {
  batch_.Clear();
  first_row_.clear();
  for (sequence::Sequence* sequence : sequences) {
    first_row_.push_back(batch_.num_rows());
    const tree::TokenTree& tree = sequence->tree();
    const int32_t root = sequence->table().length();
    const bool reserved = sequence->table().Reserve(root + tree.topology.num_nodes());
    HYDRANT_CHECK(reserved);
    for (tree::NodeId node = 0; node < tree.topology.num_nodes(); ++node) {
      batch_.AddTreeRow(tree.tokens[static_cast<size_t>(node)], root, tree.topology.PathTo(node),
                        sequence->table().blocks());
      batch_.WantLogits();
    }
  }
  batch_.Seal();
}

void Stepper::Verify(std::span<sequence::Sequence* const> sequences) {
  verdicts_.clear();
  for (size_t s = 0; s < sequences.size(); ++s) {
    sequence::Sequence& sequence = *sequences[s];
    const int64_t nodes = sequence.tree().topology.num_nodes();
    verify::VerifyInput input;
    input.tree = &sequence.tree();
    input.logits =
        kernels::ConstRows(output_.logits.row(first_row_[s]), nodes, output_.logits.cols(), output_.logits.stride());
    input.sampling = &sequence.request().sampling;
    input.accept = &sequence.request().accept;
    input.prompt = sequence.request().prompt_ids;
    input.output = sequence.output();
    input.noise = &sequence.noise();
    verdicts_.push_back(sequence.verifier().Accept(input));
  }
}

// Hands the hidden rows of the committed tokens to the drafter: the root's row and those of the accepted nodes.
void Stepper::Absorb(std::span<sequence::Sequence* const> sequences) {
  if (context_.drafter == nullptr) return;
  const Matrix& hidden = context_.drafter->hidden_layer_offset() > 0 ? output_.captured : output_.hidden;
  absorbs_.clear();
  accepted_hidden_.resize(sequences.size());
  for (size_t s = 0; s < sequences.size(); ++s) {
    if (!sequences[s]->drafts() || sequences[s]->finished()) continue;
    const std::vector<tree::NodeId>& path = verdicts_[s].path;
    Matrix& rows = accepted_hidden_[s];
    rows.Resize(static_cast<int64_t>(path.size()) + 1, hidden.cols());
    std::copy_n(hidden.row(first_row_[s]), hidden.cols(), rows.row(0));
    for (size_t i = 0; i < path.size(); ++i) {
      std::copy_n(hidden.row(first_row_[s] + path[i]), hidden.cols(), rows.row(static_cast<int64_t>(i) + 1));
    }
    absorbs_.push_back({.state = sequences[s]->draft_state(), .hidden = rows});
  }
  if (!absorbs_.empty()) context_.drafter->Absorb(absorbs_);
}

}  // namespace hydrant::engine
