// SPDX-License-Identifier: Apache-2.0
#include "engine/step.h"

#include <algorithm>
#include <chrono>
#include <cmath>

#include "base/check.h"
#include "engine/loaded_model.h"

namespace hydrant::engine {
namespace {

// Rows that wait for the drafter while others draft, or nobody does: a prompt's worth, so that catching up costs what a
// prompt's rows cost. (16 KB each at 7B.)
constexpr int64_t kMostUnabsorbed = 256;

// Adds the wall time of a phase to every sequence that took part.
class PhaseClock {
 public:
  explicit PhaseClock(std::span<sequence::Sequence* const> sequences)
      : sequences_(sequences), first_(std::chrono::steady_clock::now()), last_(first_) {}

  void Lap(double PhaseTimes::*phase) {
    const auto now = std::chrono::steady_clock::now();
    const double ms = std::chrono::duration<double, std::milli>(now - last_).count();
    for (sequence::Sequence* sequence : sequences_) sequence->times().*phase += ms;
    last_ = now;
  }
  // Of all laps so far.
  double total_ms() const { return std::chrono::duration<double, std::milli>(last_ - first_).count(); }

 private:
  std::span<sequence::Sequence* const> sequences_;
  std::chrono::steady_clock::time_point first_, last_;
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
    CheckKvRange(sequence.table(), first, count, context_.model);
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
  ChooseTree(sequences);
  Draft(sequences);
  clock.Lap(&PhaseTimes::draft);
  LayOut(sequences);
  context_.decoder->Forward(batch_, *context_.pool, output_);
  clock.Lap(&PhaseTimes::forward);
  Verify(sequences);
  clock.Lap(&PhaseTimes::verify);
  for (size_t s = 0; s < sequences.size(); ++s) sequences[s]->Commit(verdicts_[s]);
  Keep(sequences);
  clock.Lap(&PhaseTimes::commit);
  ObserveTree(sequences, clock.total_ms());
}

// Typical acceptance depends on the tree, so that its text would depend on time.
bool Stepper::IsAuto(const sequence::Sequence& sequence) const {
  return context_.auto_trees != nullptr && sequence.drafts() && sequence.request().accept.rule == AcceptRule::kExact;
}

void Stepper::ChooseTree(std::span<sequence::Sequence* const> sequences) {
  chooser_ = nullptr;
  all_as_chosen_ = true;
  bool sampled = false, pruned = false, any = false;
  for (const sequence::Sequence* sequence : sequences) {
    any = any || IsAuto(*sequence);
    all_as_chosen_ = all_as_chosen_ && IsAuto(*sequence) && sequence->looked_up().empty();
    sampled = sampled || sequence->request().sampling.temperature > 0;
    pruned = pruned || sequence->request().draft_p_min > 0;
  }
  kind_ = KindOfStep(sequences.size(), sampled, pruned);
  if (any) chooser_ = &context_.auto_trees->For(kind_);
}

void Stepper::ObserveTree(std::span<sequence::Sequence* const> sequences, double milliseconds) {
  if (chooser_ == nullptr) return;
  const auto family_size = context_.auto_trees->family().size();
  for (sequence::Sequence* sequence : sequences) {
    if (IsAuto(*sequence)) sequence->CountTree(static_cast<size_t>(chooser_->Next()), family_size);
  }
  if (!all_as_chosen_) return;
  walks_.resize(sequences.size());
  for (size_t s = 0; s < sequences.size(); ++s) {
    const tree::Topology& topology = sequences[s]->tree().topology;
    walks_[s].assign(1, {.num_children = topology.num_children()[0]});
    for (const tree::NodeId node : verdicts_[s].path) {
      walks_[s].back().accepted = topology.child_rank()[static_cast<size_t>(node)];
      walks_[s].push_back({.num_children = topology.num_children()[static_cast<size_t>(node)]});
    }
  }
  chooser_->Observe({.milliseconds = milliseconds, .walks = walks_});
}

// The tree, cut so that no row passes the context limit.
const tree::Topology& Stepper::TopologyFor(const sequence::Sequence& sequence) {
  const int32_t room = sequence.depth_room();
  HYDRANT_CHECK(room >= 0);
  const bool is_auto = IsAuto(sequence);
  const tree::Topology& whole =
      is_auto ? context_.auto_trees->family()[static_cast<size_t>(chooser_->Next())].topology : *context_.topology;
  const int32_t depth = sequence.drafts() ? std::min(room, whole.max_depth()) : 0;
  if (depth == whole.max_depth()) return whole;
  all_as_chosen_ = false;
  if (is_auto) return cut_ = whole.CutToDepth(depth);
  tree::Topology& cut = by_depth_[static_cast<size_t>(depth)];
  if (cut.max_depth() != depth) cut = whole.CutToDepth(depth);
  return cut;
}

int32_t Stepper::RowsFor(const GenerationRequest& request) const {
  if (!request.use_drafter) return 1;
  const bool is_auto = context_.auto_trees != nullptr && request.accept.rule == AcceptRule::kExact;
  const int32_t rows = is_auto ? context_.auto_trees->max_rows() : context_.topology->num_nodes();
  return std::max(rows, 1 + request.lookup.max_tokens);
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
  Absorb(sequences);
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
    CheckKvRange(sequence.table(), sequence.table().length(), 1, context_.model);
    for (const tree::NodeId node : verdicts_.back().path) {
      const int32_t slot = sequence.table().length() + sequence.places()[static_cast<size_t>(node)];
      CheckKvRange(sequence.table(), slot, 1, context_.model);
    }
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

// Keeps the hidden rows of the committed tokens for the drafter: the root's row and those of the accepted nodes.
void Stepper::Keep(std::span<sequence::Sequence* const> sequences) {
  if (context_.drafter == nullptr) return;
  const Matrix& hidden = context_.drafter->hidden_layer_offset() > 0 ? output_.captured : output_.hidden;
  kept_width_ = hidden.cols();
  for (size_t s = 0; s < sequences.size(); ++s) {
    if (!sequences[s]->drafts() || sequences[s]->finished()) continue;
    std::vector<float>& rows = sequences[s]->unabsorbed();
    const auto keep = [&](int64_t row) { rows.insert(rows.end(), hidden.row(row), hidden.row(row) + hidden.cols()); };
    keep(first_row_[s]);
    for (const tree::NodeId node : verdicts_[s].path) {
      keep(first_row_[s] + sequences[s]->places()[static_cast<size_t>(node)]);
    }
  }
}

// Hands what was kept to the drafter where it is about to draft. Else it waits, up to kMostUnabsorbed rows: heads that
// are not asked need not know.
void Stepper::Absorb(std::span<sequence::Sequence* const> sequences) {
  if (context_.drafter == nullptr) return;
  absorbs_.clear();
  absorbing_.clear();
  for (sequence::Sequence* sequence : sequences) {
    const std::vector<float>& rows = sequence->unabsorbed();
    const auto count = static_cast<int64_t>(rows.size()) / kept_width_;
    const bool by_heads = sequence->looked_up().empty() && sequence->tree().topology.num_nodes() > 1;
    if (count == 0 || (!by_heads && count < kMostUnabsorbed)) continue;
    absorbing_.push_back(sequence);
    absorbs_.push_back(
        {.state = sequence->draft_state(), .hidden = kernels::ConstRows(rows.data(), count, kept_width_, kept_width_)});
  }
  if (!absorbs_.empty()) context_.drafter->Absorb(absorbs_);
  for (sequence::Sequence* sequence : absorbing_) sequence->unabsorbed().clear();
}

}  // namespace hydrant::engine
