// SPDX-License-Identifier: Apache-2.0
#include "model/layer.h"

#include <algorithm>
#include <cmath>

#include "base/check.h"
#include "kernels/ops/matmul_attend.h"
#include "kernels/ops/small_work.h"

namespace hydrant::model {

void InputByKind::Uses(const Linear& linear) { used_[static_cast<size_t>(linear.view().kind)] = true; }

void InputByKind::Reserve(const kernels::KernelTable& table, int64_t rows, int64_t inputs) {
  for (size_t kind = 0; kind < inputs_.size(); ++kind) {
    if (used_[kind]) inputs_[kind].Reserve(table, static_cast<kernels::InputKind>(kind), rows, inputs);
  }
}

LayerRunner::LayerRunner(kernels::Queue* queue, const ModelConfig& config, std::span<const LayerWeights> layers,
                         int64_t attention_width)
    : table_(queue->table),
      num_threads_(queue->pool->num_threads()),
      config_(config),
      attention_width_(attention_width),
      workspaces_(num_threads_),
      inner_workspaces_(num_threads_) {
  for (Workspace& workspace : workspaces_.all()) {
    for (const LayerWeights& layer : layers) {
      for (const Linear* linear : {&layer.q, &layer.k, &layer.v}) {
        (attention_width > 0 ? workspace.attention : workspace.hidden).Uses(*linear);
      }
      for (const Linear* linear : {&layer.gate, &layer.up}) workspace.hidden.Uses(*linear);
      for (const Linear* linear : {&layer.gate, &layer.up}) workspace.last.Uses(*linear);
      workspace.context.Uses(layer.o);
    }
  }
  for (InnerWorkspace& workspace : inner_workspaces_.all()) {
    for (const LayerWeights& layer : layers) workspace.inner.Uses(layer.down);
  }
}

void LayerRunner::Reserve(std::span<const kernels::RowKv> kv_rows, int64_t outputs) {
  const kernels::AttentionOptions options{.num_heads = config_.num_heads,
                                          .scale = 1.0F / std::sqrt(static_cast<float>(config_.head_dim)),
                                          .window = config_.sliding_window};
  const auto rows = static_cast<int64_t>(kv_rows.size());
  HYDRANT_CHECK(outputs > 0 && outputs <= rows);
  kv_rows_ = kv_rows;
  num_inner_ = outputs;
  plan_.Make(kv_rows.last(static_cast<size_t>(outputs)), options, config_.num_kv_heads, num_threads_);
  const int64_t q_width = config_.num_heads * config_.head_dim;
  const int64_t kv_width = config_.num_kv_heads * config_.head_dim;
  for (Matrix* half : {&rotation_.cos, &rotation_.sin}) half->Resize(rows, config_.head_dim / 2);
  q_.Resize(rows, q_width);
  for (Matrix* narrow : {&k_, &v_}) narrow->Resize(rows, kv_width);
  context_.Resize(outputs, q_width);
  inner_.Resize(outputs, config_.intermediate_size);
  up_.Resize(kernels::IsInnerWhole(outputs, config_.intermediate_size) ? outputs : 0, config_.intermediate_size);
  for (Workspace& workspace : workspaces_.Choose(kernels::AreInputsAlone(rows, config_.hidden_size))) {
    workspace.normed.Resize(workspace.hidden.UsesFloats() ? rows : 0, config_.hidden_size);
    workspace.hidden.Reserve(*table_, rows, config_.hidden_size);
    if (attention_width_ > 0) workspace.attention.Reserve(*table_, rows, attention_width_);
    if (outputs < rows) workspace.last.Reserve(*table_, outputs, config_.hidden_size);
    workspace.context.Reserve(*table_, outputs, q_width);
  }
  for (InnerWorkspace& workspace : inner_workspaces_.Choose(outputs == 1)) {
    workspace.inner.Reserve(*table_, outputs, config_.intermediate_size);
    workspace.products.Resize(inner_workspaces_.alone() ? outputs : 0, config_.intermediate_size);
  }
}

void LayerRunner::Rotate(kernels::Queue& queue, std::span<const int32_t> positions, std::span<const float> inv_freq) {
  kernels::RopeTable(queue, positions, inv_freq, rotation_.cos, rotation_.sin);
}

void LayerRunner::Run(kernels::Queue& queue, const LayerWeights& weights, const kernels::KvLayer& kv, kernels::Rows x,
                      kernels::ConstRows attention_input) {
  Attend(queue, weights, kv, x, attention_input);
  FeedForward(queue, weights, x.Part(x.rows - num_inner_, num_inner_));
}

void LayerRunner::Attend(kernels::Queue& queue, const LayerWeights& weights, const kernels::KvLayer& kv,
                         kernels::Rows x, kernels::ConstRows attention_input) {
  const kernels::Weight q = weights.q.view(), k = weights.k.view(), v = weights.v.view(), o = weights.o.view();
  Workspace& workspace = workspaces_.Of(queue);
  kernels::Queue own = workspaces_.QueueFor(queue);
  kernels::MatmulInput& normed = (attention_width_ > 0 ? workspace.attention : workspace.hidden).For(q);
  if (attention_width_ > 0) {
    normed.Load(own, attention_input);
  } else {
    normed.LoadNormed(own, x, weights.input_norm, config_.rms_norm_eps, workspace.normed);
  }
  const kernels::QkvJobs jobs{{&q, weights.q.bias, q_}, {&k, weights.k.bias, k_}, {&v, weights.v.bias, v_}};
  const int64_t first = x.rows - num_inner_;
  const auto rotation = [&](int64_t begin, int64_t count) {
    return kernels::HeadRotation{{weights.q_norm, weights.k_norm, config_.rms_norm_eps},
                                 kernels::ConstRows(rotation_.cos).Part(begin, count),
                                 kernels::ConstRows(rotation_.sin).Part(begin, count)};
  };
  if (first == 0 && kernels::CanMatmulAttend(queue, jobs, kv)) {
    kernels::MatmulAttend(queue, normed, jobs, rotation(0, x.rows), plan_, kv, context_);
  } else {
    kernels::MatmulQkv(queue, normed, jobs, plan_, kv);
    const kernels::Rows queries(q_), keys(k_), values(v_);
    if (first > 0) {
      kernels::RotateStore(queue, keys.Part(0, first), values.Part(0, first), rotation(0, first),
                           kv_rows_.first(static_cast<size_t>(first)), kv);
    }
    kernels::RotateStoreAttend(queue, queries.Part(first, num_inner_), keys.Part(first, num_inner_),
                               values.Part(first, num_inner_), rotation(first, num_inner_), plan_, kv, context_);
  }
  kernels::MatmulInput& context = workspace.context.For(o);
  context.Load(own, context_);
  const kernels::MatmulJob job{&o, weights.o.bias, x.Part(first, num_inner_), kernels::MatmulMode::kAdd};
  kernels::Matmul(queue, context, std::span(&job, 1));
}

void LayerRunner::FeedForward(kernels::Queue& queue, const LayerWeights& weights, kernels::Rows x) {
  const kernels::Weight gate = weights.gate.view(), up = weights.up.view(), down = weights.down.view();
  const bool all = num_inner_ == static_cast<int64_t>(kv_rows_.size());
  Workspace& workspace = workspaces_.Of(queue);
  kernels::Queue own = workspaces_.QueueFor(queue);
  kernels::MatmulInput& normed = (all ? workspace.hidden : workspace.last).For(gate);
  const int64_t kept = std::min(workspace.normed.rows(), num_inner_);
  normed.LoadNormed(own, x, weights.post_attention_norm, config_.rms_norm_eps,
                    kernels::Rows(workspace.normed).Part(0, kept));
  InnerWorkspace& inner_workspace = inner_workspaces_.Of(queue);
  kernels::Queue inner_own = inner_workspaces_.QueueFor(queue);
  kernels::MatmulInput& inner = inner_workspace.inner.For(down);
  const kernels::MatmulJob jobs[] = {{&gate, weights.gate.bias, inner_}, {&up, weights.up.bias, up_}};
  if (up_.rows() > 0) {
    kernels::Matmul(queue, normed, jobs);
    inner.LoadSiluMul(inner_own, inner_, up_, inner_workspaces_.alone() ? inner_workspace.products : inner_);
  } else {
    kernels::MatmulSiluMul(queue, normed, jobs[0], jobs[1], inner_);
    inner.Load(inner_own, inner_);
  }
  const kernels::MatmulJob job{&down, weights.down.bias, x, kernels::MatmulMode::kAdd};
  kernels::Matmul(queue, inner, std::span(&job, 1));
}

}  // namespace hydrant::model
