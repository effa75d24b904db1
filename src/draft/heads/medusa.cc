// SPDX-License-Identifier: Apache-2.0
#include "draft/heads/medusa.h"

#include <algorithm>
#include <cmath>
#include <deque>
#include <string>
#include <utility>

#include "base/check.h"
#include "draft/candidates.h"
#include "draft/growing_trees.h"
#include "draft/heads/head_stack.h"
#include "draft/heads/medusa_weights.h"

namespace hydrant::draft {
namespace {

struct LastHidden : DraftState {
  std::vector<float> hidden;  // [D]
};

class IndependentHeads : public Drafter {
 public:
  IndependentHeads(MedusaWeights heads, const model::ModelWeights& base, kernels::Queue* queue)
      : heads_(std::move(heads)),
        hidden_size_(base.config.hidden_size),
        vocab_size_(base.config.vocab_size),
        wanted_layer_(WantedLayer(heads_.info, base.config)),
        queue_(queue),
        runner_(queue) {
    for (const Head& head : heads_.heads) runner_.Uses(head);
    for (const auto& head : heads_.heads) {
      rankers_.emplace_back(base.config.vocab_size, head.lm_head.outputs(), heads_.token_map);
    }
  }

  const char* name() const override { return heads_.info.name.c_str(); }
  int32_t max_depth() const override { return heads_.info.num_heads; }
  std::vector<int32_t> WantedLayers() const override { return {wanted_layer_}; }
  uint64_t weight_bytes() const override { return heads_.bytes; }
  uint64_t bytes_read() const override { return bytes_read_; }
  bool FillsShapes() const override { return true; }
  bool RanksByPath() const override { return false; }

  std::unique_ptr<DraftState> NewState(const GenerationRequest& /*request*/) const override {
    return std::make_unique<LastHidden>();
  }

  void Commit(std::span<const CommitInput> inputs) override {
    for (const CommitInput& input : inputs) {
      const kernels::ConstRows& hidden = input.hidden.front();
      const float* last = hidden.row(hidden.rows - 1);
      static_cast<LastHidden*>(input.state)->hidden.assign(last, last + hidden_size_);
    }
  }

  void Propose(std::span<ProposeInput> inputs) override {
    GrowingTrees::Plant(inputs);
    int32_t deepest = 0;
    for (const ProposeInput& input : inputs) deepest = std::max(deepest, input.tree->topology.max_depth());
    HYDRANT_CHECK(deepest <= max_depth());
    if (deepest == 0) return;
    // Sequences with shallower trees go through all the heads as well: more rows cost next to nothing, while reading a
    // head a second time would cost a lot.
    x_.Resize(static_cast<int64_t>(inputs.size()), hidden_size_);
    for (size_t i = 0; i < inputs.size(); ++i) {
      std::copy_n(static_cast<LastHidden*>(inputs[i].state)->hidden.data(), hidden_size_,
                  x_.row(static_cast<int64_t>(i)));
    }
    for (int32_t head = 0; head < deepest; ++head) {
      CandidateRanker& ranker = rankers_[static_cast<size_t>(head)];
      ranker.Start();
      for (const ProposeInput& input : inputs) {
        const tree::Topology& topology = input.tree->topology;
        const int32_t k = head < topology.max_depth() ? topology.max_children_at(head) : 0;
        ranker.Add(input, static_cast<int64_t>(input.output.size()) + head, k, input.min_probability > 0);
      }
    }
    RunHeads(deepest);
    trees_.Start(inputs);
    for (size_t i = 0; i < inputs.size(); ++i) {
      for (int32_t depth = 0; depth < inputs[i].tree->topology.max_depth(); ++depth) {
        FillLevel(i, inputs[i].tree->topology, depth);
      }
    }
    trees_.Finish();
  }

  void LogitsAlong(std::span<AlongInput> inputs) override {
    x_.Resize(static_cast<int64_t>(inputs.size()), hidden_size_);
    size_t deepest = 0;
    for (size_t i = 0; i < inputs.size(); ++i) {
      std::copy_n(static_cast<LastHidden*>(inputs[i].state)->hidden.data(), hidden_size_,
                  x_.row(static_cast<int64_t>(i)));
      HYDRANT_CHECK(!inputs[i].tokens.empty() && inputs[i].tokens.size() <= rankers_.size());
      inputs[i].logits->Resize(static_cast<int64_t>(inputs[i].tokens.size()), vocab_size_);
      deepest = std::max(deepest, inputs[i].tokens.size());
    }
    for (CandidateRanker& ranker : rankers_) ranker.Start(/*rank_in_head=*/false);
    RunHeads(static_cast<int32_t>(deepest));
    for (size_t i = 0; i < inputs.size(); ++i) {
      for (size_t head = 0; head < inputs[i].tokens.size(); ++head) {
        const std::span<const float> row = rankers_[head].Logits(static_cast<int64_t>(i));
        std::copy(row.begin(), row.end(), inputs[i].logits->row(static_cast<int64_t>(head)));
      }
    }
  }

 private:
  // Heads 0 .. count - 1 over the rows of x_.
  void RunHeads(int32_t count) {
    runner_.Reserve(x_.rows(), hidden_size_);
    outputs_.clear();
    for (size_t h = 0; h < static_cast<size_t>(count); ++h) {
      const int64_t width = heads_.heads[h].lm_head.outputs();
      outputs_.push_back(rankers_[h].Output(queue_->pool->num_threads(), x_.rows(), width));
    }
    kernels::Region(*queue_, [&](kernels::Queue& queue) {
      for (size_t h = 0; h < outputs_.size(); ++h) runner_.Run(queue, heads_.heads[h], x_, {}, outputs_[h]);
    });
    for (size_t h = 0; h < outputs_.size(); ++h) bytes_read_ += BytesOf(heads_.heads[h]);
  }

  void FillLevel(size_t input, const tree::Topology& topology, int32_t depth) {
    CandidateRanker& ranker = rankers_[static_cast<size_t>(depth)];
    const std::span<const int32_t> candidates = ranker.Candidates(static_cast<int64_t>(input), {});
    for (tree::NodeId node = topology.level_begin(depth); node < topology.level_begin(depth + 1); ++node) {
      if (trees_.Expands(input, node)) trees_.Fill(input, node, candidates, ranker.probabilities());
    }
  }

  MedusaWeights heads_;
  int64_t hidden_size_, vocab_size_;
  int32_t wanted_layer_;
  kernels::Queue* queue_;
  HeadRunner runner_;
  uint64_t bytes_read_ = 0;
  Matrix x_;                             // [S, D]
  std::deque<CandidateRanker> rankers_;  // [K]
  std::vector<HeadOutput> outputs_;
  GrowingTrees trees_;
};

}  // namespace

std::unique_ptr<Drafter> MakeIndependentHeads(MedusaWeights weights, const model::ModelWeights& base,
                                              kernels::Queue* queue) {
  return std::make_unique<IndependentHeads>(std::move(weights), base, queue);
}

}  // namespace hydrant::draft
