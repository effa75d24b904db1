// SPDX-License-Identifier: Apache-2.0
// A base model's weights, used where they lie in the mapped files. Norms and biases are widened to f32 (a few KB).
#pragma once

#include <memory>
#include <span>
#include <string>
#include <vector>

#include "checkpoint/tensor_source.h"
#include "checkpoint/tensor_table.h"
#include "kernels/ops/ops.h"
#include "model/model_config.h"
#include "quant/packed_weight.h"
#include "tensor/tensor.h"

namespace hydrant::model {

// A linear layer: floats used where they lie, or packed codes.
struct Linear {
  std::string name, file;                             // of the weight, where it was read
  TensorView weight;                                  // [O, I] floats; empty when packed
  int64_t first_input = 0, num_inputs = -1;           // the columns of `weight` in use; -1: all
  std::shared_ptr<const quant::PackedWeight> packed;  // null: floats
  std::vector<float> bias;                            // [O] or empty

  kernels::Weight view() const;
  int64_t outputs() const { return packed ? packed->matrix.outputs : weight.shape[0]; }
  uint64_t bytes() const;      // that one matmul reads
  const char* format() const;  // "w4a8", or the float type
};

struct LayerWeights {
  std::vector<float> input_norm;           // [D]
  Linear q;                                // [H * Dh, D]
  Linear k, v;                             // [Hk * Dh, D]
  Linear o;                                // [D, H * Dh]
  std::vector<float> q_norm, k_norm;       // [Dh] with QK-norm, else empty
  std::vector<float> post_attention_norm;  // [D]
  Linear gate, up;                         // [F, D]
  Linear down;                             // [D, F]
};

struct ModelWeights {
  ModelConfig config;
  TensorView embedding;  // [V, D]
  std::vector<LayerWeights> layers;
  std::vector<float> final_norm;            // [D]
  Linear lm_head;                           // [V, D]; the embedding when tied
  uint64_t bytes = 0;                       // of distinct tensors in use
  std::vector<std::string> used_tensors;    // as the source spells them
  std::vector<std::string> unused_tensors;  // accepted and not used, for `inspect`
  std::vector<std::string> warnings;        // where the file and its config say different things
  std::string file;                         // display name of the checkpoint
  std::string converted_from;               // name of the folder that a converted one was made from; empty: none
};

// Reads config and weights of a Hugging Face folder. Head tensors in a whole-model folder are skipped. Where the config
// ties the embeddings and the file holds another lm head, `config.tied_embeddings` becomes false.
// Throws FileError with the sentence of docs/errors.md.
ModelWeights LoadModelWeights(const std::string& folder);

// Throws FileError unless all of them round their inputs alike: layers that read one input go through one product.
void CheckOneKind(std::span<const Linear* const> linears, const std::string& file, const std::string& what);

// Table rows of one decoder layer whose names start with `prefix` ("model.layers.3."). The base model and the prefix
// layer of Hydra++ heads both use them.
std::vector<checkpoint::TensorRow> LayerRows(const ModelConfig& config, const std::string& prefix);
LayerWeights TakeLayer(checkpoint::TableLoader& loader, const ModelConfig& config, const std::string& prefix);

// The matrix of a row, floats or packed, without a bias. An optional matrix that is absent has neither floats nor
// codes.
Linear TakeLinear(checkpoint::TableLoader& loader, const checkpoint::TensorRow& row);
// The same as `count` matrices of equally many inputs each, in order.
std::vector<Linear> TakeLinearSlices(checkpoint::TableLoader& loader, const checkpoint::TensorRow& row, int64_t count);

// Every linear layer, in the order of a forward pass.
std::vector<Linear*> LinearsOf(LayerWeights& layer);

}  // namespace hydrant::model
