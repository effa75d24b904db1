// SPDX-License-Identifier: Apache-2.0
// The base model's tensors as table rows: names, shapes in config symbols, shard axes. docs/formats.md.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "checkpoint/tensor_table.h"
#include "model/model_config.h"

namespace hydrant::model {

checkpoint::TensorRow EmbeddingRow(const ModelConfig& config);
checkpoint::TensorRow FinalNormRow(const ModelConfig& config);
// kUnused where the embeddings are tied: a redundant lm_head.weight is accepted.
checkpoint::TensorRow LmHeadRow(const ModelConfig& config);

// A linear layer's rows: "<name>.weight", and "<name>.bias" when `has_bias`.
struct LinearRows {
  checkpoint::TensorRow weight;  // [O, I]
  checkpoint::TensorRow bias;    // [O]
  bool has_bias = false;
};

struct LayerRowSet {
  checkpoint::TensorRow input_norm, post_attention_norm;  // [D]
  LinearRows q, k, v, o, gate, up, down;
  checkpoint::TensorRow q_norm, k_norm;  // [Dh], only with QK-norm
  checkpoint::TensorRow rotary;          // kUnused
};

// Rows of one decoder layer whose names start with `prefix` ("model.layers.3.").
LayerRowSet DecoderLayerRows(const ModelConfig& config, const std::string& prefix);

// "rotary_emb.inv_freq" buffers of old files: constants, stored rounded in some; recomputed from the config instead.
bool IsRotaryBuffer(std::string_view name);

}  // namespace hydrant::model
