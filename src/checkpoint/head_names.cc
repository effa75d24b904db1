// SPDX-License-Identifier: Apache-2.0
#include "checkpoint/head_names.h"

#include <algorithm>
#include <array>

#include "checkpoint/compare.h"
#include "hydrant/error.h"

namespace hydrant::checkpoint {
namespace {

constexpr std::array<std::string_view, 8> kHeadPrefixes = {
    "medusa_head.",   // layouts b and f
    "medusa_heads.",  // d with its prefix, e
    "hydra_mlp.",
    "hydra_lm_head.",          //
    "prefix_embeding_layer.",  // the authors' spelling
    "input_embed_fn.",
    "hydra_heads.",             // rank files
    "prefix_embedding_layer.",  // likewise, where the spelling is another
};

bool Contains(std::string_view text, std::string_view part) { return text.find(part) != std::string_view::npos; }

}  // namespace

bool IsHeadTensor(std::string_view name) {
  return std::any_of(kHeadPrefixes.begin(), kHeadPrefixes.end(),
                     [&](std::string_view prefix) { return name.starts_with(prefix); });
}

bool IsLoraTensor(std::string_view name) { return Contains(name, ".lora_"); }

void RefuseNonZeroLora(const TensorSource& source) {
  for (const auto& [name, tensor] : source.tensors()) {
    if (!IsLoraTensor(name) || Contains(name, ".lora_A.") || Contains(name, ".lora_embedding_A")) continue;
    if (AllZero(tensor.view)) continue;
    throw FileError(tensor.file, "LoRA tensor '" + name + "' is not zero: the adapter changes the base model",
                    "merge the adapter into the base model (merge_and_unload) and save it as a whole model");
  }
}

}  // namespace hydrant::checkpoint
