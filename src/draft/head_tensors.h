// SPDX-License-Identifier: Apache-2.0
// What a heads folder holds, and every head's table rows. The spellings of released files live only here
// (docs/formats.md has them side by side).
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "checkpoint/tensor_source.h"
#include "checkpoint/tensor_table.h"

namespace hydrant::draft {

enum class HeadKind : uint8_t { kMedusa, kHydraMlp, kHydraPrefixMlp };

struct HeadsInfo {
  HeadKind kind = HeadKind::kMedusa;
  std::string name;                     // "medusa", "hydra", "hydra++"
  std::string layout;                   // Medusa: "a" .. "f" (docs/formats.md); Hydra: the hydra_head_arch
  std::string config_file;              // path of config.json (of the heads), for errors; empty when there is none
  std::string weights_file;             // display name
  int32_t num_heads = 0;                // K, from the keys
  int32_t num_layers = 0;               // blocks of one head, the input block included, from the keys
  bool sequentially_dependent = false;  // Hydra's grounded_heads
  bool own_lm_heads = true;             // false: logits through the base's lm head or one shared head
  bool shared_lm_head = false;          // one lm head for all heads, in the file
  bool lm_head_bias = false;
  bool block_bias = true;
  bool tied_blocks = false;  // blocks 2..L of each head are one block
  bool has_token_map = false;
  int64_t hidden_layer_offset = 0;
  double rope_theta = 10000.0;  // prefix layer
  int64_t num_kv_heads = 0;     // likewise; 0: as its key projection has rows
  std::string base_model;       // base_model_name_or_path: information, never followed
  std::vector<std::string> warnings;
};

// Key spellings of one file, resolved: names by head and layer.
struct HeadNames {
  std::function<std::string(int32_t head, int32_t layer)> block;  // prefix such as "medusa_head.0.1.linear"
  std::function<std::string(int32_t head)> lm_head;               // prefix such as "hydra_lm_head.0"
  std::string token_map;                                          // empty when there is none
};

struct HeadsFile {
  HeadsInfo info;
  HeadNames names;
  std::unique_ptr<checkpoint::TensorSource> tensors;
};

// Opens a heads folder (or a whole model that holds heads) and says what it is. Throws FileError: no heads, unknown
// architecture, cross-attn and eagle-attn (by name), ungrounded prefix-mlp, LoRA tensors that are not zero.
HeadsFile OpenHeads(const std::string& folder);

// True when the folder holds draft heads that this version can name, without reading them all: for `inspect`.
bool HoldsHeads(const std::string& folder);

}  // namespace hydrant::draft
