// SPDX-License-Identifier: Apache-2.0
// An MLP speculator with random weights for tests/golden/base_mha, as its authors would save it.
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
struct MlpSpeculatorFolder {
  static constexpr int64_t kHidden = 64, kVocab = 512;

  struct Tensor {
    std::vector<int64_t> shape;
    std::vector<float> values;
  };

  base::Json config;
  std::map<std::string, Tensor> tensors;
  std::string prefix = "speculator.";

  // `is_tied`: every name is there, and the stages after the first repeat it.
  explicit MlpSpeculatorFolder(bool is_tied = false, int stages = 3, int64_t inner = 48) {
    config = {{"architectures", {"MLPSpeculatorPreTrainedModel"}},
              {"model_type", "mlp_speculator"},
              {"vocab_size", kVocab},
              {"emb_dim", kHidden},
              {"inner_dim", inner},
              {"n_predict", stages},
              {"top_k_tokens_per_head", std::vector<int>(static_cast<size_t>(stages), 2)},
              {"n_candidates", 5},
              {"tie_weights", is_tied},
              {"scale_input", false}};
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

  std::string Write(const TempDir& dir) const {
    dir.Write("config.json", base::DumpJson(config));
    std::vector<checkpoint::TensorEntry> entries;
    for (const auto& [name, tensor] : tensors) {
      entries.push_back({.name = prefix + name, .dtype = DType::kF32, .shape = tensor.shape});
    }
    checkpoint::SafetensorsWriter writer(dir.path() + "/model.safetensors", entries, {});
    for (const auto& [name, tensor] : tensors) writer.Write(tensor.values.data(), tensor.values.size() * sizeof(float));
    writer.Finish();
    return dir.path();
  }

  // In place of the tensor of that name, if there is one.
  void Add(const std::string& name, std::vector<int64_t> shape, float center = 0) {
    int64_t count = 1;
    for (const int64_t extent : shape) count *= extent;
    Tensor& tensor = tensors[name];
    tensor.shape = std::move(shape);
    tensor.values.resize(static_cast<size_t>(count));
    std::uniform_real_distribution<float> uniform(-0.3F, 0.3F);
    for (float& value : tensor.values) value = center + uniform(random_);
  }

 private:
  void Repeat(const std::string& role, int stage, int original) {
    for (const char* suffix : {".weight", ".bias"}) {
      const auto found = tensors.find(role + std::to_string(original) + suffix);
      if (found != tensors.end()) tensors[role + std::to_string(stage) + suffix] = found->second;
    }
  }

  std::mt19937 random_{7};
};

}  // namespace hydrant::test
