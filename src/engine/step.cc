// SPDX-License-Identifier: Apache-2.0
#include "engine/step.h"

#include <algorithm>
#include <chrono>
#include <cmath>

#include "base/check.h"
#include "engine/loaded_model.h"

namespace hydrant::engine {
namespace {

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

Stepper::Stepper(const StepContext& context)
    : context_(context), num_wanted_(context.drafter->WantedLayers().size()), committed_hidden_(num_wanted_) {}

void Stepper::CheckKv(const sequence::Sequence& sequence, int32_t first, int32_t count) const {
  CheckKvRange(sequence.table(), first, count, context_.base_layers, context_.model);
}

draft::DraftKv Stepper::DraftKvOf(sequence::Sequence& sequence) const {
  return {.table = &sequence.table(), .first_layer = context_.base_layers.first + context_.base_layers.count};
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
    const std::span<const int32_t> chunk =
        std::span(prompt).subspan(static_cast<size_t>(first), static_cast<size_t>(count));
    batch_.Clear();
    batch_.AddChain(chunk, first, sequence.table().blocks());
    if (first + count == length) batch_.WantLogits();
    batch_.Seal();
    context_.decoder->Forward(batch_, *context_.pool, output_);
    sequence.table().Append(count);
    CheckKv(sequence, first, count);
    if (sequence.drafts()) CommitChunk(sequence, chunk);
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
  CommitSteps(sequences);
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
    all_as_chosen_ = all_as_chosen_ && IsAuto(*sequence);
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

int32_t Stepper::RowsFor(const GenerationRequest& request) const {
  if (!request.use_drafter) return 1;
  const bool is_auto = context_.auto_trees != nullptr && request.accept.rule == AcceptRule::kExact;
  const int32_t rows = is_auto ? context_.auto_trees->max_rows() : context_.tree->whole().num_nodes();
  return std::min(kMaxRows, std::max(rows, 1 + context_.drafter->MostNodes(request)));
}

draft::ProposeInput Stepper::ProposalOf(sequence::Sequence& sequence) const {
  const GenerationRequest& request = sequence.request();
  return {.state = sequence.draft_state(),
          .kv = DraftKvOf(sequence),
          .prompt = request.prompt_ids,
          .output = sequence.output(),
          .sampling = &request.sampling,
          .coupled = DraftsSeeNoise(request.accept),
          .noise = &sequence.noise(),
          .budget = {.max_nodes = max_nodes_, .max_depth = sequence.depth_room()},
          .shape = IsAuto(sequence) ? &context_.auto_trees->shape(chooser_->Next()) : context_.tree,
          .min_probability = request.draft_p_min,
          .tree = &sequence.tree()};
}

void Stepper::Draft(std::span<sequence::Sequence* const> sequences) {
  max_nodes_ = kMaxRows / static_cast<int32_t>(sequences.size()) - 1;
  proposals_.clear();
  for (sequence::Sequence* sequence : sequences) {
    HYDRANT_CHECK(sequence->depth_room() >= 0);
    if (sequence->drafts()) {
      proposals_.push_back(ProposalOf(*sequence));
    } else {
      sequence->tree().Reset(sequence->output().back());
    }
  }
  if (!proposals_.empty()) context_.drafter->Propose(proposals_);
  for (const draft::ProposeInput& proposal : proposals_) {
    const bool as_chosen = !proposal.tree->looked_up && proposal.shape->FitsIn(proposal.budget);
    all_as_chosen_ = all_as_chosen_ && as_chosen;
  }
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
    CheckKv(sequence, sequence.table().length(), 1);
    for (const tree::NodeId node : verdicts_.back().path) {
      const int32_t slot = sequence.table().length() + sequence.places()[static_cast<size_t>(node)];
      CheckKv(sequence, slot, 1);
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

void Stepper::CommitChunk(sequence::Sequence& sequence, std::span<const int32_t> tokens) {
  hidden_parts_.clear();
  for (size_t i = 0; i < num_wanted_; ++i) hidden_parts_.emplace_back(output_.HiddenOf(i));
  const draft::CommitInput input{.state = sequence.draft_state(),
                                 .kv = DraftKvOf(sequence),
                                 .tokens = tokens,
                                 .hidden = hidden_parts_,
                                 .is_prompt = true};
  context_.drafter->Commit(std::span(&input, 1));
}

// Tells the drafter what was committed of sequences that go on: the root's row and those of the accepted nodes.
void Stepper::CommitSteps(std::span<sequence::Sequence* const> sequences) {
  commits_.clear();
  committed_rows_.clear();
  committed_tokens_.clear();
  for (size_t s = 0; s < sequences.size(); ++s) {
    sequence::Sequence& sequence = *sequences[s];
    if (!sequence.drafts() || sequence.finished()) continue;
    const auto keep = [&](tree::NodeId node) {
      committed_rows_.push_back(first_row_[s] + sequence.places()[static_cast<size_t>(node)]);
      committed_tokens_.push_back(sequence.tree().tokens[static_cast<size_t>(node)]);
    };
    keep(0);
    for (const tree::NodeId node : verdicts_[s].path) keep(node);
    commits_.push_back({.state = sequence.draft_state(), .kv = DraftKvOf(sequence), .tokens = {}, .hidden = {}});
  }
  if (commits_.empty()) return;
  PointAtCommitted(sequences);
  context_.drafter->Commit(commits_);
}

// Gives each of commits_ its tokens and hidden rows.
void Stepper::PointAtCommitted(std::span<sequence::Sequence* const> sequences) {
  const auto count = static_cast<int64_t>(committed_rows_.size());
  for (size_t i = 0; i < num_wanted_; ++i) {
    const Matrix& hidden = output_.HiddenOf(i);
    committed_hidden_[i].Resize(count, hidden.cols());
    for (int64_t r = 0; r < count; ++r) {
      std::copy_n(hidden.row(committed_rows_[static_cast<size_t>(r)]), hidden.cols(), committed_hidden_[i].row(r));
    }
  }
  hidden_parts_.clear();
  hidden_parts_.reserve(commits_.size() * num_wanted_);  // commits_ point into it
  size_t first = 0, next = 0;
  for (size_t s = 0; s < sequences.size(); ++s) {
    if (!sequences[s]->drafts() || sequences[s]->finished()) continue;
    draft::CommitInput& commit = commits_[next++];
    const size_t rows = static_cast<size_t>(verdicts_[s].num_emitted()), part = hidden_parts_.size();
    commit.tokens = std::span(committed_tokens_).subspan(first, rows);
    for (const Matrix& hidden : committed_hidden_) {
      hidden_parts_.push_back(kernels::ConstRows(hidden).Part(static_cast<int64_t>(first), static_cast<int64_t>(rows)));
    }
    commit.hidden = std::span(hidden_parts_).subspan(part);
    first += rows;
  }
}

}  // namespace hydrant::engine
