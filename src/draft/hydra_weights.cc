// SPDX-License-Identifier: Apache-2.0
#include "draft/hydra_weights.h"

#include <string>
#include <utility>

#include "draft/base_copies.h"

namespace hydrant::draft {
namespace {

checkpoint::TensorRow FirstBlockRow(const HeadsFile& file, int64_t hidden_size, int32_t head, const char* part) {
  std::string name = file.names.block(head, 0);  // "hydra_mlp.0.1.linear"
  name.replace(name.size() - 6, 6, part);
  checkpoint::TensorRow row;
  row.name = name + ".weight";
  const int64_t slices = head + 2;
  row.shape = {{hidden_size, "hidden_size"}, {slices * hidden_size, std::to_string(slices) + " * hidden_size"}};
  row.note = "head " + std::to_string(head) + " sees the hidden state and " +
             (head == 0 ? std::string("one embedding") : std::to_string(head + 1) + " embeddings");
  const checkpoint::StoredTensor* found = file.tensors->Find(row.name);
  const bool ungrounded = found != nullptr && found->shape() == std::vector<int64_t>{hidden_size, hidden_size};
  if (ungrounded) {
    row.hint = file.info.config_file + " says grounded_heads=true; these weights look like heads trained with false";
  }
  return row;
}

}  // namespace

HydraWeights LoadHydra(HeadsFile file, const model::ModelWeights& base) {
  const int64_t hidden = base.config.hidden_size;
  HydraWeights loaded;
  checkpoint::TableLoader loader(*file.tensors, base.config.file);
  loader.IgnoreIf(IsBaseTensor);
  for (int32_t h = 0; h < file.info.num_heads; ++h) {
    HydraHead head;
    head.linear = TakeSlices(loader, FirstBlockRow(file, hidden, h, "linear"), h + 2);
    head.residual = TakeSlices(loader, FirstBlockRow(file, hidden, h, "res_connection"), h + 2);
    head.rest.blocks = TakeBlocks(loader, file, hidden, h, 1);
    checkpoint::TensorRow row;
    row.name = file.names.lm_head(h) + ".weight";
    row.shape = {{base.config.vocab_size, "vocab_size"}, {hidden, "hidden_size"}};
    row.shard = checkpoint::ShardAxis::kVocabulary;
    head.rest.lm_head = TakeLinear(loader, row, true);
    loaded.heads.push_back(std::move(head));
  }
  std::vector<const model::Linear*> slices;
  for (const HydraHead& head : loaded.heads) {
    for (const auto* part : {&head.linear, &head.residual}) {
      for (const model::Linear& slice : *part) slices.push_back(&slice);
    }
  }
  model::CheckOneKind(slices, file.tensors->display_name(), "the first blocks of the heads");
  if (file.info.kind == HeadKind::kHydraPrefixMlp) {
    loaded.prefix = std::make_unique<PrefixWeights>(TakePrefixLayer(loader, file.info, base.config));
  }
  loader.Finish();
  loaded.bytes = loader.bytes_taken();
  loaded.used_tensors.assign(loader.used().begin(), loader.used().end());
  loaded.info = file.info;
  loaded.tensors = std::move(file.tensors);
  return loaded;
}

std::vector<model::Linear*> LinearsOf(HydraWeights& weights) {
  std::vector<model::Linear*> linears;
  for (HydraHead& head : weights.heads) {
    for (auto* part : {&head.linear, &head.residual}) {
      for (model::Linear& slice : *part) linears.push_back(&slice);
    }
    for (model::Linear& block : head.rest.blocks) linears.push_back(&block);
    linears.push_back(&head.rest.lm_head);
  }
  if (!weights.prefix) return linears;
  for (model::Linear* linear : model::LinearsOf(weights.prefix->layer)) linears.push_back(linear);
  return linears;
}

}  // namespace hydrant::draft
