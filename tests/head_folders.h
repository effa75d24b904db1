// SPDX-License-Identifier: Apache-2.0
// Heads with random weights for tests/golden/base_mha, as their authors would save them. A test may spoil them before
// they are written.
#pragma once

#include <cstdint>
#include <map>
#include <random>
#include <string>
#include <utility>
#include <vector>

#include "base/json.h"
#include "checkpoint/safetensors_writer.h"
#include "hydrant/engine.h"
#include "tests/test_data.h"

namespace hydrant::test {

// A tensor of random numbers from center - spread to center + spread.
struct HeadTensor {
  std::vector<int64_t> shape;
  std::vector<float> values;

  HeadTensor() = default;
  HeadTensor(std::vector<int64_t> extents, std::mt19937& random, float spread, float center = 0)
      : shape(std::move(extents)) {
    int64_t count = 1;
    for (const int64_t extent : shape) count *= extent;
    values.resize(static_cast<size_t>(count));
    std::uniform_real_distribution<float> uniform(-spread, spread);
    for (float& value : values) value = center + uniform(random);
  }
};
using HeadTensors = std::map<std::string, HeadTensor>;

// What a test may spoil. Values are made as it is written.
struct HeadFolder {
  static constexpr int64_t kHidden = 64, kVocab = 512;  // base_mha's

  base::Json config;
  std::map<std::string, std::vector<int64_t>> shapes;
  std::vector<int64_t> offsets;  // d2t; empty: none
  const char* file = "model.safetensors";

  std::string Write(const TempDir& dir) const {
    std::mt19937 random(5);
    HeadTensors tensors;
    for (const auto& [name, shape] : shapes) {
      const bool is_norm = name.ends_with("norm.weight");
      tensors[name] = HeadTensor(shape, random, is_norm ? 0.0F : 0.2F, is_norm ? 1.0F : 0.0F);
    }
    return Write(dir, tensors);
  }

 protected:
  std::string Write(const TempDir& dir, const HeadTensors& tensors, const std::string& prefix = "") const {
    dir.Write("config.json", base::DumpJson(config));
    std::vector<checkpoint::TensorEntry> entries;
    if (!offsets.empty()) {
      entries.push_back({.name = "d2t", .dtype = DType::kI64, .shape = {static_cast<int64_t>(offsets.size())}});
    }
    for (const auto& [name, tensor] : tensors) {
      entries.push_back({.name = prefix + name, .dtype = DType::kF32, .shape = tensor.shape});
    }
    checkpoint::SafetensorsWriter writer(dir.path() + "/" + file, entries, {});
    if (!offsets.empty()) writer.Write(offsets.data(), offsets.size() * sizeof(int64_t));
    for (const auto& [name, tensor] : tensors) writer.Write(tensor.values.data(), tensor.values.size() * sizeof(float));
    writer.Finish();
    return dir.path();
  }
};

struct EagleFolder : HeadFolder {
  static constexpr int64_t kInner = 96, kDraftVocab = 40;

  explicit EagleFolder(bool is_third) {
    config = {{"model_type", "llama"},       {"vocab_size", kVocab},          {"hidden_size", kHidden},
              {"intermediate_size", kInner}, {"num_hidden_layers", 1},        {"num_attention_heads", 4},
              {"num_key_value_heads", 2},    {"max_position_embeddings", 256}};
    const int64_t d = kHidden, wide = is_third ? 2 * d : d;
    const std::string layer = is_third ? "midlayer." : "layers.0.";
    shapes = {{"fc.weight", {d, is_third ? 3 * d : 2 * d}},       {layer + "self_attn.q_proj.weight", {d, wide}},
              {layer + "self_attn.k_proj.weight", {d / 2, wide}}, {layer + "self_attn.v_proj.weight", {d / 2, wide}},
              {layer + "self_attn.o_proj.weight", {d, d}},        {layer + "mlp.gate_proj.weight", {kInner, d}},
              {layer + "mlp.up_proj.weight", {kInner, d}},        {layer + "mlp.down_proj.weight", {d, kInner}},
              {layer + "post_attention_layernorm.weight", {d}}};
    if (!is_third) {
      shapes["fc.bias"] = {d};
      return;
    }
    for (const char* norm : {"midlayer.hidden_norm.weight", "midlayer.input_layernorm.weight", "norm.weight"}) {
      shapes[norm] = {d};
    }
    shapes["lm_head.weight"] = {kDraftVocab, d};
    for (int64_t j = 0; j < kDraftVocab; ++j) offsets.push_back(9 * j);          // token 10 * j
    config["eagle_config"] = {{"eagle_aux_hidden_state_layer_ids", {1, 2, 3}}};  // of 4 layers: what enters them
  }
};

// EAGLE-1 as the speculators library spells it: the same numbers as those of EagleFolder(false).
inline EagleFolder EagleOfSpeculators() {
  const EagleFolder authors(false);
  EagleFolder folder(false);
  folder.config = {{"speculators_model_type", "eagle"},
                   {"layernorms", false},
                   {"fusion_bias", true},
                   {"transformer_layer_config", authors.config}};
  folder.shapes.clear();
  for (const auto& [name, shape] : authors.shapes) {
    const bool is_layer = name.starts_with("layers.0.");
    folder.shapes[is_layer ? "transformer." + name.substr(9) : "fusion_" + name] = shape;
  }
  return folder;
}

// Hydra's "eagle-attn" and "cross-attn".
struct HydraAttentionFolder : HeadFolder {
  static constexpr int64_t kInner = 172;  // base_mha's

  explicit HydraAttentionFolder(const std::string& arch) {
    file = "hydra_lm_head.safetensors";
    constexpr int64_t d = kHidden;
    config = {{"hydra_head_arch", arch},
              {"hydra_num_heads", 1},
              {"hydra_num_layers", 1},
              {"grounded_heads", true},
              {"hidden_state_offset", 0}};
    const bool is_eagle = arch == "eagle-attn";
    const std::string attention = is_eagle ? "attn.self_attn." : "cross_attn.", layer = is_eagle ? "attn." : "";
    for (const char* name : {"q_proj", "k_proj", "v_proj", "o_proj"}) shapes[attention + name + ".weight"] = {d, d};
    for (const char* name : {"mlp.gate_proj", "mlp.up_proj"}) shapes[layer + name + ".weight"] = {kInner, d};
    shapes[layer + "mlp.down_proj.weight"] = {d, kInner};
    for (const char* name : {"input_layernorm", "post_attention_layernorm"}) shapes[layer + name + ".weight"] = {d};
    if (is_eagle) shapes.insert({{"fc.weight", {d, 2 * d}}, {"fc.bias", {d}}});
  }
};

struct RedrafterFolder : HeadFolder {
  explicit RedrafterFolder(bool is_recurrent, int64_t exit_dim = 2 * kHidden) {
    config = {{"model_type", "recurrent_drafting_drafter"},
              {"vocab_size", kVocab},
              {"hidden_size", kHidden},
              {"num_draft_layers", 2},
              {"num_lookback_tokens", 5},
              {"rnn", is_recurrent},
              {"exit_dim", exit_dim}};
    for (const char* block : {"lm_head.0.linear.", "lm_head.1.linear."}) {
      shapes[std::string(block) + "weight"] = {exit_dim, exit_dim};
      shapes[std::string(block) + "bias"] = {exit_dim};
    }
    shapes["lm_head.2.weight"] = {kVocab, exit_dim};
    if (is_recurrent) {
      shapes["rnn_u.weight"] = shapes["rnn_w.weight"] = {kHidden, kHidden};
      shapes["rnn_u.bias"] = {kHidden};
    }
    if (exit_dim == 2 * kHidden) return;
    shapes["input_proj.weight"] = {exit_dim, 2 * kHidden};
    shapes["input_proj.bias"] = {exit_dim};
  }
};

// Its values are there before it is written: tied stages repeat them.
struct MlpSpeculatorFolder : HeadFolder {
  HeadTensors tensors;
  std::string prefix = "speculator.";

  // `is_tied`: every name is there, and the stages after the first repeat it.
  explicit MlpSpeculatorFolder(bool is_tied = false, int stages = 3, int64_t inner = 48, bool scales_input = false) {
    config = {{"architectures", {"MLPSpeculatorPreTrainedModel"}},
              {"model_type", "mlp_speculator"},
              {"vocab_size", kVocab},
              {"emb_dim", kHidden},
              {"inner_dim", inner},
              {"n_predict", stages},
              {"top_k_tokens_per_head", std::vector<int>(static_cast<size_t>(stages), 2)},
              {"n_candidates", 5},
              {"tie_weights", is_tied},
              {"scale_input", scales_input}};
    for (int s = 0; s < stages; ++s) {
      const std::string number = std::to_string(s) + ".";
      Add("emb." + number + "weight", {kVocab, inner});
      Add("proj." + number + "weight", {inner, s == 0 ? kHidden : inner});
      Add("ln." + number + "weight", {inner}, 1);
      Add("ln." + number + "bias", {inner});
      Add("head." + number + "weight", {kVocab, inner});
      if (!is_tied || s == 0) continue;
      for (const char* name : {"emb.", "ln.", "head."}) Repeat(name, s, 0);
      if (s > 1) Repeat("proj.", s, 1);
    }
  }

  // Only the names that come first, as Hugging Face's tools leave them in safetensors files.
  void DropRepeats() {
    std::erase_if(tensors, [](const auto& entry) {
      const std::string& name = entry.first;
      const int stage = name[name.find('.') + 1] - '0';
      return stage > (name.starts_with("proj.") ? 1 : 0);
    });
  }

  // In place of the tensor of that name, if there is one.
  void Add(const std::string& name, std::vector<int64_t> shape, float center = 0) {
    tensors[name] = HeadTensor(std::move(shape), random_, 0.3F, center);
  }

  std::string Write(const TempDir& dir) const { return HeadFolder::Write(dir, tensors, prefix); }

 private:
  void Repeat(const std::string& role, int stage, int original) {
    for (const char* suffix : {".weight", ".bias"}) {
      const auto found = tensors.find(role + std::to_string(original) + suffix);
      if (found != tensors.end()) tensors[role + std::to_string(stage) + suffix] = found->second;
    }
  }

  std::mt19937 random_{7};
};

// An engine of base_mha with what is in a folder.
inline EngineOptions OptionsOf(const std::string& draft) {
  EngineOptions options;
  options.model = SourceDir() + "/tests/golden/base_mha";
  options.draft = draft;
  options.load_tokenizer = false;
  return options;
}

}  // namespace hydrant::test
