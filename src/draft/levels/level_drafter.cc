// SPDX-License-Identifier: Apache-2.0
#include "draft/levels/level_drafter.h"

#include <algorithm>
#include <utility>
#include <vector>

#include "base/check.h"
#include "draft/candidates.h"
#include "draft/levels/beam_growth.h"
#include "draft/levels/tree_growth.h"

namespace hydrant::draft {
namespace {

// Committed rows that wait for the next Propose. In plain steps nobody proposes, and their hidden states take memory.
constexpr size_t kMostWaiting = 256;

// How deep trees are that nobody has named (`--tree auto`).
constexpr int32_t kUsualDepth = 8;

// Rows that are committed and that the network has not seen yet.
struct LevelState : DraftState {
  std::vector<float> inputs;    // [m, I]: hidden states of the wanted layers, side by side
  std::vector<int32_t> tokens;  // that those rows read; one less than m where the last one is not decided yet
  int32_t num_rows = 0;         // m
  std::vector<float> last;      // [I], of the last row that was run: it is run again where nothing new is committed
};

// The tokens of a given path, for LogitsAlong.
class ChainGrowth : public TreeGrowth {
 public:
  void Start(std::span<const int32_t> tokens) { tokens_ = tokens; }
  std::span<const Expansion> Level(int32_t depth) override {
    if (depth >= static_cast<int32_t>(tokens_.size())) return {};
    expansion_ = {.parent = depth == 0 ? -1 : 0, .token = tokens_[static_cast<size_t>(depth)], .num_candidates = 1};
    return std::span(&expansion_, 1);
  }
  void Fill(int32_t, std::span<const int32_t>, std::span<const float>) override {}
  void Finish() override {}
  bool WantsProbabilities() const override { return false; }

 private:
  std::span<const int32_t> tokens_;
  Expansion expansion_;
};

// One sequence of a call.
struct Job {
  LevelState* state = nullptr;
  DraftKv kv = {};
  const ProposeInput* input = nullptr;  // null: LogitsAlong
  TreeGrowth* growth = nullptr;
  int32_t root = 0;                               // token
  int32_t num_slots = 0;                          // of drafted rows so far
  std::vector<std::vector<int32_t>> paths = {};   // [expansions of the level]: slots behind the first from the root on
  std::vector<std::vector<int32_t>> tokens = {};  // [expansions of the level]: drafted tokens from below the root to it
};

class LevelDrafter : public Drafter {
 public:
  LevelDrafter(std::unique_ptr<LevelModel> model, int64_t vocab_size, kernels::Queue* queue)
      : model_(std::move(model)),
        vocab_size_(vocab_size),
        queue_(queue),
        keeps_kv_(!model_->KvLayers().empty()),
        input_width_(static_cast<int64_t>(model_->WantedLayers().size()) * model_->input_width()),
        ranker_(vocab_size, model_->num_logits(), model_->token_map()) {
    HYDRANT_CHECK(keeps_kv_ || model_->reads_next_token());
  }

  const char* name() const override { return model_->name(); }
  int32_t max_depth() const override { return model_->max_depth(); }
  int32_t num_heads() const override { return model_->num_heads(); }
  int32_t usual_depth() const override { return std::min(kUsualDepth, max_depth()); }
  std::vector<int32_t> WantedLayers() const override { return model_->WantedLayers(); }
  std::vector<kv::LayerShape> KvLayers() const override { return model_->KvLayers(); }
  bool ReadsNextToken() const override { return keeps_kv_ && model_->reads_next_token(); }
  uint64_t weight_bytes() const override { return model_->weight_bytes(); }
  uint64_t table_bytes() const override { return model_->table_bytes(); }
  uint64_t bytes_read() const override { return model_->bytes_read(); }
  bool FillsShapes() const override { return true; }
  bool GrowsTrees() const override { return true; }

  std::unique_ptr<DraftState> NewState(const GenerationRequest& /*request*/) const override {
    return std::make_unique<LevelState>();
  }

  int32_t Resume(DraftState& state, const DraftKv& kv, int32_t length) const override {
    auto& own = static_cast<LevelState&>(state);
    own = LevelState();
    return keeps_kv_ ? std::min(length, kv.drafted_length()) : length;
  }

  void Commit(std::span<const CommitInput> inputs) override {
    jobs_.clear();
    for (const CommitInput& input : inputs) {
      auto& state = *static_cast<LevelState*>(input.state);
      Take(input, state);
      if (!input.is_prompt && state.tokens.size() < kMostWaiting) continue;
      if (!state.tokens.empty()) jobs_.push_back({.state = &state, .kv = input.kv});
    }
    if (!jobs_.empty()) RunWaiting(inputs.front().kv, /*output=*/nullptr);
  }

  void Propose(std::span<ProposeInput> inputs) override {
    shapes_.resize(std::max(shapes_.size(), inputs.size()));
    dynamics_.resize(std::max(dynamics_.size(), inputs.size()));
    beams_.resize(std::max(beams_.size(), inputs.size()));
    jobs_.clear();
    for (size_t i = 0; i < inputs.size(); ++i) {
      ProposeInput& input = inputs[i];
      input.tree->Reset(input.output.back());
      input.budget.max_depth = std::min(input.budget.max_depth, model_->max_depth());
      if (!MayDraft(input) || !Reserve(input)) continue;
      jobs_.push_back({.state = static_cast<LevelState*>(input.state),
                       .kv = input.kv,
                       .input = &input,
                       .growth = StartGrowth(i, input),
                       .root = Known(input.output.back())});
    }
    if (jobs_.empty()) return;
    RunLevels(inputs.front().kv, [&](Job& job, int32_t expansion, int64_t row) {
      const std::span<const int32_t> candidates = ranker_.Candidates(row, job.tokens[static_cast<size_t>(expansion)]);
      job.growth->Fill(expansion, candidates, ranker_.probabilities());
    });
    for (Job& job : jobs_) job.growth->Finish();
  }

  void LogitsAlong(std::span<AlongInput> inputs) override {
    std::vector<ChainGrowth> chains(inputs.size());
    jobs_.clear();
    for (size_t i = 0; i < inputs.size(); ++i) {
      AlongInput& input = inputs[i];
      const auto count = static_cast<int32_t>(input.tokens.size());
      const bool reserved = !keeps_kv_ || input.kv.table->Reserve(input.kv.table->length() + count);
      HYDRANT_CHECK(reserved);
      chains[i].Start(input.tokens);
      input.logits->Resize(count, vocab_size_);
      jobs_.push_back({.state = static_cast<LevelState*>(input.state),
                       .kv = input.kv,
                       .growth = &chains[i],
                       .root = Known(input.tokens.front())});
    }
    if (jobs_.empty()) return;
    std::vector<int32_t> next(jobs_.size(), 0);
    RunLevels(inputs.front().kv, [&](Job& job, int32_t /*expansion*/, int64_t row) {
      const auto j = static_cast<size_t>(&job - jobs_.data());
      const std::span<const float> logits = ranker_.Logits(row);
      std::copy(logits.begin(), logits.end(), inputs[j].logits->row(next[j]++));
    });
  }

 private:
  int32_t shift() const { return model_->reads_next_token() ? 1 : 0; }

  // A token that only pads the base's vocabulary may be none of the network's. Any other stands for it.
  int32_t Known(int32_t token) const { return token < model_->vocab_size() ? token : 0; }

  // Of the i-th tree of a call.
  TreeGrowth* StartGrowth(size_t i, ProposeInput& input) {
    if (input.dynamic != nullptr) {
      dynamics_[i].Start(input);
      return &dynamics_[i];
    }
    if (input.beam != nullptr) {
      beams_[i].Start(input, model_->num_best());
      return &beams_[i];
    }
    shapes_[i].Start(input);
    return &shapes_[i];
  }

  // Adds newly committed positions to those that wait.
  void Take(const CommitInput& input, LevelState& state) const {
    std::span<const int32_t> tokens = input.tokens;
    // The first token belongs to the row before, which is there already, or to none.
    if (shift() == 1 && state.num_rows == 0) tokens = tokens.subspan(1);
    for (const int32_t token : tokens) state.tokens.push_back(Known(token));
    const auto rows = static_cast<int32_t>(input.tokens.size());
    state.num_rows += rows;
    for (int32_t r = 0; r < rows; ++r) {
      for (const kernels::ConstRows& hidden : input.hidden) {
        state.inputs.insert(state.inputs.end(), hidden.row(r), hidden.row(r) + hidden.cols);
      }
    }
    if (!keeps_kv_) KeepLast(state);
  }

  // The last row, whose token is not decided yet.
  void KeepLast(LevelState& state) const {
    state.inputs.erase(state.inputs.begin(), state.inputs.end() - input_width_);
    state.tokens.clear();
    state.num_rows = 1;
  }

  // Room for every row that may be drafted. False: the pool is full.
  bool Reserve(const ProposeInput& input) const {
    if (!keeps_kv_) return true;
    const int32_t rows = input.dynamic != nullptr ? SlotsOf(*input.dynamic)
                         : input.beam != nullptr  ? SlotsOf(*input.beam)
                                                  : input.shape->Within(input.budget).num_nodes();
    return input.kv.table->Reserve(input.kv.table->length() + std::min(rows, input.budget.max_slots));
  }

  // Runs the rows that wait for all jobs, and of those that draft the root's row, whose logits go to `output`.
  void RunWaiting(const DraftKv& kv, const HeadOutput* output) {
    const bool drafts = output != nullptr;
    batch_.Clear();
    int64_t committed = 0;
    for (Job& job : jobs_) {
      if (drafts && shift() == 1) DecideLast(job);
      committed += static_cast<int64_t>(job.state->tokens.size());
    }
    const int64_t width = input_width_;
    inputs_.Resize(committed, width);
    int64_t row = 0;
    const auto add = [&](const Job& job, size_t first, size_t count) {
      const int32_t position = job.kv.table->length() - job.state->num_rows + static_cast<int32_t>(first);
      batch_.AddChain(std::span(job.state->tokens).subspan(first, count), position, job.kv.table->blocks());
      for (size_t i = first; i < first + count; ++i) {
        if (width > 0) std::copy_n(job.state->inputs.data() + i * static_cast<size_t>(width), width, inputs_.row(row));
        ++row;
      }
    };
    // The rows whose logits are wanted come last.
    const bool root_is_extra = drafts && shift() == 0;
    for (const Job& job : jobs_) add(job, 0, job.state->tokens.size() - (drafts && !root_is_extra ? 1 : 0));
    for (Job& job : jobs_) {
      if (!drafts) break;
      if (root_is_extra) {
        batch_.AddChain(std::span(&job.root, 1), job.kv.table->length(), job.kv.table->blocks());
      } else {
        add(job, job.state->tokens.size() - 1, 1);
      }
    }
    batch_.Seal();
    model_->Run({.rows = &batch_,
                 .inputs = inputs_,
                 .is_committed = true,
                 .num_outputs = drafts ? static_cast<int64_t>(jobs_.size()) : 1,
                 .output = output,
                 .pool = &kv.table->pool(),
                 .first_layer = kv.first_layer},
                states_);
    for (Job& job : jobs_) ForgetWaiting(job);
  }

  // The last row reads the root.
  static void DecideLast(Job& job) {
    LevelState& state = *job.state;
    if (state.num_rows == 0) {
      state.inputs = state.last;
      state.num_rows = 1;
    }
    state.tokens.push_back(job.root);
  }

  // Those rows are done.
  void ForgetWaiting(Job& job) const {
    LevelState& state = *job.state;
    const auto done = static_cast<int32_t>(state.tokens.size());
    const int32_t end = job.kv.table->length() - state.num_rows + done;
    const int64_t width = input_width_;
    if (done > 0) state.last.assign(state.inputs.begin() + (done - 1) * width, state.inputs.begin() + done * width);
    state.inputs.erase(state.inputs.begin(), state.inputs.begin() + done * width);
    state.tokens.clear();
    state.num_rows -= done;
    if (keeps_kv_) job.kv.AppendDrafted(end - job.kv.drafted_length());
  }

  // `fill(job, expansion, row)` answers an expansion from that row of the ranker.
  template <typename Fill>
  void RunLevels(const DraftKv& kv, const Fill& fill) {
    for (int32_t depth = 0;; ++depth) {
      const int64_t rows = ListLevel(depth);
      if (rows == 0) return;
      HYDRANT_CHECK(depth > 0 || rows == static_cast<int64_t>(jobs_.size()));
      const HeadOutput output = ranker_.Output(queue_->pool->num_threads(), rows, model_->num_logits());
      if (depth == 0) {
        RunWaiting(kv, &output);
      } else {
        RunDrafted(kv, depth, output);
      }
      std::swap(states_, above_);
      for (size_t e = 0; e < expanded_.size(); ++e) {
        fill(*expanded_[e].job, expanded_[e].number, static_cast<int64_t>(e));
      }
    }
  }

  // One row of the level in hand.
  struct Expanded {
    Job* job = nullptr;
    int32_t number = 0;  // of the job's expansions
    int32_t token = 0;
    int64_t above_row = 0;  // its parent's in the level above
  };

  // Asks all trees for their next level. Returns the number of rows.
  int64_t ListLevel(int32_t depth) {
    const std::vector<Expanded> above = std::exchange(expanded_, {});
    ranker_.Start(/*rank_in_head=*/jobs_.front().input != nullptr);
    size_t first_above = 0;
    for (Job& job : jobs_) {
      const size_t begin = first_above;
      while (first_above < above.size() && above[first_above].job == &job) ++first_above;
      const std::span<const Expansion> expansions = job.growth->Level(depth);
      Descend(job, expansions, depth);
      for (size_t e = 0; e < expansions.size(); ++e) {
        const Expansion& expansion = expansions[e];
        expanded_.push_back({.job = &job,
                             .number = static_cast<int32_t>(e),
                             .token = Known(expansion.token),
                             .above_row = static_cast<int64_t>(begin) + std::max(0, expansion.parent)});
        if (job.input == nullptr) continue;
        // A shape has a token for each of its nodes, be it one that the network cannot draft.
        const int64_t most = job.input->shape != nullptr ? vocab_size_ : model_->num_logits();
        ranker_.Add(*job.input, static_cast<int64_t>(job.input->output.size()) + depth,
                    static_cast<int32_t>(std::min<int64_t>(expansion.num_candidates, most)),
                    job.growth->WantsProbabilities());
      }
    }
    return static_cast<int64_t>(expanded_.size());
  }

  // Slots and drafted tokens on the way to each expansion.
  void Descend(Job& job, std::span<const Expansion> expansions, int32_t depth) const {
    std::vector<std::vector<int32_t>> paths, tokens;
    for (const Expansion& expansion : expansions) {
      if (depth == 0) {
        paths.push_back({0});
        tokens.emplace_back();
        continue;
      }
      const auto parent = static_cast<size_t>(expansion.parent);
      paths.push_back(job.paths[parent]);
      paths.back().push_back(++job.num_slots);
      tokens.push_back(job.tokens[parent]);
      tokens.back().push_back(expansion.token);
    }
    job.paths = std::move(paths);
    job.tokens = std::move(tokens);
  }

  void RunDrafted(const DraftKv& kv, int32_t depth, const HeadOutput& output) {
    batch_.Clear();
    const int64_t width = model_->state_width();
    inputs_.Resize(static_cast<int64_t>(expanded_.size()), width);
    for (size_t e = 0; e < expanded_.size(); ++e) {
      const Expanded& node = expanded_[e];
      batch_.AddTreeRow(node.token, node.job->kv.table->length() - shift(),
                        node.job->paths[static_cast<size_t>(node.number)], node.job->kv.table->blocks());
      if (width > 0) std::copy_n(above_.row(node.above_row), width, inputs_.row(static_cast<int64_t>(e)));
    }
    batch_.Seal();
    model_->Run({.rows = &batch_,
                 .inputs = inputs_,
                 .is_committed = false,
                 .depth = depth,
                 .num_outputs = static_cast<int64_t>(expanded_.size()),
                 .output = &output,
                 .pool = &kv.table->pool(),
                 .first_layer = kv.first_layer},
                states_);
  }

  std::unique_ptr<LevelModel> model_;
  int64_t vocab_size_;
  kernels::Queue* queue_;
  bool keeps_kv_;
  int64_t input_width_;  // of all wanted layers together
  CandidateRanker ranker_;
  std::vector<ShapeGrowth> shapes_;
  std::vector<DynamicGrowth> dynamics_;
  std::vector<BeamGrowth> beams_;
  std::vector<Job> jobs_;  // of the call in hand
  std::vector<Expanded> expanded_;
  model::RowBatch batch_;
  Matrix inputs_, states_, above_;  // above_: states of the level above
};

}  // namespace

std::unique_ptr<Drafter> MakeLevelDrafter(std::unique_ptr<LevelModel> model, int64_t vocab_size,
                                          kernels::Queue* queue) {
  return std::make_unique<LevelDrafter>(std::move(model), vocab_size, queue);
}

}  // namespace hydrant::draft
