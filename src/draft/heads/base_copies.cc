// SPDX-License-Identifier: Apache-2.0
#include "draft/heads/base_copies.h"

#include <charconv>
#include <filesystem>

#include "base/mapped_file.h"
#include "checkpoint/compare.h"
#include "checkpoint/head_names.h"
#include "draft/heads/base_names.h"

namespace hydrant::draft {
namespace {

namespace fs = std::filesystem;

constexpr std::string_view kAdapterPrefix = "base_model.model.";  // PEFT's
constexpr std::string_view kLayers = "model.layers.";

std::string_view WithoutAdapter(std::string_view name) {
  if (name.starts_with(kAdapterPrefix)) name.remove_prefix(kAdapterPrefix.size());
  return name;
}

TensorView ViewOf(const std::vector<float>& values) {
  return {reinterpret_cast<const uint8_t*>(values.data()), DType::kF32, {static_cast<int64_t>(values.size())}, nullptr};
}

// The base's tensor of a layer, "3.mlp.up_proj.weight"; empty where it is packed or unknown.
TensorView LayerTensor(std::string_view name, const model::ModelWeights& base) {
  size_t layer = 0;
  const auto [end, error] = std::from_chars(name.data(), name.data() + name.size(), layer);
  if (error != std::errc() || layer >= base.layers.size()) return {};
  const std::string_view rest(end, static_cast<size_t>(name.data() + name.size() - end));
  const model::LayerWeights& weights = base.layers[layer];
  if (rest == ".input_layernorm.weight") return ViewOf(weights.input_norm);
  if (rest == ".post_attention_layernorm.weight") return ViewOf(weights.post_attention_norm);
  struct Matrix {
    std::string_view name;
    const model::Linear* linear;
  };
  const Matrix matrices[] = {{".self_attn.q_proj.weight", &weights.q}, {".self_attn.k_proj.weight", &weights.k},
                             {".self_attn.v_proj.weight", &weights.v}, {".self_attn.o_proj.weight", &weights.o},
                             {".mlp.gate_proj.weight", &weights.gate}, {".mlp.up_proj.weight", &weights.up},
                             {".mlp.down_proj.weight", &weights.down}};
  for (const Matrix& matrix : matrices) {
    if (rest == matrix.name) return matrix.linear->weight;
  }
  return {};
}

// The base's tensor that one beside heads would repeat; empty: none to compare with.
TensorView BaseTensor(std::string_view name, const HeadsFile& file, const model::ModelWeights& base) {
  name = WithoutAdapter(name);
  if (name == "input_embed_fn.weight" || name == "embed_tokens.weight" || name == "model.embed_tokens.weight") {
    return base.embedding;
  }
  if (name == "lm_head.weight") return file.info.shared_lm_head ? TensorView{} : base.lm_head.weight;
  if (name == "model.norm.weight") return ViewOf(base.final_norm);
  if (name.starts_with(kLayers)) return LayerTensor(name.substr(kLayers.size()), base);
  return {};
}

bool SameEnds(const TensorView& a, const TensorView& b) {
  constexpr int64_t kSample = 4096;
  if (a.shape != b.shape || a.num_elements() <= 2 * kSample) return checkpoint::SameButRounded(a, b);
  const auto same = [&](int64_t first) {
    return checkpoint::SameButRounded(checkpoint::Slice(a, first, kSample), checkpoint::Slice(b, first, kSample));
  };
  return same(0) && same(a.num_elements() - kSample);
}

bool IsSameFile(const std::string& a, const std::string& b) {
  std::error_code error;
  return fs::equivalent(a, b, error) && !error;
}

}  // namespace

bool IsBaseTensor(std::string_view name) {
  name = WithoutAdapter(name);
  return name.starts_with("model.") || name == "lm_head.weight" || name == "embed_tokens.weight" ||
         name == "input_embed_fn.weight" || checkpoint::IsLoraTensor(name);
}

std::string BaseCopiesWarning(const HeadsFile& file, const model::ModelWeights& base) {
  const bool same_file = IsSameFile(file.tensors->display_name(), base.file);
  std::string first;
  size_t differ = 0;
  for (const auto& [name, stored] : file.tensors->tensors()) {
    if (stored.packed || !IsBaseTensor(name) || (same_file && !checkpoint::IsHeadTensor(name))) continue;
    const TensorView expected = BaseTensor(name, file, base);
    if (expected.empty()) continue;
    const bool whole = !name.ends_with("_proj.weight");
    const bool same = whole ? checkpoint::SameButRounded(stored.view, expected) : SameEnds(stored.view, expected);
    for (const TensorView& view : {stored.view, expected}) base::MappedFile::Release({view.data, view.num_bytes()});
    if (same) continue;
    if (differ++ == 0) first = stored.file + ": tensor '" + name + "'";
  }
  if (differ == 0) return "";
  if (differ > 1) first += " (and " + std::to_string(differ - 1) + " more)";
  return first + " differs from that of " + base.file +
         ": these heads were trained on another base, and few of their drafts may be accepted";
}

void CheckBaseOf(HeadsFile& file, const model::ModelWeights& base) {
  if (const std::string text = BaseCopiesWarning(file, base); !text.empty()) file.info.warnings.push_back(text);
  std::error_code ignored;
  const fs::path folder = fs::weakly_canonical(fs::path(base.config.file).parent_path(), ignored);
  const BaseNames names{.name_or_path = base.config.name_or_path,
                        .folders = {folder.string(), base.converted_from},
                        .family = model::NameOf(base.config.family)};
  const std::optional<std::string> different = DifferentBase(file.info.base_model, names);
  if (!different) return;
  file.info.warnings.push_back(file.info.config_file + ": 'base_model_name_or_path' is \"" + file.info.base_model +
                               "\", but the base (" + base.config.file + ") is " + *different +
                               ": few drafts may be accepted");
}

}  // namespace hydrant::draft
