// SPDX-License-Identifier: Apache-2.0
#include "engine/step.h"

#include <algorithm>
#include <chrono>
#include <cmath>
#include <functional>
#include <numeric>
#include <utility>

#include "base/check.h"
#include "base/thread_pool.h"
#include "hydrant/error.h"
#include "load/loaded_model.h"
#include "sampling/logprobs.h"

namespace hydrant::engine {
namespace {

// Adds the wall time of a phase to every sequence that took part.
class PhaseClock {
 public:
  explicit PhaseClock(std::span<Part* const> parts)
      : parts_(parts), first_(std::chrono::steady_clock::now()), last_(first_) {}

  void Lap(double PhaseTimes::*phase) {
    const auto now = std::chrono::steady_clock::now();
    const double ms = std::chrono::duration<double, std::milli>(now - last_).count();
    for (Part* part : parts_) part->sequence->times().*phase += ms;
    last_ = now;
  }
  // Of all laps so far.
  double total_ms() const { return std::chrono::duration<double, std::milli>(last_ - first_).count(); }

 private:
  std::span<Part* const> parts_;
  std::chrono::steady_clock::time_point first_, last_;
};

// Runs fn. A user's error stays with the sequence that it concerns.
template <typename Fn>
void Guard(Part& part, const Fn& fn) {
  try {
    fn();
  } catch (const UserError&) {
    part.error = std::current_exception();
  }
}

// Of the accepted nodes' tokens and the bonus, each at the node before it. `count` as GenerationRequest::num_logprobs.
std::vector<TokenLogprobs> LogprobsOf(const verify::VerifyInput& input, const verify::Verdict& verdict, int32_t count) {
  std::vector<TokenLogprobs> logprobs;
  if (count < 0) return logprobs;
  tree::NodeId at = 0;
  for (const tree::NodeId node : verdict.path) {
    const int32_t token = input.tree->tokens[static_cast<size_t>(node)];
    logprobs.push_back(sampling::LogprobsOf(verify::RowOf(input, at), token, count));
    at = node;
  }
  logprobs.push_back(sampling::LogprobsOf(verify::RowOf(input, at), verdict.bonus, count));
  return logprobs;
}

// Whether a tree is what AutoTrees chose from: the heads', or nothing.
bool IsByHeads(const tree::TokenTree& tree) {
  return tree.source == DraftSource::kHeads || tree.source == DraftSource::kBase;
}

// Can the tree grow as far as it was chosen to?
bool FitsIn(const DynamicTreeOptions& grown, const draft::Budget& budget) {
  return grown.nodes <= budget.max_nodes && grown.depth <= budget.max_depth;
}

}  // namespace

Stepper::Stepper(const StepContext& context)
    : context_(context), num_wanted_(context.drafter->WantedLayers().size()), committed_hidden_(num_wanted_) {}

void Stepper::Step(std::span<Part> parts, const StepKind& kind) {
  prompts_.clear();
  trees_.clear();
  for (Part& part : parts) (part.prompt_rows > 0 ? prompts_ : trees_).push_back(&part);
  PhaseClock clock(trees_), prompt_clock(prompts_);
  batch_.Clear();
  ChooseTree(kind);
  Draft();
  clock.Lap(&PhaseTimes::draft);
  LayOutPrompts();
  LayOutTrees();
  batch_.Seal();
  context_.decoder->Forward(batch_, *context_.blocks, output_);
  clock.Lap(&PhaseTimes::forward);
  FinishPrompts();
  prompt_clock.Lap(&PhaseTimes::prefill);
  verdicts_.resize(trees_.size());
  context_.pool->ParallelFor(static_cast<int64_t>(trees_.size()), 1, [&](int64_t begin, int64_t end) {
    for (int64_t t = begin; t < end; ++t) Verify(static_cast<size_t>(t));
  });
  clock.Lap(&PhaseTimes::verify);
  FinishTrees();
  clock.Lap(&PhaseTimes::commit);
  ObserveTree(clock.total_ms());
}

// One tree for all sequences that ask for auto: a step's cost depends on all of them together.
void Stepper::ChooseTree(const StepKind& kind) {
  chooser_ = nullptr;
  auto_trees_ = nullptr;
  kind_ = kind;
  bool all_auto = true;
  for (const Part* part : trees_) {
    if (part->auto_trees != nullptr) auto_trees_ = part->auto_trees;
    all_auto = all_auto && part->auto_trees != nullptr;
  }
  if (auto_trees_ != nullptr) chooser_ = &auto_trees_->For(kind_);
  all_as_chosen_ = all_auto && prompts_.empty() && KindOfStep(trees_.size(), kind.sampled, kind.pruned) == kind;
}

void Stepper::ObserveTree(double milliseconds) {
  if (chooser_ == nullptr) return;
  for (const Part* part : trees_) {
    if (part->auto_trees == nullptr) continue;
    part->sequence->CountTree(static_cast<size_t>(chooser_->Next()), auto_trees_->family().size());
    all_as_chosen_ = all_as_chosen_ && !part->error;
  }
  if (!all_as_chosen_) return;
  TakeWalks();
  grown_.clear();
  if (auto_trees_->grows()) TakeGrown();
  chooser_->Observe({.milliseconds = milliseconds, .walks = walks_, .grown = grown_});
}

// By which children the verifier went.
void Stepper::TakeWalks() {
  walks_.resize(trees_.size());
  for (size_t t = 0; t < trees_.size(); ++t) {
    const tree::Topology& topology = trees_[t]->sequence->tree().topology;
    walks_[t].assign(1, {.num_children = topology.num_children()[0]});
    for (const tree::NodeId node : verdicts_[t].path) {
      walks_[t].back().accepted = topology.child_rank()[static_cast<size_t>(node)];
      walks_[t].push_back({.num_children = topology.num_children()[static_cast<size_t>(node)]});
    }
  }
}

// Which of the drafted nodes, best first, were accepted.
void Stepper::TakeGrown() {
  grown_.resize(trees_.size());
  for (size_t t = 0; t < trees_.size(); ++t) {
    const tree::TokenTree& tree = trees_[t]->sequence->tree();
    std::vector<tree::NodeId> order(tree.tokens.size());
    std::iota(order.begin(), order.end(), 0);
    if (!tree.scores.empty()) {
      std::ranges::stable_sort(order, std::greater(),
                               [&](tree::NodeId node) { return tree.scores[static_cast<size_t>(node)]; });
    }
    grown_[t].clear();
    for (const tree::NodeId node : order) {
      if (node == 0) continue;
      grown_[t].push_back({.depth = tree.topology.depth()[static_cast<size_t>(node)],
                           .accepted = std::ranges::find(verdicts_[t].path, node) != verdicts_[t].path.end()});
    }
  }
}

draft::DraftKv Stepper::DraftKvOf(const Part& part) const {
  return {.table = &part.sequence->table(), .first_layer = context_.base_layers.first + context_.base_layers.count};
}

const DynamicTreeOptions* Stepper::GrownOf(const Part& part) const {
  return part.auto_trees != nullptr ? part.auto_trees->grown(chooser_->Next()) : part.dynamic;
}

draft::ProposeInput Stepper::ProposalOf(const Part& part) const {
  sequence::Sequence& sequence = *part.sequence;
  const GenerationRequest& request = sequence.request();
  const DynamicTreeOptions* const grown = GrownOf(part);
  return {.state = sequence.draft_state(),
          .kv = DraftKvOf(part),
          .prompt = request.prompt_ids,
          .output = sequence.output(),
          .sampling = &request.sampling,
          .coupled = DraftsSeeNoise(request.accept),
          .noise = &sequence.noise(),
          .draws = sequence.draws(),
          .budget = {.max_nodes = part.tree_rows - 1,
                     .max_depth = sequence.depth_room(),
                     .max_slots = grown != nullptr       ? draft::SlotsOf(*grown)
                                  : part.beam != nullptr ? draft::SlotsOf(*part.beam)
                                                         : part.tree_rows},
          .shape = part.auto_trees != nullptr ? &part.auto_trees->shape(chooser_->Next()) : part.shape,
          .dynamic = grown,
          .beam = part.beam,
          .min_probability = request.draft_p_min,
          .tree = &sequence.tree()};
}

void Stepper::Draft() {
  proposals_.clear();
  for (const Part* part : trees_) {
    sequence::Sequence& sequence = *part->sequence;
    HYDRANT_CHECK(sequence.depth_room() >= 0 && part->tree_rows > 0);
    if (sequence.drafts()) {
      proposals_.push_back(ProposalOf(*part));
    } else {
      sequence.tree().Reset(sequence.output().back());
    }
  }
  if (!proposals_.empty()) context_.drafter->Propose(proposals_);
  for (const draft::ProposeInput& proposal : proposals_) {
    HYDRANT_CHECK(proposal.tree->topology.num_nodes() - 1 <= proposal.budget.max_nodes);
    const bool whole = (proposal.shape == nullptr || proposal.shape->FitsIn(proposal.budget)) &&
                       (proposal.dynamic == nullptr || FitsIn(*proposal.dynamic, proposal.budget));
    all_as_chosen_ = all_as_chosen_ && IsByHeads(*proposal.tree) && whole;
  }
}

void Stepper::LayOutPrompts() {
  prompt_row_.clear();
  prompt_logits_.clear();
  num_prompt_logits_.clear();
  for (const Part* part : prompts_) {
    sequence::Sequence& sequence = *part->sequence;
    const int32_t first = sequence.table().length();
    HYDRANT_CHECK(part->prompt_rows <= sequence.num_left());
    const bool reserved = sequence.table().Reserve(first + part->prompt_rows);
    HYDRANT_CHECK(reserved);
    prompt_row_.push_back(batch_.num_rows());
    const std::span<const int32_t> tokens =
        sequence.tokens().subspan(static_cast<size_t>(first), static_cast<size_t>(part->prompt_rows));
    // A text that is computed again, after a preemption, knows its next token and needs no logits.
    const bool is_end = part->prompt_rows == sequence.num_left() && sequence.output().empty();
    prompt_logits_.push_back(static_cast<int32_t>(batch_.logit_rows().size()));
    num_prompt_logits_.push_back(sequence.scores_prompt() ? part->prompt_rows : is_end ? 1 : 0);
    batch_.AddChain(tokens, first, sequence.table().blocks());
    batch_.WantLogits(num_prompt_logits_.back());
  }
}

// Adds the rows of all trees to the batch, each tree's rows in the order of its nodes' places.
void Stepper::LayOutTrees() {
  first_row_.clear();
  first_logits_.clear();
  for (const Part* part : trees_) {
    sequence::Sequence& sequence = *part->sequence;
    first_row_.push_back(batch_.num_rows());
    first_logits_.push_back(static_cast<int32_t>(batch_.logit_rows().size()));
    const tree::TokenTree& tree = sequence.tree();
    const int32_t root = sequence.table().length();
    const bool reserved = sequence.table().Reserve(root + tree.topology.num_nodes());
    HYDRANT_CHECK(reserved);
    sequence.PlaceNodes();
    const std::span<const int32_t> places = sequence.places();
    node_at_.resize(places.size());
    for (tree::NodeId node = 0; node < tree.topology.num_nodes(); ++node) {
      node_at_[static_cast<size_t>(places[static_cast<size_t>(node)])] = node;
    }
    for (const tree::NodeId node : node_at_) {
      std::vector<int32_t> path = tree.topology.PathTo(node);
      for (int32_t& on_path : path) on_path = places[static_cast<size_t>(on_path)];
      batch_.AddTreeRow(tree.tokens[static_cast<size_t>(node)], root, path, sequence.table().blocks());
      batch_.WantLogits();
    }
  }
}

void Stepper::CheckKv(const Part& part, int32_t first, int32_t count) const {
  load::CheckKvRange(part.sequence->table(), first, count, context_.base_layers, context_.model);
}

void Stepper::FinishPrompts() {
  if (prompts_.empty()) return;
  for (Part* part : prompts_) {
    kv::BlockTable& table = part->sequence->table();
    table.Append(part->prompt_rows);
    Guard(*part, [&] { CheckKv(*part, table.length() - part->prompt_rows, part->prompt_rows); });
  }
  CommitPrompts();
  for (size_t p = 0; p < prompts_.size(); ++p) {
    sequence::Sequence& sequence = *prompts_[p]->sequence;
    if (prompts_[p]->error) continue;
    if (sequence.scores_prompt()) ScorePrompt(p);
    if (sequence.num_left() > 0 || !sequence.output().empty()) continue;
    const int32_t last = prompt_logits_[p] + num_prompt_logits_[p] - 1;
    const std::span<const float> logits = std::as_const(output_.logits).row_span(last);
    Guard(*prompts_[p], [&] {
      sequence.TakeFirst(logits);
      if (sequence.output().empty()) return;
      if (!std::isfinite(logits[static_cast<size_t>(sequence.output().back())]))
        throw load::NoFiniteLogits(context_.model);
    });
  }
}

// Log probabilities of the prompt's own tokens, each by the row before it.
void Stepper::ScorePrompt(size_t p) {
  sequence::Sequence& sequence = *prompts_[p]->sequence;
  const GenerationRequest& request = sequence.request();
  const auto end = static_cast<size_t>(sequence.table().length());
  const size_t first = end - static_cast<size_t>(prompts_[p]->prompt_rows);
  const size_t count = std::min(end, request.prompt_ids.size() - 1) - first;
  std::vector<TokenLogprobs> logprobs(count);
  context_.pool->ParallelFor(static_cast<int64_t>(count), 1, [&](int64_t begin, int64_t until) {
    for (int64_t i = begin; i < until; ++i) {
      const std::span<const float> logits =
          std::as_const(output_.logits).row_span(prompt_logits_[p] + static_cast<int32_t>(i));
      const int32_t token = request.prompt_ids[first + static_cast<size_t>(i) + 1];
      logprobs[static_cast<size_t>(i)] = sampling::LogprobsOf(logits, token, request.num_logprobs);
    }
  });
  sequence.TakePromptLogprobs(first, logprobs);
}

void Stepper::CommitPrompts() {
  commits_.clear();
  hidden_parts_.clear();
  hidden_parts_.reserve(prompts_.size() * num_wanted_);  // commits_ point into it
  for (size_t p = 0; p < prompts_.size(); ++p) {
    const Part& part = *prompts_[p];
    sequence::Sequence& sequence = *part.sequence;
    if (!sequence.drafts() || part.error) continue;
    const size_t begin = hidden_parts_.size();
    for (size_t i = 0; i < num_wanted_; ++i) {
      hidden_parts_.push_back(kernels::ConstRows(output_.HiddenOf(i)).Part(prompt_row_[p], part.prompt_rows));
    }
    const auto length = static_cast<size_t>(sequence.table().length()), count = static_cast<size_t>(part.prompt_rows);
    commits_.push_back({.state = sequence.draft_state(),
                        .kv = DraftKvOf(part),
                        .tokens = sequence.tokens().subspan(length - count, count),
                        .hidden = std::span(hidden_parts_).subspan(begin),
                        .is_prompt = true});
  }
  if (!commits_.empty()) context_.drafter->Commit(commits_);
}

// Decides on one tree, and commits the keys and values of its accepted nodes. Trees share nothing here.
void Stepper::Verify(size_t t) {
  Part& part = *trees_[t];
  sequence::Sequence& sequence = *part.sequence;
  verify::VerifyInput input;
  input.tree = &sequence.tree();
  input.logits = kernels::ConstRows(output_.logits).Part(first_logits_[t], sequence.tree().topology.num_nodes());
  input.rows = sequence.places();
  input.sampling = &sequence.request().sampling;
  input.accept = &sequence.request().accept;
  input.prompt = sequence.request().prompt_ids;
  input.output = sequence.output();
  input.noise = &sequence.noise();
  verify::Verdict& verdict = verdicts_[t];
  verdict = sequence.verifier().Accept(input);
  Guard(part, [&] {
    const int32_t root = sequence.table().length();
    CheckKv(part, root, 1);
    for (const tree::NodeId node : verdict.path) {
      CheckKv(part, root + sequence.places()[static_cast<size_t>(node)], 1);
    }
    CheckFinite(input, verdict);
    sequence.TakeLogprobs(LogprobsOf(input, verdict, sequence.request().num_logprobs));
    sequence.CommitPath(verdict);
  });
}

// Checks the logits of the tokens that go into the text. Where all logits of a row are NaN, the token that was chosen
// has NaN too.
void Stepper::CheckFinite(const verify::VerifyInput& input, const verify::Verdict& verdict) const {
  const auto check = [&](tree::NodeId node, int32_t token) {
    if (!std::isfinite(verify::RowOf(input, node)[static_cast<size_t>(token)]))
      throw load::NoFiniteLogits(context_.model);
  };
  tree::NodeId at = 0;
  for (const tree::NodeId node : verdict.path) {
    check(at, input.tree->tokens[static_cast<size_t>(node)]);
    at = node;
  }
  check(at, verdict.bonus);
}

void Stepper::FinishTrees() {
  for (size_t t = 0; t < trees_.size(); ++t) {
    if (!trees_[t]->error) trees_[t]->sequence->Commit(verdicts_[t]);
  }
  CommitTrees();
}

// Tells the drafter what was committed of sequences that go on: the root's row and those of the accepted nodes.
void Stepper::CommitTrees() {
  commits_.clear();
  committed_rows_.clear();
  committed_tokens_.clear();
  num_committed_.clear();
  hidden_parts_.clear();
  for (size_t t = 0; t < trees_.size(); ++t) {
    const Part& part = *trees_[t];
    sequence::Sequence& sequence = *part.sequence;
    if (part.error || !sequence.drafts() || sequence.finished()) continue;
    const size_t first = committed_rows_.size();
    const auto keep = [&](tree::NodeId node) {
      committed_rows_.push_back(first_row_[t] + sequence.places()[static_cast<size_t>(node)]);
      committed_tokens_.push_back(sequence.tree().tokens[static_cast<size_t>(node)]);
    };
    keep(0);
    for (const tree::NodeId node : verdicts_[t].path) keep(node);
    commits_.push_back({.state = sequence.draft_state(), .kv = DraftKvOf(part), .tokens = {}, .hidden = {}});
    num_committed_.push_back(committed_rows_.size() - first);
  }
  if (commits_.empty()) return;
  PointAtCommitted();
  context_.drafter->Commit(commits_);
}

// Gives each of commits_ its tokens and hidden rows.
void Stepper::PointAtCommitted() {
  const auto count = static_cast<int64_t>(committed_rows_.size());
  for (size_t i = 0; i < num_wanted_; ++i) {
    const Matrix& hidden = output_.HiddenOf(i);
    committed_hidden_[i].Resize(count, hidden.cols());
    for (int64_t r = 0; r < count; ++r) {
      std::copy_n(hidden.row(committed_rows_[static_cast<size_t>(r)]), hidden.cols(), committed_hidden_[i].row(r));
    }
  }
  hidden_parts_.reserve(commits_.size() * num_wanted_);  // commits_ point into it
  size_t first = 0;
  for (size_t c = 0; c < commits_.size(); ++c) {
    const size_t begin = hidden_parts_.size();
    commits_[c].tokens = std::span(committed_tokens_).subspan(first, num_committed_[c]);
    for (const Matrix& hidden : committed_hidden_) {
      hidden_parts_.push_back(
          kernels::ConstRows(hidden).Part(static_cast<int64_t>(first), static_cast<int64_t>(num_committed_[c])));
    }
    commits_[c].hidden = std::span(hidden_parts_).subspan(begin);
    first += num_committed_[c];
  }
}

}  // namespace hydrant::engine
