// SPDX-License-Identifier: Apache-2.0
// A whole model of the Llama architecture with its gradient, for training that changes the base. The engine's own
// decoder computes the same (llama_model_test.cc), and has no gradient.
#pragma once

#include <ATen/ATen.h>

#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "model/weights.h"
#include "train/fit/networks/llama_layer.h"

namespace hydrant::train {

class LlamaModel {
 public:
  // Its parameters, by their names in Hugging Face's layout, in the order of a forward pass. Tied embeddings have no
  // lm head.
  static std::vector<ParameterRow> Rows(const model::ModelConfig& config);

  // `parameters` are made of Rows(config), and must outlive it. They start as LlamaLayer's do, the embedding likewise.
  LlamaModel(const model::ModelConfig& config, Parameters& parameters, at::Generator& random);

  // Sets the parameters to a loaded model's, whose config is the same. Throws FileError for packed weights.
  void Take(const model::ModelWeights& weights);

  // Hidden states [N, D] that `wanted` counts as model::kAfterFinalNorm says. batch.hidden is not read. Windows of
  // attention are not masked: CheckRows.
  std::vector<at::Tensor> States(const BatchTensors& batch, std::span<const int32_t> wanted, Precision precision) const;
  LmHead lm_head() const { return {.weight = lm_head_, .bias = {}}; }
  // What heads read; leaves with a gradient.
  BaseTensors tensors() const { return {.embedding = embedding_, .lm_head = lm_head_}; }

  // Throws UserError for rows longer than the window of the model's attention.
  static void CheckRows(const model::ModelConfig& config, int32_t row_tokens);

 private:
  model::ModelConfig config_;
  Parameters* parameters_;
  at::Tensor embedding_, final_norm_, lm_head_;
  std::vector<std::unique_ptr<LlamaLayer>> layers_;
};

}  // namespace hydrant::train
