// SPDX-License-Identifier: Apache-2.0
#include "eval/tree_pass.h"

#include <algorithm>
#include <random>

#include "base/check.h"
#include "eval/random_weights.h"

namespace hydrant::eval {

TreePass::TreePass(kernels::Queue* queue, const model::ModelWeights* weights, DType kv_type, int context, int max_rows)
    : queue_(queue),
      weights_(weights),
      context_(context),
      decoder_(queue, weights),
      pool_(model::KvShapeFor(weights->config, kv_type), (context + max_rows) / kernels::kBlockPositions + 1),
      table_(&pool_),
      forward_(&decoder_, &pool_) {
  CheckMemory(pool_.num_bytes(), "keys and values",
              "take a smaller StepOptions::context, or EngineOptions::kv_type bf16");
  const bool fits = table_.Reserve(context + max_rows);
  HYDRANT_CHECK(fits);
  FillContext();
}

const model::ForwardOutput& TreePass::Tree(const std::vector<int32_t>& nodes) {
  if (nodes != nodes_) Place(nodes);
  batch_.Clear();
  for (const std::vector<int32_t>& path : paths_) {
    slots_.clear();
    for (const int32_t node : path) slots_.push_back(RowOf(node));
    batch_.AddTreeRow(TokenOf(path.back()), context_, slots_, table_.blocks());
    batch_.WantLogits();
  }
  batch_.Seal();
  decoder_.Forward(batch_, pool_, output_);
  return output_;
}

// Places the nodes in preorder (the order of their paths as words), as the engine does.
void TreePass::Place(const std::vector<int32_t>& nodes) {
  nodes_ = nodes;
  paths_.clear();
  for (const int32_t node : nodes) paths_.push_back(PathToNode(node));
  std::sort(paths_.begin(), paths_.end());
  rows_.assign(static_cast<size_t>(*std::max_element(nodes.begin(), nodes.end())) + 1, 0);
  for (size_t i = 0; i < paths_.size(); ++i) rows_[static_cast<size_t>(paths_[i].back())] = static_cast<int32_t>(i);
}

void TreePass::Prefill(int tokens, int chunk) {
  std::vector<int32_t> ids(static_cast<size_t>(tokens));
  for (int i = 0; i < tokens; ++i) ids[static_cast<size_t>(i)] = TokenOf(i);
  forward_.Run(ids, table_, chunk, tokens - 1, {});
}

void TreePass::FillContext() {
  if (context_ == 0) return;
  const model::ModelConfig& config = weights_->config;
  Matrix k(context_, config.num_kv_heads * config.head_dim), v(context_, k.cols());
  std::vector<kernels::RowKv> rows;
  for (int32_t p = 0; p < context_; ++p) {
    rows.push_back({.blocks = table_.blocks(), .path = nullptr, .position = p, .identity_length = p + 1, .slot = p});
  }
  std::minstd_rand random(1);
  for (int64_t layer = 0; layer < config.num_layers; ++layer) {
    for (Matrix* matrix : {&k, &v}) {
      for (int64_t r = 0; r < context_; ++r) {
        for (float& value : matrix->row_span(r)) value = 1e-9F * static_cast<float>(random()) - 1.0F;
      }
    }
    kernels::StoreKv(*queue_, k, v, rows, pool_.layer(layer));
  }
}

std::vector<int32_t> PathToNode(int32_t node) {
  std::vector<int32_t> path;
  for (int32_t n = node; n > 0; n = (n - 1) / 2) path.push_back(n);
  path.push_back(0);
  std::reverse(path.begin(), path.end());
  return path;
}

std::vector<int32_t> AllNodes(int rows) {
  std::vector<int32_t> nodes(static_cast<size_t>(rows));
  for (int i = 0; i < rows; ++i) nodes[static_cast<size_t>(i)] = i;
  return nodes;
}

}  // namespace hydrant::eval
