// SPDX-License-Identifier: Apache-2.0
#include "draft/hydra.h"

#include <algorithm>
#include <string>
#include <utility>
#include <vector>

#include "base/check.h"
#include "draft/candidates.h"
#include "draft/head_stack.h"
#include "draft/hydra_weights.h"
#include "draft/prefix_layer.h"
#include "tree/operations.h"

namespace hydrant::draft {
namespace {

struct HydraState : DraftState {
  std::vector<float> hidden;           // [D], what the heads see of the text so far
  std::unique_ptr<PrefixCache> cache;  // Hydra++ only
};

// One node that has children, somewhere in the call's trees.
struct Expanded {
  int32_t input = 0;  // which sequence
  tree::NodeId node = 0;
  int32_t parent = -1;  // index of the parent's Expanded, -1 for a root
  int32_t reach = 0;    // depth of its deepest expanded descendant, itself included
};

// Products of one input with slices of several heads, in one call.
class PartialSums {
 public:
  explicit PartialSums(size_t most) {
    weights_.reserve(most);  // jobs point to them
    jobs_.reserve(most);
  }
  void Add(const model::Linear& slice, kernels::Rows out, kernels::MatmulMode mode) {
    HYDRANT_CHECK(weights_.size() < weights_.capacity());
    weights_.push_back(slice.view());
    jobs_.push_back({&weights_.back(), slice.bias, out, mode});
  }
  std::span<const kernels::MatmulJob> jobs() const { return jobs_; }
  const kernels::Weight& weight() const { return weights_.front(); }

 private:
  std::vector<kernels::Weight> weights_;
  std::vector<kernels::MatmulJob> jobs_;
};

class Hydra : public Drafter {
 public:
  Hydra(HydraWeights weights, const model::ModelWeights& base, kernels::Queue* queue)
      : weights_(std::move(weights)),
        base_(&base),
        queue_(queue),
        runner_(queue),
        workspaces_(queue->pool->num_threads()),
        ranker_(base.config.vocab_size, weights_.token_map) {
    if (weights_.prefix) prefix_ = std::make_unique<PrefixLayer>(std::move(*weights_.prefix), queue);
    for (const HydraHead& head : weights_.heads) {
      runner_.Uses(head.rest);
      for (const auto* part : {&head.linear, &head.residual}) {
        for (Workspace& workspace : workspaces_.all()) {
          workspace.hidden_input.Uses(part->front());
          for (size_t slice = 1; slice < part->size(); ++slice) workspace.embedded_input.Uses((*part)[slice]);
        }
      }
    }
    linear_.resize(weights_.heads.size());
    residual_.resize(weights_.heads.size());
  }

  const char* name() const override { return weights_.info.name.c_str(); }
  int32_t max_depth() const override { return weights_.info.num_heads; }
  int64_t hidden_layer_offset() const override { return weights_.info.hidden_layer_offset; }
  uint64_t weight_bytes() const override { return weights_.bytes; }

  std::unique_ptr<DraftState> NewState(int32_t max_positions, DType kv_type) const override {
    auto state = std::make_unique<HydraState>();
    if (prefix_) state->cache = prefix_->NewCache(max_positions, kv_type);
    return state;
  }

  void Absorb(std::span<AbsorbInput> inputs) override {
    for (const AbsorbInput& input : inputs) {
      auto& state = *static_cast<HydraState*>(input.state);
      if (prefix_) {
        prefix_->Run(*state.cache, input.hidden, state.hidden);
      } else {
        const float* last = input.hidden.row(input.hidden.rows - 1);
        state.hidden.assign(last, last + input.hidden.cols);
      }
    }
  }

  void Propose(std::span<ProposeInput> inputs) override {
    RunLevels(inputs, /*rank_in_head=*/true, [this](ProposeInput& input, tree::NodeId node, int64_t row) {
      const tree::Topology& topology = input.tree->topology;
      const auto n = static_cast<size_t>(node);
      CollectPath(*input.tree, node);
      tree::FillChildren(topology.first_child()[n], topology.num_children()[n], ranker_.Candidates(row, path_).data(),
                         input.tree->tokens.data());
    });
  }

  void HeadLogits(DraftState& state, int32_t root, std::span<const int32_t> path, Matrix& out) override {
    std::vector<std::vector<int32_t>> chain{std::vector<int32_t>(static_cast<size_t>(max_depth()), 0)};
    tree::TokenTree tree{.topology = tree::Topology::FromPaths(chain), .tokens = {}};
    tree.tokens.assign(static_cast<size_t>(max_depth()) + 1, root);
    ProposeInput input;
    input.state = &state;
    input.tree = &tree;
    out.Resize(max_depth(), base_->config.vocab_size);
    RunLevels(std::span(&input, 1), /*rank_in_head=*/false, [&](ProposeInput& one, tree::NodeId node, int64_t row) {
      const std::span<const float> logits = ranker_.Logits(row);
      const auto depth = static_cast<size_t>(node);  // in a chain a node's number is its depth
      std::copy(logits.begin(), logits.end(), out.row(node));
      one.tree->tokens[depth + 1] = depth < path.size() ? path[depth] : kernels::Argmax(logits);
    });
  }

 private:
  // Rows made ready for the slices.
  struct Workspace {
    model::InputByKind hidden_input, embedded_input;
    Matrix embedded;  // [level's nodes, D]
  };

  // Runs the heads level by level over all expanded nodes of all trees; `fill(input, node, row)` sets the tokens of
  // that node's children, from that row of the ranker, before the next level reads them.
  template <typename Fill>
  void RunLevels(std::span<ProposeInput> inputs, bool rank_in_head, Fill fill) {
    const int32_t levels = ListExpanded(inputs);
    if (levels == 0) return;
    GatherHidden(inputs, levels);
    for (int32_t depth = 0; depth < levels; ++depth) {
      GatherTokens(inputs, depth);
      const HeadOutput output = GatherRows(inputs, depth, rank_in_head);
      if (depth > 0) StartFromParents(depth);
      const auto first = level_begin_[static_cast<size_t>(depth)];
      kernels::Region(*queue_, [&](kernels::Queue& queue) {
        if (depth == 0) StartFromHidden(queue);
        AddEmbeddingSlices(queue, depth);
        const auto d = static_cast<size_t>(depth);
        runner_.Run(queue, weights_.heads[d].rest, LevelRows(residual_[d], depth), LevelRows(linear_[d], depth),
                    output);
      });
      for (int64_t r = 0; r < static_cast<int64_t>(tokens_.size()); ++r) {
        const Expanded& node = expanded_[static_cast<size_t>(first + r)];
        fill(inputs[static_cast<size_t>(node.input)], node.node, r);
      }
    }
  }

  // The rows of m [expanded nodes, D] that stand for this depth's nodes.
  kernels::Rows LevelRows(Matrix& m, int32_t depth) const {
    const int64_t first = level_begin_[static_cast<size_t>(depth)];
    return {m.row(first), level_begin_[static_cast<size_t>(depth) + 1] - first, m.cols(), m.stride()};
  }

  // Fills expanded_ (by depth, then sequence, then node) and level_begin_; returns the number of levels.
  int32_t ListExpanded(std::span<const ProposeInput> inputs) {
    expanded_.clear();
    level_begin_.assign(1, 0);
    int32_t levels = 0;
    for (const ProposeInput& input : inputs) levels = std::max(levels, input.tree->topology.max_depth());
    HYDRANT_CHECK(levels <= max_depth());
    index_of_.resize(inputs.size());
    for (size_t s = 0; s < inputs.size(); ++s) {
      index_of_[s].assign(static_cast<size_t>(inputs[s].tree->topology.num_nodes()), -1);
    }
    for (int32_t depth = 0; depth < levels; ++depth) {
      for (size_t s = 0; s < inputs.size(); ++s) {
        const tree::Topology& topology = inputs[s].tree->topology;
        if (depth >= topology.max_depth()) continue;
        for (tree::NodeId node = topology.level_begin(depth); node < topology.level_begin(depth + 1); ++node) {
          const auto n = static_cast<size_t>(node);
          if (topology.num_children()[n] == 0) continue;
          index_of_[s][n] = static_cast<int32_t>(expanded_.size());
          const int32_t parent = depth == 0 ? -1 : index_of_[s][static_cast<size_t>(topology.parent()[n])];
          expanded_.push_back({.input = static_cast<int32_t>(s), .node = node, .parent = parent, .reach = depth});
        }
      }
      level_begin_.push_back(static_cast<int32_t>(expanded_.size()));
    }
    for (size_t e = expanded_.size(); e-- > 0;) {
      if (expanded_[e].parent < 0) continue;
      Expanded& parent = expanded_[static_cast<size_t>(expanded_[e].parent)];
      parent.reach = std::max(parent.reach, expanded_[e].reach);
    }
    return levels;
  }

  // The hidden rows of the roots, and room for all heads' sums.
  void GatherHidden(std::span<const ProposeInput> inputs, int32_t levels) {
    const int64_t width = base_->config.hidden_size;
    hidden_.Resize(level_begin_[1], width);
    for (int32_t root = 0; root < level_begin_[1]; ++root) {
      const ProposeInput& input = inputs[static_cast<size_t>(expanded_[static_cast<size_t>(root)].input)];
      std::copy_n(static_cast<HydraState*>(input.state)->hidden.data(), width, hidden_.row(root));
    }
    for (size_t head = 0; head < static_cast<size_t>(levels); ++head) {
      for (Matrix* part : {&linear_[head], &residual_[head]}) {
        part->Resize(static_cast<int64_t>(expanded_.size()), width);
      }
    }
  }

  // Before a level's region: its tokens, room for its rows, and the deepest head that a descendant of theirs needs.
  void GatherTokens(std::span<const ProposeInput> inputs, int32_t depth) {
    const auto first = static_cast<size_t>(level_begin_[static_cast<size_t>(depth)]);
    const auto last = static_cast<size_t>(level_begin_[static_cast<size_t>(depth) + 1]);
    tokens_.clear();
    last_head_ = depth;
    for (size_t e = first; e < last; ++e) {
      const Expanded& node = expanded_[e];
      last_head_ = std::max(last_head_, node.reach);
      tokens_.push_back(inputs[static_cast<size_t>(node.input)].tree->tokens[static_cast<size_t>(node.node)]);
    }
    const auto rows = static_cast<int64_t>(tokens_.size());
    const int64_t width = base_->config.hidden_size;
    const bool floats = workspaces_.all().front().embedded_input.UsesFloats();
    for (Workspace& workspace : workspaces_.Choose(BetterAlone(floats, rows, width))) {
      workspace.embedded.Resize(rows, width);
      workspace.embedded_input.Reserve(*queue_->table, rows, width);
      if (depth == 0) workspace.hidden_input.Reserve(*queue_->table, rows, width);
    }
    runner_.Reserve(rows, width);
  }

  // What the head of this depth shall say of its rows.
  HeadOutput GatherRows(std::span<const ProposeInput> inputs, int32_t depth, bool rank_in_head) {
    ranker_.Start(rank_in_head);
    const auto first = static_cast<size_t>(level_begin_[static_cast<size_t>(depth)]);
    const auto last = static_cast<size_t>(level_begin_[static_cast<size_t>(depth) + 1]);
    for (size_t e = first; e < last; ++e) {
      const ProposeInput& input = inputs[static_cast<size_t>(expanded_[e].input)];
      const int32_t k = input.tree->topology.num_children()[static_cast<size_t>(expanded_[e].node)];
      ranker_.Add(input, static_cast<int64_t>(input.output.size()) + depth, k);
    }
    return ranker_.Output(queue_->pool->num_threads(), static_cast<int64_t>(last - first),
                          weights_.heads[static_cast<size_t>(depth)].rest.lm_head.outputs());
  }

  // The roots' rows of all heads' sums = the hidden slice of the first block, with its bias.
  void StartFromHidden(kernels::Queue& queue) {
    PartialSums sums(2 * static_cast<size_t>(last_head_ + 1));
    for (size_t head = 0; head <= static_cast<size_t>(last_head_); ++head) {
      const HydraHead& weights = weights_.heads[head];
      sums.Add(weights.linear.front(), LevelRows(linear_[head], 0), kernels::MatmulMode::kStore);
      sums.Add(weights.residual.front(), LevelRows(residual_[head], 0), kernels::MatmulMode::kStore);
    }
    kernels::Queue own = workspaces_.QueueFor(queue);
    kernels::MatmulInput& input = workspaces_.Of(queue).hidden_input.For(sums.weight());
    input.Load(own, hidden_);
    kernels::Matmul(queue, input, sums.jobs());
  }

  // Outside regions: each of this depth's rows of the sums = its parent's row, for this head and the later ones.
  void StartFromParents(int32_t depth) {
    for (size_t head = static_cast<size_t>(depth); head <= static_cast<size_t>(last_head_); ++head) {
      for (Matrix* sums : {&linear_[head], &residual_[head]}) {
        for (int64_t e = level_begin_[static_cast<size_t>(depth)]; e < level_begin_[static_cast<size_t>(depth) + 1];
             ++e) {
          std::copy_n(sums->row(expanded_[static_cast<size_t>(e)].parent), sums->cols(), sums->row(e));
        }
      }
    }
  }

  // For the expanded nodes of this depth: their own embedding's slice, added to the sums, for this head and the later
  // ones. Nodes that a later head does not need are computed along: a row costs less than another read of the weights.
  void AddEmbeddingSlices(kernels::Queue& queue, int32_t depth) {
    PartialSums sums(2 * static_cast<size_t>(last_head_ - depth + 1));
    const auto slice = static_cast<size_t>(depth) + 1;
    for (size_t head = static_cast<size_t>(depth); head <= static_cast<size_t>(last_head_); ++head) {
      const HydraHead& weights = weights_.heads[head];
      sums.Add(weights.linear[slice], LevelRows(linear_[head], depth), kernels::MatmulMode::kAdd);
      sums.Add(weights.residual[slice], LevelRows(residual_[head], depth), kernels::MatmulMode::kAdd);
    }
    kernels::Queue own = workspaces_.QueueFor(queue);
    Workspace& workspace = workspaces_.Of(queue);
    kernels::Embed(own, base_->embedding, tokens_, workspace.embedded);
    kernels::MatmulInput& input = workspace.embedded_input.For(sums.weight());
    input.Load(own, workspace.embedded);
    kernels::Matmul(queue, input, sums.jobs());
  }

  // Drafted tokens from below the root down to `node`.
  void CollectPath(const tree::TokenTree& tree, tree::NodeId node) {
    path_.clear();
    for (tree::NodeId n = node; n > 0; n = tree.topology.parent()[static_cast<size_t>(n)]) {
      path_.push_back(tree.tokens[static_cast<size_t>(n)]);
    }
    std::reverse(path_.begin(), path_.end());
  }

  HydraWeights weights_;
  std::unique_ptr<PrefixLayer> prefix_;
  const model::ModelWeights* base_;
  kernels::Queue* queue_;
  HeadRunner runner_;
  std::vector<Expanded> expanded_;
  std::vector<int32_t> level_begin_;            // [levels + 1] into expanded_
  std::vector<std::vector<int32_t>> index_of_;  // per sequence and node: its Expanded, or -1
  std::vector<Matrix> linear_, residual_;       // [K] of [expanded nodes, D]: partial sums
  int32_t last_head_ = 0;                       // of the level at hand
  std::vector<int32_t> tokens_;
  kernels::Workspaces<Workspace> workspaces_;
  Matrix hidden_;  // [roots that have children, D]
  CandidateRanker ranker_;
  std::vector<int32_t> path_;
};

}  // namespace

std::unique_ptr<Drafter> MakeHydra(HydraWeights weights, const model::ModelWeights& base, kernels::Queue* queue) {
  return std::make_unique<Hydra>(std::move(weights), base, queue);
}

}  // namespace hydrant::draft
