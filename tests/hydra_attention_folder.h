// SPDX-License-Identifier: Apache-2.0
// Hydra's eagle-attn and cross-attn heads with random weights for tests/golden/base_mha, named as their authors save
// them.
#pragma once

#include <cstdint>
#include <map>
#include <random>
#include <string>
#include <vector>

#include "base/json.h"
#include "checkpoint/safetensors_writer.h"
#include "tests/test_data.h"

namespace hydrant::test {

// What a test may spoil before it is written.
struct HydraAttentionFolder {
  static constexpr int64_t kHidden = 64, kInner = 172;  // base_mha's

  base::Json config;
  std::map<std::string, std::vector<int64_t>> shapes;

  explicit HydraAttentionFolder(const std::string& arch) {
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

  std::string Write(const TempDir& dir) const {
    dir.Write("config.json", base::DumpJson(config));
    std::vector<checkpoint::TensorEntry> entries;
    for (const auto& [name, shape] : shapes) entries.push_back({.name = name, .dtype = DType::kF32, .shape = shape});
    checkpoint::SafetensorsWriter writer(dir.path() + "/hydra_lm_head.safetensors", entries, {});
    std::mt19937 random(5);
    std::uniform_real_distribution<float> uniform(-0.2F, 0.2F);
    for (const auto& [name, shape] : shapes) {
      int64_t count = 1;
      for (const int64_t extent : shape) count *= extent;
      std::vector<float> values(static_cast<size_t>(count));
      for (float& value : values) value = name.ends_with("norm.weight") ? 1 : uniform(random);
      writer.Write(values.data(), values.size() * sizeof(float));
    }
    writer.Finish();
    return dir.path();
  }
};

}  // namespace hydrant::test
