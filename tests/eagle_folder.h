// SPDX-License-Identifier: Apache-2.0
// EAGLE heads with random weights for tests/golden/base_mha, as their authors would save them.
#pragma once

#include <cstdint>
#include <cstring>
#include <map>
#include <random>
#include <string>
#include <vector>

#include "base/json.h"
#include "checkpoint/safetensors_writer.h"
#include "tests/test_data.h"

namespace hydrant::test {

// What a test may spoil before it is written.
struct EagleFolder {
  static constexpr int64_t kHidden = 64, kInner = 96, kVocab = 512, kDraftVocab = 40;

  base::Json config = {{"model_type", "llama"},       {"vocab_size", kVocab},          {"hidden_size", kHidden},
                       {"intermediate_size", kInner}, {"num_hidden_layers", 1},        {"num_attention_heads", 4},
                       {"num_key_value_heads", 2},    {"max_position_embeddings", 256}};
  std::map<std::string, std::vector<int64_t>> shapes;
  std::vector<int64_t> offsets;  // d2t; empty: none

  explicit EagleFolder(bool is_third) {
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

  std::string Write(const TempDir& dir) const {
    dir.Write("config.json", base::DumpJson(config));
    std::vector<checkpoint::TensorEntry> entries;
    if (!offsets.empty()) {
      entries.push_back({.name = "d2t", .dtype = DType::kI64, .shape = {static_cast<int64_t>(offsets.size())}});
    }
    for (const auto& [name, shape] : shapes) entries.push_back({.name = name, .dtype = DType::kF32, .shape = shape});
    checkpoint::SafetensorsWriter writer(dir.path() + "/model.safetensors", entries, {});
    if (!offsets.empty()) writer.Write(offsets.data(), offsets.size() * sizeof(int64_t));
    std::mt19937 random(5);
    std::uniform_real_distribution<float> uniform(-0.2F, 0.2F);
    for (const auto& [name, shape] : shapes) {
      int64_t count = 1;
      for (const int64_t extent : shape) count *= extent;
      std::vector<float> values(static_cast<size_t>(count));
      for (float& value : values) value = shape.size() == 1 ? 1 : uniform(random);
      writer.Write(values.data(), values.size() * sizeof(float));
    }
    writer.Finish();
    return dir.path();
  }
};

}  // namespace hydrant::test
