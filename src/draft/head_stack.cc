// SPDX-License-Identifier: Apache-2.0
#include "draft/head_stack.h"

#include <cstring>
#include <string>

#include "hydrant/error.h"

namespace hydrant::draft {
namespace {

// Multiplications of a low-bit block that a thread does by itself. (Embedded model, AMD Zen 4, two threads that share a
// cache: levels of four rows in w8a8 .016 ms alone, .014 together; in bf16 .071 and .059, of one row .034 and .029.)
constexpr int64_t kMostAlone = int64_t{1} << 17;

bool SameBytes(const TensorView& a, const TensorView& b) {
  if (a.dtype != b.dtype || a.shape != b.shape) return false;
  return a.data == b.data || std::memcmp(a.data, b.data, a.num_bytes()) == 0;
}

std::vector<float> TakeBias(checkpoint::TableLoader& loader, const checkpoint::TensorRow& weight, bool optional) {
  checkpoint::TensorRow row = weight;
  row.name.replace(row.name.size() - 6, 6, "bias");  // "….weight"
  if (!row.tied_to.empty()) row.tied_to.replace(row.tied_to.size() - 6, 6, "bias");
  row.shape.resize(1);
  row.note.clear();
  row.shard = weight.shard == checkpoint::ShardAxis::kInputs ? checkpoint::ShardAxis::kReplicated : weight.shard;
  if (optional) row.presence = checkpoint::Presence::kOptional;
  const TensorView view = loader.Take(row);
  return view.empty() ? std::vector<float>() : ToFloats(view);
}

}  // namespace

model::Linear TakeLinear(checkpoint::TableLoader& loader, const checkpoint::TensorRow& weight, bool bias,
                         bool bias_optional) {
  model::Linear linear = model::TakeLinear(loader, weight);
  if (bias) linear.bias = TakeBias(loader, weight, bias_optional);
  return linear;
}

std::vector<model::Linear> TakeSlices(checkpoint::TableLoader& loader, const checkpoint::TensorRow& weight,
                                      int64_t count) {
  std::vector<model::Linear> slices = model::TakeLinearSlices(loader, weight, count);
  slices.front().bias = TakeBias(loader, weight, false);
  return slices;
}

std::vector<model::Linear> TakeBlocks(checkpoint::TableLoader& loader, const HeadsFile& file, int64_t hidden_size,
                                      int32_t head, int32_t first_layer) {
  std::vector<model::Linear> blocks;
  std::string absent;
  bool differ = false;
  for (int32_t layer = first_layer; layer < file.info.num_layers; ++layer) {
    checkpoint::TensorRow row;
    row.name = file.names.block(head, layer) + ".weight";
    row.shape = {{hidden_size, "hidden_size"}, {hidden_size, "hidden_size"}};
    if (file.info.kind == HeadKind::kHydraMlp && !file.info.sequentially_dependent) {
      row.note = "ungrounded heads see the hidden state alone";
    }
    if (layer > first_layer) row.tied_to = file.names.block(head, first_layer) + ".weight";
    blocks.push_back(TakeLinear(loader, row, true, file.info.kind == HeadKind::kMedusa && !file.info.block_bias));
    model::Linear& block = blocks.back();
    if (loader.source().Find(row.name) == nullptr && absent.empty()) absent = row.name;
    if (layer > first_layer && SameBytes(block.weight, blocks.front().weight)) block.weight = blocks.front().weight;
    differ = differ || (!block.packed && block.weight.data != blocks.front().weight.data);
  }
  if (differ && !absent.empty()) {
    throw FileError(file.info.weights_file,
                    "tensor '" + absent + "' is missing: the blocks of this head differ, so none stands for another");
  }
  return blocks;
}

uint64_t BytesOf(const Head& head) {
  uint64_t bytes = head.lm_head.bytes();
  for (const model::Linear& block : head.blocks) bytes += block.bytes();
  return bytes;
}

int32_t WantedLayer(const HeadsInfo& info, const model::ModelConfig& base) {
  if (info.hidden_layer_offset == 0) return model::kAfterFinalNorm;
  return static_cast<int32_t>(base.num_layers - info.hidden_layer_offset);
}

bool BetterAlone(bool floats, int64_t rows, int64_t hidden_size) {
  return !floats && rows * hidden_size * hidden_size <= kMostAlone;
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
  for (Workspace& workspace : workspaces_.Choose(BetterAlone(floats, rows, hidden_size))) {
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
    kernels::Sync(own);  // who has come this far may write the rows of the next head
  }
}

}  // namespace hydrant::draft
