// SPDX-License-Identifier: Apache-2.0
#include "draft/medusa_weights.h"

#include <algorithm>
#include <array>
#include <cstring>
#include <string>
#include <string_view>
#include <utility>

#include "base/check.h"
#include "checkpoint/head_names.h"
#include "draft/base_copies.h"
#include "hydrant/error.h"

namespace hydrant::draft {
namespace {

constexpr std::array<std::string_view, 3> kLayoutsOfHeadsAlone = {"a", "c", "mlp"};

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

}  // namespace

MedusaWeights LoadMedusa(HeadsFile file, const model::ModelWeights& base) {
  const int64_t hidden = base.config.hidden_size;
  const int64_t vocab = base.config.vocab_size;
  MedusaWeights loaded;
  checkpoint::TableLoader loader(*file.tensors, base.config.file);
  // Files of heads alone hold nothing that is unknown; beside prefixed heads there is a whole model, in its own
  // spelling.
  const bool alone = std::ranges::find(kLayoutsOfHeadsAlone, file.info.layout) != kLayoutsOfHeadsAlone.end();
  loader.IgnoreIf(
      [alone](const std::string& name) { return IsBaseTensor(name) || (!alone && !checkpoint::IsHeadTensor(name)); });
  int64_t rows = vocab;
  if (!file.names.token_map.empty()) {
    loaded.token_map = ReadTokenMap(*file.tensors, file.names.token_map, vocab);
    rows = static_cast<int64_t>(loaded.token_map.size());
    loader.Ignore(file.names.token_map);
  }
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
  loaded.used_tensors.assign(loader.used().begin(), loader.used().end());
  if (!file.names.token_map.empty()) loaded.used_tensors.push_back(file.names.token_map);
  loaded.info = file.info;
  loaded.tensors = std::move(file.tensors);
  return loaded;
}

std::vector<model::Linear*> LinearsOf(MedusaWeights& weights) {
  const bool own_lm_heads = weights.info.own_lm_heads || weights.info.shared_lm_head;
  std::vector<model::Linear*> linears;
  for (Head& head : weights.heads) {
    for (model::Linear& block : head.blocks) linears.push_back(&block);
    if (own_lm_heads) linears.push_back(&head.lm_head);
  }
  return linears;
}

}  // namespace hydrant::draft
