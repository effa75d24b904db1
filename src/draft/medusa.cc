// SPDX-License-Identifier: Apache-2.0
#include "draft/medusa.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <deque>
#include <string>
#include <utility>

#include "base/check.h"
#include "checkpoint/head_names.h"
#include "draft/candidates.h"
#include "draft/head_stack.h"
#include "hydrant/error.h"
#include "tree/operations.h"

namespace hydrant::draft {
namespace {

struct LastHidden : DraftState {
  std::vector<float> hidden;  // [D]
};

struct Heads {
  HeadsInfo info;
  std::unique_ptr<checkpoint::TensorSource> tensors;
  std::vector<Head> heads;         // [K]
  std::vector<int32_t> token_map;  // [V'], row j of an lm head is the logit of token_map[j]; empty = identity
  uint64_t bytes = 0;
};

// Reads an i64 (or i32) token map and checks that every id is a token and appears once.
std::vector<int32_t> ReadTokenMap(const checkpoint::TensorSource& tensors, const std::string& name,
                                  int64_t vocab_size) {
  const checkpoint::StoredTensor* stored = tensors.Find(name);
  HYDRANT_CHECK(stored != nullptr);
  const TensorView& view = stored->view;
  if ((view.dtype != DType::kI64 && view.dtype != DType::kI32) || view.shape.size() != 1 || view.shape[0] < 1 ||
      view.shape[0] > vocab_size) {
    throw FileError(stored->file, "tensor '" + name + "' is " + NameOf(view.dtype) + " " + ShapeString(view.shape) +
                                      ", expected integers [1 .. " + std::to_string(vocab_size) + "] (vocab_size)");
  }
  std::vector<int32_t> map(static_cast<size_t>(view.shape[0]));
  std::vector<bool> seen(static_cast<size_t>(vocab_size), false);
  for (size_t j = 0; j < map.size(); ++j) {
    int64_t id = 0;
    if (view.dtype == DType::kI64) {
      std::memcpy(&id, view.data + 8 * j, 8);
    } else {
      int32_t narrow = 0;
      std::memcpy(&narrow, view.data + 4 * j, 4);
      id = narrow;
    }
    if (id < 0 || id >= vocab_size || seen[static_cast<size_t>(id)]) {
      throw FileError(stored->file, "tensor '" + name + "' maps row " + std::to_string(j) + " to token " +
                                        std::to_string(id) + ", expected each token of 0 .. " +
                                        std::to_string(vocab_size - 1) + " at most once");
    }
    seen[static_cast<size_t>(id)] = true;
    map[j] = static_cast<int32_t>(id);
  }
  return map;
}

Heads LoadHeads(HeadsFile file, const model::ModelWeights& base) {
  const int64_t hidden = base.config.hidden_size;
  const int64_t vocab = base.config.vocab_size;
  Heads loaded;
  checkpoint::TableLoader loader(*file.tensors, base.config.file);
  loader.IgnoreIf([](const std::string& name) { return !checkpoint::IsHeadTensor(name); });
  int64_t rows = vocab;
  if (!file.names.token_map.empty()) {
    loaded.token_map = ReadTokenMap(*file.tensors, file.names.token_map, vocab);
    rows = static_cast<int64_t>(loaded.token_map.size());
    loader.Ignore(file.names.token_map);
  }
  if (file.info.kind == HeadKind::kHydraMlp) loader.Ignore("input_embed_fn.weight");
  for (int32_t h = 0; h < file.info.num_heads; ++h) {
    Head head;
    head.blocks = TakeBlocks(loader, file, hidden, h, 0);
    if (file.info.own_lm_heads || file.info.shared_lm_head) {
      checkpoint::TensorRow row;
      row.name = file.names.lm_head(h) + ".weight";
      row.shape = {{rows, file.names.token_map.empty() ? "vocab_size" : "rows of the token map"},
                   {hidden, "hidden_size"}};
      row.shard = checkpoint::ShardAxis::kVocabulary;
      head.lm_head = TakeLinear(loader, row, file.info.lm_head_bias);
    } else {
      head.lm_head = base.lm_head;
    }
    loaded.heads.push_back(std::move(head));
  }
  loader.Finish();
  loaded.bytes = loader.bytes_taken();
  loaded.info = file.info;
  loaded.tensors = std::move(file.tensors);
  return loaded;
}

class IndependentHeads : public Drafter {
 public:
  IndependentHeads(Heads heads, const model::ModelWeights& base, kernels::Queue* queue)
      : heads_(std::move(heads)),
        hidden_size_(base.config.hidden_size),
        vocab_size_(base.config.vocab_size),
        queue_(queue) {
    for (const Head& head : heads_.heads) runner_.Uses(head);
    for (size_t h = 0; h < heads_.heads.size(); ++h) rankers_.emplace_back(base.config.vocab_size, heads_.token_map);
  }

  const char* name() const override { return heads_.info.name.c_str(); }
  int32_t max_depth() const override { return heads_.info.num_heads; }
  int64_t hidden_layer_offset() const override { return heads_.info.hidden_layer_offset; }
  uint64_t weight_bytes() const override { return heads_.bytes; }

  std::unique_ptr<DraftState> NewState(int32_t /*max_positions*/) const override {
    return std::make_unique<LastHidden>();
  }

  void Absorb(std::span<AbsorbInput> inputs) override {
    for (const AbsorbInput& input : inputs) {
      const float* last = input.hidden.row(input.hidden.rows - 1);
      static_cast<LastHidden*>(input.state)->hidden.assign(last, last + hidden_size_);
    }
  }

  void Propose(std::span<ProposeInput> inputs) override {
    int32_t deepest = 0;
    for (const ProposeInput& input : inputs) deepest = std::max(deepest, input.tree->topology.max_depth());
    HYDRANT_CHECK(deepest <= max_depth());
    // Sequences with shallower trees are computed along: rows cost next to nothing, another read of a head does.
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
        ranker.Add(input, static_cast<int64_t>(input.output.size()) + head, k);
      }
    }
    RunHeads(deepest);
    for (size_t i = 0; i < inputs.size(); ++i) {
      for (int32_t depth = 0; depth < inputs[i].tree->topology.max_depth(); ++depth) {
        FillLevel(inputs[i], depth, static_cast<int64_t>(i));
      }
    }
  }

  void HeadLogits(DraftState& state, int32_t /*root*/, std::span<const int32_t> /*path*/, Matrix& out) override {
    out.Resize(max_depth(), vocab_size_);
    x_.Resize(1, hidden_size_);
    std::copy_n(static_cast<LastHidden&>(state).hidden.data(), hidden_size_, x_.row(0));
    for (CandidateRanker& ranker : rankers_) ranker.Start(/*rank_in_head=*/false);
    RunHeads(max_depth());
    for (int32_t head = 0; head < max_depth(); ++head) {
      const std::span<const float> row = rankers_[static_cast<size_t>(head)].Logits(0);
      std::copy(row.begin(), row.end(), out.row(head));
    }
  }

 private:
  // Heads 0 .. count - 1 over the rows of x_.
  void RunHeads(int32_t count) {
    runner_.Reserve(*queue_->table, x_.rows(), hidden_size_);
    outputs_.clear();
    for (size_t h = 0; h < static_cast<size_t>(count); ++h) {
      const int64_t width = heads_.heads[h].lm_head.outputs();
      outputs_.push_back(rankers_[h].Output(queue_->pool->num_threads(), x_.rows(), width));
    }
    kernels::Region(*queue_, [&](kernels::Queue& queue) {
      for (size_t h = 0; h < outputs_.size(); ++h) runner_.Run(queue, heads_.heads[h], x_, {}, outputs_[h]);
    });
  }

  void FillLevel(ProposeInput& input, int32_t depth, int64_t row) {
    const tree::Topology& topology = input.tree->topology;
    const std::span<const int32_t> candidates = rankers_[static_cast<size_t>(depth)].Candidates(row, {});
    for (tree::NodeId node = topology.level_begin(depth); node < topology.level_begin(depth + 1); ++node) {
      const auto n = static_cast<size_t>(node);
      tree::FillChildren(topology.first_child()[n], topology.num_children()[n], candidates.data(),
                         input.tree->tokens.data());
    }
  }

  Heads heads_;
  int64_t hidden_size_, vocab_size_;
  kernels::Queue* queue_;
  HeadRunner runner_;
  Matrix x_;                             // [S, D]
  std::deque<CandidateRanker> rankers_;  // [K]
  std::vector<HeadOutput> outputs_;
};

}  // namespace

std::unique_ptr<Drafter> MakeIndependentHeads(HeadsFile file, const model::ModelWeights& base, kernels::Queue* queue) {
  return std::make_unique<IndependentHeads>(LoadHeads(std::move(file), base), base, queue);
}

}  // namespace hydrant::draft
