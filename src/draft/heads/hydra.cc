// SPDX-License-Identifier: Apache-2.0
#include "draft/heads/hydra.h"

#include <algorithm>
#include <string>
#include <utility>
#include <vector>

#include "base/check.h"
#include "draft/candidates.h"
#include "draft/growing_trees.h"
#include "draft/heads/head_stack.h"
#include "draft/heads/hydra_weights.h"
#include "draft/heads/prefix_layer.h"
#include "kernels/ops/small_work.h"

namespace hydrant::draft {
namespace {

struct HydraState : DraftState {
  std::vector<float> hidden;  // [D], what the heads see of the text so far
  int32_t num_positions = 0;  // positions that the prefix layer has seen
};

// One node that has children, somewhere in the call's trees.
struct Expanded {
  int32_t input = 0;  // which sequence
  tree::NodeId node = 0;
  int32_t parent = -1;  // index in expanded_ of its parent, -1 for a root
};

// The products of a head's first block, for the nodes of one depth.
struct FirstBlock {
  Matrix linear, residual;  // [the depth's nodes, D]
};

// The products with slices of first blocks that one op computes. Each thread makes a list of its own, on its own cache
// lines: a common list would have to travel from core to core, line by line.
struct alignas(64) SliceJobs {
  std::vector<kernels::Weight> weights;
  std::vector<kernels::MatmulJob> jobs;  // point into `weights`
  std::vector<kernels::InputJobs> groups;

  // Room for all slices of `heads` heads.
  void Reserve(size_t heads) {
    weights.reserve(2 * heads * (heads + 1));
    jobs.reserve(weights.capacity());
  }
  void Clear() {
    weights.clear();
    jobs.clear();
    groups.clear();
  }
  void Add(const model::Linear& linear, kernels::Rows out, size_t slice) {
    HYDRANT_CHECK(weights.size() < weights.capacity());
    weights.push_back(linear.view());
    jobs.push_back(
        {&weights.back(), linear.bias, out, slice == 0 ? kernels::MatmulMode::kStore : kernels::MatmulMode::kAdd});
  }
};

class Hydra : public Drafter {
 public:
  Hydra(HydraWeights weights, const model::ModelWeights& base, kernels::Queue* queue)
      : weights_(std::move(weights)),
        base_(&base),
        queue_(queue),
        runner_(queue),
        workspaces_(queue->pool->num_threads()),
        ranker_(base.config.vocab_size, weights_.heads.front().rest.lm_head.outputs(), weights_.token_map) {
    if (weights_.prefix) prefix_ = std::make_unique<PrefixLayer>(std::move(*weights_.prefix), queue);
    for (Workspace& workspace : workspaces_.all()) workspace.inputs.resize(weights_.heads.size() + 1);
    for (const HydraHead& head : weights_.heads) {
      runner_.Uses(head.rest);
      for (const auto* part : {&head.linear, &head.residual}) {
        for (Workspace& workspace : workspaces_.all()) {
          for (size_t slice = 0; slice < part->size(); ++slice) workspace.inputs[slice].Uses((*part)[slice]);
        }
      }
    }
    sums_.resize(weights_.heads.size());
    for (std::vector<FirstBlock>& levels : sums_) levels.resize(weights_.heads.size());
    slice_jobs_.resize(static_cast<size_t>(queue->pool->num_threads()));
    for (SliceJobs& own : slice_jobs_) own.Reserve(weights_.heads.size());
  }

  const char* name() const override { return weights_.info.name.c_str(); }
  int32_t max_depth() const override { return weights_.info.num_heads; }
  std::vector<int32_t> WantedLayers() const override { return {WantedLayer(weights_.info, base_->config)}; }
  std::vector<kv::LayerShape> KvLayers() const override {
    return prefix_ ? std::vector<kv::LayerShape>{prefix_->kv_shape()} : std::vector<kv::LayerShape>{};
  }
  uint64_t weight_bytes() const override { return weights_.bytes; }
  // Heads of depths that are not reached are not read.
  uint64_t bytes_read() const override { return bytes_read_ + (prefix_ ? prefix_->bytes_read() : 0); }
  bool FillsShapes() const override { return true; }

  std::unique_ptr<DraftState> NewState(const GenerationRequest& /*request*/) const override {
    return std::make_unique<HydraState>();
  }

  int32_t Resume(DraftState& state, const DraftKv& kv, int32_t length) const override {
    if (!prefix_) return length;
    return static_cast<HydraState&>(state).num_positions = std::min(length, kv.drafted_length());
  }

  void Commit(std::span<const CommitInput> inputs) override {
    if (prefix_) return RunPrefix(inputs);
    for (const CommitInput& input : inputs) {
      const kernels::ConstRows& hidden = input.hidden.front();
      const float* last = hidden.row(hidden.rows - 1);
      static_cast<HydraState*>(input.state)->hidden.assign(last, last + hidden.cols);
    }
  }

  void Propose(std::span<ProposeInput> inputs) override {
    GrowingTrees::Plant(inputs);
    trees_.Start(inputs);
    RunLevels(inputs, /*rank_in_head=*/true, [&](const Expanded& node, int64_t row) {
      const auto input = static_cast<size_t>(node.input);
      CollectPath(*inputs[input].tree, node.node);
      const std::span<const int32_t> candidates = ranker_.Candidates(row, path_);
      trees_.Fill(input, node.node, candidates, ranker_.probabilities());
    });
    trees_.Finish();
  }

  void LogitsAlong(std::span<AlongInput> inputs) override {
    std::vector<tree::TokenTree> chains(inputs.size());
    std::vector<ProposeInput> proposals(inputs.size());
    for (size_t i = 0; i < inputs.size(); ++i) {
      // The chain has one node more than the path, so that the path's last token has a child and its logits are
      // computed. That node gets no token.
      chains[i].topology = chains_.Of(static_cast<int32_t>(inputs[i].tokens.size()));
      chains[i].tokens.assign(inputs[i].tokens.begin(), inputs[i].tokens.end());
      proposals[i].state = inputs[i].state;
      proposals[i].tree = &chains[i];
      inputs[i].logits->Resize(static_cast<int64_t>(inputs[i].tokens.size()), base_->config.vocab_size);
    }
    trees_.Start(proposals);
    RunLevels(proposals, /*rank_in_head=*/false, [&](const Expanded& node, int64_t row) {
      const std::span<const float> logits = ranker_.Logits(row);
      // In a chain a node's number is its depth.
      std::copy(logits.begin(), logits.end(), inputs[static_cast<size_t>(node.input)].logits->row(node.node));
    });
  }

 private:
  struct Workspace {
    std::vector<model::InputByKind> inputs;  // [K + 1], one per slice: the hidden rows, then the tokens of each depth
    Matrix embedded;                         // [level's nodes, D]
  };

  void RunPrefix(std::span<const CommitInput> inputs) {
    prefix_rows_.clear();
    for (const CommitInput& input : inputs) {
      auto& state = *static_cast<HydraState*>(input.state);
      prefix_rows_.push_back({.hidden = input.hidden.front(),
                              .first_position = state.num_positions,
                              .blocks = input.kv.table->blocks(),
                              .last = &state.hidden});
    }
    if (inputs.empty()) return;
    prefix_->Run(prefix_rows_, inputs.front().kv.layer(0));  // may be stopped: positions count only once it is done
    for (const CommitInput& input : inputs) {
      const auto count = static_cast<int32_t>(input.tokens.size());
      static_cast<HydraState*>(input.state)->num_positions += count;
      input.kv.AppendDrafted(count);
    }
  }

  // Runs the heads level by level over all expanded nodes of all trees. `fill(expanded, row)` sets the tokens of the
  // children of `expanded` from that row of the ranker, before the next level reads them.
  template <typename Fill>
  void RunLevels(std::span<ProposeInput> inputs, bool rank_in_head, Fill fill) {
    const int32_t levels = ListExpanded(inputs);
    for (int32_t depth = 0; depth < levels; ++depth) {
      if (!LeaveOut(depth)) return;
      if (depth == 0) GatherHidden(inputs);
      GatherTokens(inputs, depth);
      ChooseHeads(inputs, depth, levels);
      const HeadOutput output = GatherRows(inputs, depth, rank_in_head);
      kernels::Region(*queue_, [&](kernels::Queue& queue) {
        LoadInputs(queue, depth);
        MultiplySlices(queue, depth);
        const auto d = static_cast<size_t>(depth);
        runner_.Run(queue, weights_.heads[d].rest, sums_[d][d].residual, sums_[d][d].linear, output);
      });
      CountBytes(static_cast<size_t>(depth));
      for (int32_t r = 0; r < LevelRows(depth); ++r) {
        fill(expanded_[static_cast<size_t>(level_begin_[static_cast<size_t>(depth)] + r)], r);
      }
    }
  }

  // Counts the weights that a level's region has multiplied with.
  void CountBytes(size_t depth) {
    for (size_t h = depth; h <= last_head_; ++h) {
      for (size_t slice = first_slice_; slice < depth + 2; ++slice) {
        bytes_read_ += weights_.heads[h].linear[slice].bytes() + weights_.heads[h].residual[slice].bytes();
      }
    }
    bytes_read_ += BytesOf(weights_.heads[depth].rest);
  }

  // How many nodes of a depth are expanded.
  int32_t LevelRows(int32_t depth) const {
    return level_end_[static_cast<size_t>(depth)] - level_begin_[static_cast<size_t>(depth)];
  }

  // Sets expanded_ to every node that may be expanded (by depth, then sequence, then node), and level_begin_. Returns
  // the number of levels.
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
          expanded_.push_back({.input = static_cast<int32_t>(s), .node = node, .parent = parent});
        }
      }
      level_begin_.push_back(static_cast<int32_t>(expanded_.size()));
    }
    level_end_.resize(static_cast<size_t>(levels));
    place_.resize(expanded_.size());
    return levels;
  }

  // Leaves out the nodes of a level that are not expanded after all, because their trees have dropped them by now
  // (GrowingTrees). Moves the others to the front of the level. Returns false where none is left.
  bool LeaveOut(int32_t depth) {
    const int32_t begin = level_begin_[static_cast<size_t>(depth)];
    int32_t& end = level_end_[static_cast<size_t>(depth)];
    end = begin;
    for (int32_t e = begin; e < level_begin_[static_cast<size_t>(depth) + 1]; ++e) {
      Expanded node = expanded_[static_cast<size_t>(e)];
      if (!trees_.Expands(static_cast<size_t>(node.input), node.node)) continue;
      if (node.parent >= 0) node.parent = place_[static_cast<size_t>(node.parent)];
      place_[static_cast<size_t>(e)] = end;
      expanded_[static_cast<size_t>(end++)] = node;
    }
    return end > begin;
  }

  // Collects the hidden rows of the roots, and makes room in the workspaces.
  void GatherHidden(std::span<const ProposeInput> inputs) {
    const int64_t width = base_->config.hidden_size;
    hidden_.Resize(LevelRows(0), width);
    for (int32_t root = 0; root < LevelRows(0); ++root) {
      const ProposeInput& input = inputs[static_cast<size_t>(expanded_[static_cast<size_t>(root)].input)];
      std::copy_n(static_cast<HydraState*>(input.state)->hidden.data(), width, hidden_.row(root));
    }
    int32_t most = 0;  // rows of a level
    for (size_t d = 0; d + 1 < level_begin_.size(); ++d) most = std::max(most, level_begin_[d + 1] - level_begin_[d]);
    const bool floats = workspaces_.all().front().inputs.front().UsesFloats();
    for (Workspace& workspace : workspaces_.Choose(kernels::IsSquareAlone(floats, most, width))) {
      workspace.inputs.front().Reserve(*queue_->table, hidden_.rows(), width);
    }
  }

  // Before a level's region: collects its tokens, and makes room for its rows.
  void GatherTokens(std::span<const ProposeInput> inputs, int32_t depth) {
    const auto d = static_cast<size_t>(depth);
    tokens_.clear();
    for (int32_t e = level_begin_[d]; e < level_end_[d]; ++e) {
      const Expanded& node = expanded_[static_cast<size_t>(e)];
      tokens_.push_back(inputs[static_cast<size_t>(node.input)].tree->tokens[static_cast<size_t>(node.node)]);
    }
    const int64_t rows = LevelRows(depth), width = base_->config.hidden_size;
    for (Workspace& workspace : workspaces_.in_use()) {
      workspace.embedded.Resize(rows, width);
      workspace.inputs[d + 1].Reserve(*queue_->table, rows, width);
    }
    runner_.Reserve(rows, width);
  }

  // Chooses which heads multiply the slices up to this depth. Normally all heads from this depth on take the new slice
  // together. Where trees may lose nodes (min_probability), only this depth's head does, and takes all its slices, so
  // that no weight is read in vain. (All heads together is a little faster: 0.065 against 0.070 ms for the embedded
  // model's four heads and a chain.)
  void ChooseHeads(std::span<const ProposeInput> inputs, int32_t depth, int32_t levels) {
    const auto d = static_cast<size_t>(depth);
    const bool may_end =
        std::ranges::any_of(inputs, [](const ProposeInput& input) { return input.min_probability > 0; });
    last_head_ = may_end ? d : static_cast<size_t>(levels) - 1;
    first_slice_ = may_end || depth == 0 ? 0 : d + 1;
    for (size_t h = d; h <= last_head_; ++h) {
      for (size_t level = LevelOf(first_slice_); level <= d; ++level) {
        for (Matrix* sum : {&sums_[h][level].linear, &sums_[h][level].residual}) {
          sum->Resize(LevelRows(static_cast<int32_t>(level)), base_->config.hidden_size);
        }
      }
    }
  }

  // What the head of this depth shall output for its rows.
  HeadOutput GatherRows(std::span<const ProposeInput> inputs, int32_t depth, bool rank_in_head) {
    ranker_.Start(rank_in_head);
    const auto first = static_cast<size_t>(level_begin_[static_cast<size_t>(depth)]);
    const auto last = static_cast<size_t>(level_end_[static_cast<size_t>(depth)]);
    for (size_t e = first; e < last; ++e) {
      const ProposeInput& input = inputs[static_cast<size_t>(expanded_[e].input)];
      const int32_t k = input.tree->topology.num_children()[static_cast<size_t>(expanded_[e].node)];
      ranker_.Add(input, static_cast<int64_t>(input.output.size()) + depth, k, input.min_probability > 0);
    }
    return ranker_.Output(queue_->pool->num_threads(), static_cast<int64_t>(last - first),
                          weights_.heads[static_cast<size_t>(depth)].rest.lm_head.outputs());
  }

  // Makes this level's rows ready to be multiplied with slices. The rows of earlier levels are ready already.
  void LoadInputs(kernels::Queue& queue, int32_t depth) {
    const auto d = static_cast<size_t>(depth);
    const kernels::Weight weight = weights_.heads[d].linear.front().view();
    kernels::Queue own = workspaces_.QueueFor(queue);
    Workspace& workspace = workspaces_.Of(queue);
    if (depth == 0) workspace.inputs.front().For(weight).Load(own, hidden_);
    kernels::Embed(own, base_->embedding, tokens_, workspace.embedded);
    workspace.inputs[d + 1].For(weight).Load(own, workspace.embedded);
  }

  // Head i reads concat[hidden, tokens of the path] in its first block. The product is made slice by slice, so that
  // what the tokens of a path add is computed once for all nodes below them. The heads from this depth's to last_head_
  // get the slices that they lack.
  void MultiplySlices(kernels::Queue& queue, int32_t depth) {
    SliceJobs& own = slice_jobs_[static_cast<size_t>(queue.thread_idx)];
    own.Clear();
    const auto first_head = static_cast<size_t>(depth);
    for (size_t slice = first_slice_; slice < first_head + 2; ++slice) {
      const size_t first_job = own.jobs.size();
      for (size_t h = first_head; h <= last_head_; ++h) {
        FirstBlock& sums = sums_[h][LevelOf(slice)];
        own.Add(weights_.heads[h].linear[slice], sums.linear, slice);
        own.Add(weights_.heads[h].residual[slice], sums.residual, slice);
      }
      own.groups.push_back(
          {&workspaces_.Of(queue).inputs[slice].For(own.weights.front()), std::span(own.jobs).subspan(first_job)});
    }
    kernels::MatmulInOrder(queue, own.groups, [&](size_t group, size_t j, int64_t first, int64_t columns) {
      const size_t slice = first_slice_ + group;
      if (slice < 2) return;
      const auto part = j % 2 == 0 ? &FirstBlock::linear : &FirstBlock::residual;
      StartFromParents(sums_[first_head + j / 2], part, LevelOf(slice), first, columns);
    });
  }

  // The level whose nodes have rows in a slice. Slice 0, the hidden state, has a row for each root; so has slice 1, the
  // root's token.
  static size_t LevelOf(size_t slice) { return std::max(slice, size_t{1}) - 1; }

  // Sets some columns of a level's sums to those of each node's parent.
  void StartFromParents(std::vector<FirstBlock>& sums, Matrix FirstBlock::*part, size_t level, int64_t first,
                        int64_t columns) const {
    for (int32_t e = level_begin_[level]; e < level_end_[level]; ++e) {
      const int32_t parent = expanded_[static_cast<size_t>(e)].parent - level_begin_[level - 1];
      std::copy_n((sums[level - 1].*part).row(parent) + first, columns,
                  (sums[level].*part).row(e - level_begin_[level]) + first);
    }
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
  std::vector<PrefixInput> prefix_rows_;
  Chains chains_;
  const model::ModelWeights* base_;
  kernels::Queue* queue_;
  HeadRunner runner_;
  std::vector<Expanded> expanded_;
  std::vector<int32_t> level_begin_;            // [levels + 1] into expanded_
  std::vector<int32_t> level_end_;              // [levels]: end of the nodes that LeaveOut has kept
  std::vector<int32_t> place_;                  // [all nodes that may be expanded]: where LeaveOut moved them
  std::vector<std::vector<int32_t>> index_of_;  // per sequence and node: its Expanded, or -1
  std::vector<std::vector<FirstBlock>> sums_;   // [K] of [K], by head and depth
  size_t first_slice_ = 0, last_head_ = 0;      // a level multiplies the slices from the first on, up to this head
  uint64_t bytes_read_ = 0;
  std::vector<SliceJobs> slice_jobs_;  // [threads]
  std::vector<int32_t> tokens_;
  kernels::Workspaces<Workspace> workspaces_;
  Matrix hidden_;  // [roots that have children, D]
  CandidateRanker ranker_;
  GrowingTrees trees_;
  std::vector<int32_t> path_;
};

}  // namespace

std::unique_ptr<Drafter> MakeHydra(HydraWeights weights, const model::ModelWeights& base, kernels::Queue* queue) {
  return std::make_unique<Hydra>(std::move(weights), base, queue);
}

}  // namespace hydrant::draft
