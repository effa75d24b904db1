// SPDX-License-Identifier: Apache-2.0
// ReDrafter heads with random weights for tests/golden/base_mha, as their authors would save them.
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
struct RedrafterFolder {
  static constexpr int64_t kHidden = 64, kVocab = 512;

  base::Json config = {{"model_type", "recurrent_drafting_drafter"},
                       {"vocab_size", kVocab},
                       {"hidden_size", kHidden},
                       {"num_draft_layers", 2},
                       {"num_lookback_tokens", 5}};
  std::map<std::string, std::vector<int64_t>> shapes;

  explicit RedrafterFolder(bool is_recurrent, int64_t exit_dim = 2 * kHidden) {
    config["rnn"] = is_recurrent;
    config["exit_dim"] = exit_dim;
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

  std::string Write(const TempDir& dir) const {
    dir.Write("config.json", base::DumpJson(config));
    std::vector<checkpoint::TensorEntry> entries;
    for (const auto& [name, shape] : shapes) entries.push_back({.name = name, .dtype = DType::kF32, .shape = shape});
    checkpoint::SafetensorsWriter writer(dir.path() + "/model.safetensors", entries, {});
    std::mt19937 random(5);
    std::uniform_real_distribution<float> uniform(-0.2F, 0.2F);
    for (const auto& [name, shape] : shapes) {
      int64_t count = 1;
      for (const int64_t extent : shape) count *= extent;
      std::vector<float> values(static_cast<size_t>(count));
      for (float& value : values) value = uniform(random);
      writer.Write(values.data(), values.size() * sizeof(float));
    }
    writer.Finish();
    return dir.path();
  }
};

}  // namespace hydrant::test
