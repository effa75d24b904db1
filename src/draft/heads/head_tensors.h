// SPDX-License-Identifier: Apache-2.0
// What a heads folder holds.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <utility>
#include <variant>
#include <vector>

#include "checkpoint/tensor_source.h"
#include "model/model_config.h"

namespace hydrant::draft {

struct HeadKind;  // head_kind.h
struct HeadLayout;

// What EAGLE-3's config counts where it lists hidden states: what enters layers, or what leaves them.
enum class LayerReading : uint8_t { kUnsaid, kInputs, kOutputs };

struct HeadsInfo {
  const HeadKind* kind = nullptr;
  const HeadLayout* rows = nullptr;     // how the file spells the tensors
  std::string name;                     // "medusa", "hydra", "hydra++"
  std::string layout;                   // Medusa: "a" .. "f" (docs/formats.md); Hydra: the hydra_head_arch
  std::string config_file;              // path of config.json (of the heads), for errors; empty when there is none
  std::string weights_file;             // display name
  int32_t num_heads = 0;                // K, from the keys
  int32_t num_layers = 0;               // blocks of one head, the input block included, from the keys
  bool sequentially_dependent = false;  // Hydra's grounded_heads
  bool own_lm_heads = true;             // false: logits through the base's lm head or one shared head
  bool shared_lm_head = false;          // one lm head for all heads, in the file
  bool grows_trees = false;             // Drafter::GrowsTrees of what they become
  bool lm_head_bias = false;
  bool block_bias = true;
  bool tied_blocks = false;  // blocks 2..L of each head are one block
  bool has_token_map = false;
  int64_t hidden_layer_offset = 0;
  double rope_theta = 10000.0;         // prefix layer
  int64_t num_kv_heads = 0;            // likewise; 0: as its key projection has rows
  std::vector<int64_t> hidden_layers;  // EAGLE-3: as the config lists them; empty: the authors' rule
  LayerReading hidden_layer_reading = LayerReading::kUnsaid;
  bool norm_before_residual = false;  // EAGLE-3 of the speculators library
  int64_t exit_size = 0;              // ReDrafter: columns of its blocks; 0: 2 * hidden_size
  bool is_recurrent = true;           // ReDrafter's 'rnn'; false: its states are sums
  int64_t vocab_size = 0;             // ReDrafter: as its config says it; 0: there is none
  int64_t hidden_size = 0;            // likewise
  // EAGLE: of its layer. MLP speculator: emb_dim as hidden_size, inner_dim as intermediate_size, vocab_size; 0: not
  // said.
  std::shared_ptr<const model::ModelConfig> layer;
  bool scale_input = false;          // MLP speculator: the hidden state is normed first
  std::vector<std::string> repeats;  // names in the file whose tensors stand under another name, too
  std::string base_model;            // base_model_name_or_path: information, never followed
  // Settings that only its kind has: for `inspect`.
  std::vector<std::pair<std::string, std::variant<double, int64_t, bool, std::string>>> facts;
  std::vector<std::string> warnings;
};

struct HeadsFile {
  HeadsInfo info;
  std::unique_ptr<checkpoint::TensorSource> tensors;
};

// Opens a heads folder (or a whole model that holds heads) and says what it is. Throws FileError: no heads, unknown
// architecture, ungrounded prefix-mlp, LoRA tensors that are not zero.
HeadsFile OpenHeads(const std::string& folder);

// True when the folder holds draft heads that this version can name, without reading them all: for `inspect`.
bool HoldsHeads(const std::string& folder);

}  // namespace hydrant::draft
