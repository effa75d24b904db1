// SPDX-License-Identifier: Apache-2.0
#include "load/folder_kind.h"

#include <algorithm>
#include <array>
#include <filesystem>
#include <span>
#include <string_view>
#include <vector>

#include "base/json.h"
#include "base/paths.h"
#include "checkpoint/tensor_source.h"
#include "draft/heads/head_tensors.h"
#include "hydrant/error.h"
#include "tokenizer/tokenizer.h"

namespace hydrant::load {
namespace {

namespace fs = std::filesystem;

constexpr std::array<std::string_view, 7> kHeadFiles = {
    "hydra_lm_head.pt",          "hydra_lm_head.safetensors", "medusa_lm_head.pt", "medusa_lm_head.safetensors",
    "adapter_model.safetensors", "adapter_model.bin",         "rank0.safetensors"};
constexpr std::array<std::string_view, 4> kModelFiles = {"model.safetensors", "model.safetensors.index.json",
                                                         "pytorch_model.bin", "pytorch_model.bin.index.json"};

bool HasAny(const std::string& folder, std::span<const std::string_view> names) {
  return std::any_of(names.begin(), names.end(),
                     [&](std::string_view name) { return base::IsThere(fs::path(folder) / name); });
}

// A base model's config names its layers. A heads folder's config may repeat the base's, but its weights have names of
// their own; vLLM's Medusa folders say what they are.
bool HoldsBase(const std::string& folder, bool has_tokenizer) {
  const std::string file = folder + "/config.json";
  if (!base::IsThere(file)) return false;
  const base::Json config = base::ReadJsonFile(file);
  if (!config.is_object() || !config.contains("num_hidden_layers")) return false;
  const auto type = config.find("model_type");
  const bool is_medusa = type != config.end() && type->is_string() && type->get_ref<const std::string&>() == "medusa";
  return !is_medusa && (HasAny(folder, kModelFiles) || !(HasAny(folder, kHeadFiles) || has_tokenizer));
}

bool HoldsHeadsToo(const std::string& folder) {
  try {
    return draft::HoldsHeads(folder);
  } catch (const UserError&) {
    return false;  // the base's own problem, if it is one, shows when it is read
  }
}

// EAGLE heads have the config of a language model and weights in files of a model's name.
bool HoldsBaseTensors(const std::string& folder) {
  try {
    const std::vector<std::string> names = checkpoint::OpenModelFolder(folder)->Names();
    return std::ranges::any_of(names, [](const std::string& name) { return name.starts_with("model."); });
  } catch (const UserError&) {
    return true;
  }
}

}  // namespace

FolderKind KindOf(const std::string& folder) {
  FolderKind kind;
  kind.tokenizer = tokenizer::HasTokenizer(folder);
  kind.base = HoldsBase(folder, kind.tokenizer);
  if (kind.base && HoldsHeadsToo(folder)) kind.base = HoldsBaseTensors(folder);
  kind.heads = kind.base ? HoldsHeadsToo(folder) : (HasAny(folder, kHeadFiles) || HasAny(folder, kModelFiles));
  return kind;
}

bool IsDraftModel(const std::string& folder) {
  if (!base::IsFolder(folder)) return false;
  const FolderKind kind = KindOf(folder);
  return kind.base && !kind.heads;
}

}  // namespace hydrant::load
