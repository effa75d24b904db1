// SPDX-License-Identifier: Apache-2.0
#include "draft/heads/head_tensors.h"

#include <cstring>
#include <optional>

#include "base/json.h"
#include "base/paths.h"
#include "checkpoint/head_names.h"
#include "draft/heads/head_kind.h"
#include "draft/heads/head_ranks.h"
#include "hydrant/error.h"

namespace hydrant::draft {
namespace {

constexpr int32_t kMostHeads = 64;
constexpr int32_t kMostLayers = 64;

void CheckCounts(const HeadsInfo& info) {
  if (info.num_heads < 1 || info.num_heads > kMostHeads || info.num_layers < 0 || info.num_layers > kMostLayers) {
    throw FileError(info.weights_file, "names " + std::to_string(info.num_heads) + " heads of " +
                                           std::to_string(info.num_layers) + " layers; at most " +
                                           std::to_string(kMostHeads) + " heads of " + std::to_string(kMostLayers) +
                                           " layers are run");
  }
}

bool Resolve(const checkpoint::TensorSource& tensors, const base::JsonView* config, HeadsInfo& info) {
  for (const HeadKind* kind : HeadKinds()) {
    if (!kind->resolve(tensors, config, info)) continue;
    info.kind = kind;
    CheckCounts(info);
    return true;
  }
  return false;
}

// Rows of the base's lm head are its own tokens.
void CheckTokenMap(const HeadsInfo& info) {
  if (!info.has_token_map || info.own_lm_heads || info.shared_lm_head) return;
  throw FileError(info.weights_file, "holds '" + NameOf(info, kTokenMap, 0, 0) +
                                         "', but no lm head: expected one, whose rows the map gives tokens");
}

// Whether the blocks after the first (Medusa) or after the input block (Hydra) of head 0 are one block: absent names,
// one storage, or equal bytes.
bool BlocksAreTied(const HeadsFile& file) {
  const auto block_at = [&file](int32_t layer) {
    return file.tensors->Find(NameOf(file.info, kBlock, 0, layer) + ".weight");
  };
  const int32_t first = file.info.sequentially_dependent ? 1 : 0;
  if (file.info.num_layers < first + 2) return false;
  const checkpoint::StoredTensor* reference = block_at(first);
  if (reference == nullptr) return false;
  for (int32_t layer = first + 1; layer < file.info.num_layers; ++layer) {
    const checkpoint::StoredTensor* block = block_at(layer);
    if (block == nullptr || block->storage_id == reference->storage_id) continue;
    if (block->packed) return false;  // converted files name what is tied
    if (block->view.dtype != reference->view.dtype || block->view.shape != reference->view.shape) return false;
    if (std::memcmp(block->view.data, reference->view.data, block->view.num_bytes()) != 0) return false;
  }
  return true;
}

std::string ConfigPath(const std::string& folder) {
  const std::string path = folder + "/config.json";
  return base::IsThere(path) ? path : std::string();
}

}  // namespace

HeadsFile OpenHeads(const std::string& folder) {
  HeadsFile file;
  file.info.config_file = ConfigPath(folder);
  base::Json config;
  std::optional<base::JsonView> view;
  if (!file.info.config_file.empty()) {
    config = base::ReadJsonFile(file.info.config_file);
    view.emplace(config, file.info.config_file);
    for (const HeadKind* kind : HeadKinds()) {
      if (kind->config_key != nullptr && view->Has(kind->config_key)) kind->check_config(*view);
    }
    if (view->Has("base_model_name_or_path")) file.info.base_model = view->At("base_model_name_or_path").String();
  }
  file.tensors = OpenHeadTensors(folder, view ? &*view : nullptr);
  file.info.weights_file = file.tensors->display_name();
  checkpoint::RefuseNonZeroLora(*file.tensors);
  if (!Resolve(*file.tensors, view ? &*view : nullptr, file.info)) {
    throw FileError(file.info.weights_file, "holds no Medusa, Hydra, EAGLE or ReDrafter heads, and no MLP speculator",
                    "EngineOptions::draft takes a folder with hydra_lm_head.pt, medusa_lm_head.pt or one of the "
                    "layouts of docs/formats.md");
  }
  CheckTokenMap(file.info);
  file.info.tied_blocks = BlocksAreTied(file);
  return file;
}

bool HoldsHeads(const std::string& folder) {
  const std::string config_file = ConfigPath(folder);
  base::Json config;
  if (!config_file.empty()) config = base::ReadJsonFile(config_file);
  for (const HeadKind* kind : HeadKinds()) {
    if (kind->config_key != nullptr && config.is_object() && config.contains(kind->config_key)) return true;
  }
  const auto tensors = checkpoint::OpenHeadsFolder(folder);
  for (const HeadKind* kind : HeadKinds()) {
    HeadsInfo info;
    info.weights_file = tensors->display_name();
    if (kind->config_key != nullptr || !kind->resolve(*tensors, nullptr, info)) continue;
    CheckCounts(info);
    return true;
  }
  return false;
}

}  // namespace hydrant::draft
