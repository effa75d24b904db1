// SPDX-License-Identifier: Apache-2.0
// What config.json and generation_config.json say about a base model, in one spelling.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "base/json_fwd.h"

namespace hydrant::model {

enum class Family : uint8_t { kLlama, kMistral, kQwen2, kQwen3 };
const char* NameOf(Family family);

enum class RopeType : uint8_t { kDefault, kLinear, kLlama3 };

struct RopeConfig {
  RopeType type = RopeType::kDefault;
  double theta = 10000.0;
  double factor = 1.0;                    // linear, llama3
  double low_freq_factor = 1.0;           // llama3
  double high_freq_factor = 4.0;          // llama3
  int64_t original_max_positions = 8192;  // llama3
};

struct ModelConfig {
  std::string file;          // path of config.json, for errors
  std::string name_or_path;  // '_name_or_path': what the model was saved as; empty: none
  Family family = Family::kLlama;
  int64_t vocab_size = 0;         // V
  int64_t hidden_size = 0;        // D
  int64_t intermediate_size = 0;  // F
  int64_t num_layers = 0;         // L
  int64_t num_heads = 0;          // H
  int64_t num_kv_heads = 0;       // Hk
  int64_t head_dim = 0;           // Dh
  int64_t max_positions = 0;      // max_position_embeddings
  float rms_norm_eps = 1e-6F;
  RopeConfig rope;
  int32_t sliding_window = 0;  // 0 = none
  bool tied_embeddings = false;
  bool qkv_bias = false, o_bias = false, mlp_bias = false;
  bool qk_norm = false;
  int32_t bos_token_id = -1;  // -1 = none
  // What ends generation, by file. (Which of them count: load/end_of_turn.h.)
  std::vector<int32_t> generation_eos_token_ids;  // generation_config.json
  std::vector<int32_t> config_eos_token_ids;      // config.json
};

// Reads folder/config.json and folder/generation_config.json (optional). Throws FileError naming file, key, what was
// expected and found; an unknown model_type, activation or rope type (dynamic, yarn, longrope) is refused by name.
ModelConfig ReadModelConfig(const std::string& folder);

// What a config.json says, or an object inside one: without generation_config.json.
ModelConfig ModelConfigOf(const base::JsonView& config);

// vocab_size of folder/config.json alone; 0 where the folder has no config.json, or that has no such number.
int64_t VocabSizeOf(const std::string& folder);

// inv_freq [Dh / 2] in f32 as transformers computes it (linear and llama3 scaling applied).
std::vector<float> InverseFrequencies(const RopeConfig& rope, int64_t head_dim);

}  // namespace hydrant::model
