// SPDX-License-Identifier: Apache-2.0
#include "draft/heads/head_stack.h"

#include "kernels/ops/small_work.h"

namespace hydrant::draft {

uint64_t BytesOf(const Head& head) {
  uint64_t bytes = head.lm_head.bytes();
  for (const model::Linear& block : head.blocks) bytes += block.bytes();
  return bytes;
}

int32_t WantedLayer(const HeadsInfo& info, const model::ModelConfig& base) {
  if (info.hidden_layer_offset == 0) return model::kAfterFinalNorm;
  return static_cast<int32_t>(base.num_layers - info.hidden_layer_offset);
}

HeadRunner::HeadRunner(const kernels::Queue* queue) : table_(queue->table), workspaces_(queue->pool->num_threads()) {}

void HeadRunner::Uses(const Head& head) {
  for (Workspace& workspace : workspaces_.all()) {
    for (const model::Linear& block : head.blocks) workspace.input.Uses(block);
    workspace.input.Uses(head.lm_head);
  }
}

void HeadRunner::Reserve(int64_t rows, int64_t hidden_size) {
  const bool floats = workspaces_.all().front().input.UsesFloats();
  for (Workspace& workspace : workspaces_.Choose(kernels::IsSquareAlone(floats, rows, hidden_size))) {
    workspace.input.Reserve(*table_, rows, hidden_size);
    workspace.x.Resize(rows, hidden_size);
    workspace.linear.Resize(rows, hidden_size);
  }
}

void HeadRunner::Run(kernels::Queue& queue, const Head& head, kernels::ConstRows residual, kernels::ConstRows linear,
                     const HeadOutput& output) {
  Workspace& workspace = workspaces_.Of(queue);
  kernels::Queue own = workspaces_.QueueFor(queue);
  // Each product's input is made in the form that its weight reads.
  const model::Linear* layer = head.blocks.empty() ? &head.lm_head : head.blocks.data();
  kernels::Weight weight = layer->view();
  kernels::ConstRows x = residual;
  if (linear.data != nullptr) {
    workspace.input.For(weight).LoadResidualSilu(own, residual, linear, workspace.x);
    x = workspace.x;
  } else {
    workspace.input.For(weight).Load(own, x);
  }
  for (size_t i = 0; i < head.blocks.size(); ++i) {
    const kernels::MatmulJob job{&weight, layer->bias, workspace.linear};
    kernels::Matmul(own, workspace.input.For(weight), std::span(&job, 1));
    layer = i + 1 < head.blocks.size() ? &head.blocks[i + 1] : &head.lm_head;
    weight = layer->view();
    workspace.input.For(weight).LoadResidualSilu(own, x, workspace.linear, workspace.x);
    x = workspace.x;
  }
  const kernels::MatmulJob job{&weight, layer->bias, output.logits};
  if (output.rules.empty()) {
    kernels::Matmul(queue, workspace.input.For(weight), std::span(&job, 1));
  } else {
    kernels::MatmulTopK(queue, workspace.input.For(weight), job, output.token_map, output.rules, *output.best);
    kernels::Sync(own);  // behind this, a thread may write the rows of the next head
  }
}

}  // namespace hydrant::draft
