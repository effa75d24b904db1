// SPDX-License-Identifier: Apache-2.0
// The training of a base model on the next token of text: its network, its numbers, and one step of the optimizer.
#pragma once

#include <ATen/ATen.h>

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <vector>

#include "model/model_config.h"
#include "parallel/communicator.h"
#include "train/fit/llama_model.h"
#include "train/fit/lm_loss.h"
#include "train/fit/trained_parameters.h"
#include "train/recipe.h"
#include "train/trained_tensor.h"

namespace hydrant::train {

struct BaseFitOptions {
  model::ModelConfig config;
  OptimizerRecipe recipe = BaseRecipe();
  uint64_t seed = 1;
  Precision precision = Precision::kF32;
  int64_t total_steps = 1;
};

// Means over what was counted; perplexity is exp of the loss.
struct BaseFigures : OptimizerFigures {
  double loss = 0;
  double labels = 0;
};

// A model whose distribution is learned in place of the text's tokens, at a batch's positions.
struct BaseTeacher {
  at::Tensor hidden;   // [N, D], after the final norm; undefined: the text is learned
  at::Tensor lm_head;  // [V, D]
};

// What a step learns besides the next token of the text.
struct BaseExtras {
  BaseTeacher teacher = {};
  // Losses over hidden states, which `wanted` names as LlamaModel::States does: model::kAfterFinalNorm last. Called
  // once the states are known; returns the gradients of all states but the last.
  std::vector<int32_t> wanted = {};
  std::function<std::vector<at::Tensor>(const std::vector<at::Tensor>& states)> others = {};
};

class BaseFit {
 public:
  // The state at n of a base's own lm head predicts token n + 1.
  static constexpr int64_t kFirstShift = 1;

  explicit BaseFit(const BaseFitOptions& options);
  // Begins with a loaded model, whose config is the same.
  void Take(const model::ModelWeights& weights);

  // Adds the gradient of a batch. `labels`: those of the whole batch, of all ranks.
  void AddGradient(const BatchTensors& batch, double labels, const BaseExtras& extras = {});
  // Adds what the other ranks have added since the last step. Then Step does the same on all of them.
  void SumOver(parallel::Communicator& ranks);
  // Changes the parameters by what was added since the last step. Steps count from 0.
  BaseFigures Step(int64_t step);
  // The loss of texts, without a gradient.
  BaseFigures Evaluate(const BatchTensors& batch) const;
  // Hidden states without a gradient, as LlamaModel::States.
  std::vector<at::Tensor> States(const BatchTensors& batch, std::span<const int32_t> wanted) const;
  // Logits [N, V] at every position.
  at::Tensor Logits(const BatchTensors& batch) const;

  // What heads read: views that follow the parameters, without a gradient.
  BaseTensors tensors() const;
  TrainedParameters& trained() { return trained_; }
  Parameters& parameters() { return trained_.parameters(); }
  std::vector<TrainedTensor> Tensors() const { return trained_.parameters().Tensors(); }

 private:
  at::Tensor FinalState(const BatchTensors& batch) const;

  BaseFitOptions options_;
  TrainedParameters trained_;
  std::unique_ptr<LlamaModel> model_;
  double loss_ = 0, labels_ = 0;  // since the last step
};

}  // namespace hydrant::train
