// SPDX-License-Identifier: Apache-2.0
#include "model/contradictions.h"

#include <charconv>
#include <cmath>
#include <string_view>

#include "checkpoint/compare.h"
#include "hydrant/error.h"
#include "model/model_tensors.h"

namespace hydrant::model {
namespace {

// Files of the f16 era store the table rounded to f16, later ones to bf16, which is coarser: kRounding allows for both.
bool IsTableOf(const TensorView& table, const RopeConfig& rope, int64_t head_dim) {
  constexpr float kRounding = 1.0F / 256, kSmallest = 1.0F / (1 << 23);
  if (!IsFloat(table.dtype) || table.num_elements() != head_dim / 2) return false;
  const std::vector<float> found = ToFloats(table), expected = InverseFrequencies(rope, head_dim);
  for (size_t i = 0; i < found.size(); ++i) {
    if (!(std::abs(found[i] - expected[i]) <= kRounding * expected[i] + kSmallest)) return false;
  }
  return true;
}

// The number behind "model.layers.", or -1.
int64_t LayerOf(std::string_view name) {
  constexpr std::string_view kPrefix = "model.layers.";
  int64_t layer = -1;
  if (name.starts_with(kPrefix)) std::from_chars(name.data() + kPrefix.size(), name.data() + name.size(), layer);
  return layer;
}

bool Contains(std::string_view text, std::string_view part) { return text.find(part) != std::string_view::npos; }

// What config.json says about the tensor: for the error.
std::string WhatDenies(const std::string& name, const ModelConfig& config) {
  const std::string family = std::string("'model_type' is \"") + NameOf(config.family) + "\"";
  if (LayerOf(name) >= config.num_layers) return "'num_hidden_layers' is " + std::to_string(config.num_layers);
  if (name.ends_with("_norm.weight")) return family + ", whose heads have no norms";
  if (!name.ends_with("_proj.bias")) return "";
  const bool llama = config.family == Family::kLlama;
  if (Contains(name, ".mlp.")) return llama ? "'mlp_bias' is not true" : family + ", which has no such biases";
  if (llama || config.family == Family::kQwen3) return "'attention_bias' is not true";
  return family + ", which has no such biases";
}

}  // namespace

std::string RotaryWarning(const checkpoint::TensorSource& source, const std::string& prefix, const RopeConfig& rope,
                          int64_t head_dim, const std::string& says) {
  const checkpoint::StoredTensor* first = nullptr;
  std::string first_name;
  size_t differ = 0;
  for (const auto& [name, tensor] : source.tensors()) {
    if (!name.starts_with(prefix) || !IsRotaryBuffer(name) || IsTableOf(tensor.view, rope, head_dim)) continue;
    if (differ++ > 0) continue;
    first = &tensor;
    first_name = name;
  }
  if (first == nullptr) return "";
  const RopeConfig unscaled{.theta = rope.theta};
  std::string text = first->file + ": tensor '" + first_name + "'";
  if (differ > 1) text += " (and " + std::to_string(differ - 1) + " more)";
  const bool lacks_scaling = rope.type != RopeType::kDefault && IsTableOf(first->view, unscaled, head_dim);
  text += lacks_scaling ? " lacks the scaling of " : " differs from the frequencies of ";
  return text + says + ", which are used; if the text makes no sense, they may be wrong there";
}

std::vector<std::string> SettleDenied(checkpoint::TableLoader& loader, const ModelConfig& config) {
  std::vector<std::string> unused;
  const std::vector<std::string> left = loader.Left();
  for (const std::string& name : left) {
    const std::string why = WhatDenies(name, config);
    if (why.empty()) continue;
    const checkpoint::StoredTensor* stored = loader.source().Find(name);
    const bool beyond = LayerOf(name) >= config.num_layers;
    if (!beyond && name.ends_with(".bias") && IsFloat(stored->view.dtype) && checkpoint::AllZero(stored->view)) {
      loader.Ignore(name);
      unused.push_back(name);
      continue;
    }
    std::string problem = "tensor '" + name + "' " + ShapeString(stored->view.shape) + " is not expected here";
    if (left.size() > 1) problem += " (and " + std::to_string(left.size() - 1) + " more)";
    throw FileError(stored->file, problem + ": in " + config.file + " " + why,
                    "if the model was trained with it, correct the config.json");
  }
  return unused;
}

}  // namespace hydrant::model
