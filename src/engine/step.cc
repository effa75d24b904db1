// SPDX-License-Identifier: Apache-2.0
#include "engine/step.h"

#include <algorithm>
#include <chrono>
#include <cmath>

#include "base/check.h"
#include "engine/loaded_model.h"

namespace hydrant::engine {
namespace {

// Rows that wait for the drafter while trees are looked up: as many as fit a block of its keys and values.
constexpr int64_t kMostUnabsorbed = kernels::kBlockPositions;

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

bool Stepper::Prefill(sequence::Sequence& sequence, const std::function<bool()>& go_on) {
  sequence::Sequence* const one[] = {&sequence};
  PhaseClock clock(one);
  const std::vector<int32_t>& prompt = sequence.request().prompt_ids;
  const auto length = static_cast<int32_t>(prompt.size());
  const bool reserved = sequence.table().Reserve(length);
  HYDRANT_CHECK(reserved);
  for (int32_t first = 0; first < length; first += context_.prefill_chunk) {
    const int32_t count = std::min(context_.prefill_chunk, length - first);
    if (first > 0 && !go_on()) {
      clock.Lap(&PhaseTimes::prefill);
      return false;
    }
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
  const std::span<const float> logits = std::as_const(output_.logits).row_span(0);
  sequence.TakeFirst(logits);
  if (!std::isfinite(logits[static_cast<size_t>(sequence.output().back())])) throw NoFiniteLogits(context_.model);
  clock.Lap(&PhaseTimes::prefill);
  return true;
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

int32_t Stepper::RowsFor(const GenerationRequest& request) const {
  if (!request.use_drafter) return 1;
  return std::max(context_.topology->num_nodes(), 1 + request.lookup.max_tokens);
}

const tree::Topology& Stepper::Chain(int32_t nodes) {
  const auto n = static_cast<size_t>(nodes);
  if (chains_.size() <= n) chains_.resize(n + 1);
  if (chains_[n].num_nodes() == nodes + 1) return chains_[n];
  const std::vector<std::vector<int32_t>> path(1, std::vector<int32_t>(n, 0));
  return chains_[n] = tree::Topology::FromPaths(path);
}

// What the sequence has looked up, as far as the context goes.
void Stepper::PlantChain(sequence::Sequence& sequence) {
  const std::span<const int32_t> tokens = sequence.looked_up();
  const int32_t count = std::min(static_cast<int32_t>(tokens.size()), sequence.depth_room());
  sequence.Plant(Chain(count));
  std::copy_n(tokens.begin(), count, sequence.tree().tokens.begin() + 1);
}

void Stepper::Draft(std::span<sequence::Sequence* const> sequences) {
  proposals_.clear();
  for (sequence::Sequence* sequence : sequences) {
    if (!sequence->looked_up().empty()) {
      PlantChain(*sequence);
      continue;
    }
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

// All trees as one flat batch, the rows of each in the order of its nodes' places.
void Stepper::LayOut(std::span<sequence::Sequence* const> sequences) {
  batch_.Clear();
  first_row_.clear();
  for (sequence::Sequence* sequence : sequences) {
    first_row_.push_back(batch_.num_rows());
    const tree::TokenTree& tree = sequence->tree();
    const int32_t root = sequence->table().length();
    const bool reserved = sequence->table().Reserve(root + tree.topology.num_nodes());
    HYDRANT_CHECK(reserved);
    sequence->PlaceNodes();
    const std::span<const int32_t> places = sequence->places();
    node_at_.resize(places.size());
    for (tree::NodeId node = 0; node < tree.topology.num_nodes(); ++node) {
      node_at_[static_cast<size_t>(places[static_cast<size_t>(node)])] = node;
    }
    for (const tree::NodeId node : node_at_) {
      std::vector<int32_t> path = tree.topology.PathTo(node);
      for (int32_t& on_path : path) on_path = places[static_cast<size_t>(on_path)];
      batch_.AddTreeRow(tree.tokens[static_cast<size_t>(node)], root, path, sequence->table().blocks());
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
    input.rows = sequence.places();
    input.sampling = &sequence.request().sampling;
    input.accept = &sequence.request().accept;
    input.prompt = sequence.request().prompt_ids;
    input.output = sequence.output();
    input.noise = &sequence.noise();
    verdicts_.push_back(sequence.verifier().Accept(input));
    CheckFinite(input, verdicts_.back());
  }
}

// Of the tokens that go into the text. Where all logits are NaN, each choice is one.
void Stepper::CheckFinite(const verify::VerifyInput& input, const verify::Verdict& verdict) const {
  const auto check = [&](tree::NodeId node, int32_t token) {
    if (!std::isfinite(verify::RowOf(input, node)[static_cast<size_t>(token)])) throw NoFiniteLogits(context_.model);
  };
  tree::NodeId at = 0;
  for (const tree::NodeId node : verdict.path) {
    check(at, input.tree->tokens[static_cast<size_t>(node)]);
    at = node;
  }
  check(at, verdict.bonus);
}

// Hands the hidden rows of the committed tokens to the drafter: the root's row and those of the accepted nodes. Where
// the next tree is looked up they are kept for later, up to kMostUnabsorbed.
void Stepper::Absorb(std::span<sequence::Sequence* const> sequences) {
  if (context_.drafter == nullptr) return;
  const Matrix& hidden = context_.drafter->hidden_layer_offset() > 0 ? output_.captured : output_.hidden;
  const int64_t width = hidden.cols();
  absorbs_.clear();
  absorbing_.clear();
  for (size_t s = 0; s < sequences.size(); ++s) {
    if (!sequences[s]->drafts() || sequences[s]->finished()) continue;
    std::vector<float>& rows = sequences[s]->unabsorbed();
    const auto keep = [&](int64_t row) { rows.insert(rows.end(), hidden.row(row), hidden.row(row) + width); };
    keep(first_row_[s]);
    for (const tree::NodeId node : verdicts_[s].path) {
      keep(first_row_[s] + sequences[s]->places()[static_cast<size_t>(node)]);
    }
    const auto count = static_cast<int64_t>(rows.size()) / width;
    if (!sequences[s]->looked_up().empty() && count < kMostUnabsorbed) continue;
    absorbing_.push_back(sequences[s]);
    absorbs_.push_back(
        {.state = sequences[s]->draft_state(), .hidden = kernels::ConstRows(rows.data(), count, width, width)});
  }
  if (!absorbs_.empty()) context_.drafter->Absorb(absorbs_);
  for (sequence::Sequence* sequence : absorbing_) sequence->unabsorbed().clear();
}

}  // namespace hydrant::engine
