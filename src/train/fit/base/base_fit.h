// SPDX-License-Identifier: Apache-2.0
// The training of a base model on the next token of text: its network, its numbers, and one step of the optimizer.
#pragma once

#include <ATen/ATen.h>

#include <cstdint>
#include <memory>
#include <optional>
#include <vector>

#include "model/model_config.h"
#include "parallel/communicator.h"
#include "train/fit/adamw.h"
#include "train/fit/llama_model.h"
#include "train/fit/lm_loss.h"
#include "train/fit/parameters.h"
#include "train/recipe.h"
#include "train/schedule.h"
#include "train/trained_tensor.h"

namespace hydrant::train {

struct BaseFitOptions {
  model::ModelConfig config;
  Recipe recipe = BaseRecipe();
  uint64_t seed = 1;
  Precision precision = Precision::kF32;
  int64_t total_steps = 1;
};

// Means over what was counted; perplexity is exp of the loss.
struct BaseFigures {
  double loss = 0;
  double labels = 0;
  double rate = 0;           // of learning
  double gradient_norm = 0;  // before clipping
};

class BaseFit {
 public:
  // The state at n of a base's own lm head predicts token n + 1.
  static constexpr int64_t kFirstShift = 1;

  explicit BaseFit(const BaseFitOptions& options);

  // Adds the gradient of a batch. `labels`: those of the whole batch, of all ranks.
  void AddGradient(const BatchTensors& batch, double labels);
  // Adds what the other ranks have added since the last step. Then Step does the same on all of them.
  void SumOver(parallel::Communicator& ranks);
  // Changes the parameters by what was added since the last step. Steps count from 0.
  BaseFigures Step(int64_t step);
  // The loss of texts, without a gradient.
  BaseFigures Evaluate(const BatchTensors& batch) const;
  // Logits [N, V] at every position.
  at::Tensor Logits(const BatchTensors& batch) const;

  Parameters& parameters() { return parameters_; }
  AdamW& optimizer() { return optimizer_; }
  // Views of the parameters as they are now, by their names in the file.
  std::vector<TrainedTensor> Tensors() const;

 private:
  at::Tensor States(const BatchTensors& batch) const;
  LossResult LossOf(const at::Tensor& states, const BatchTensors& batch, const LossOptions& options) const;

  BaseFitOptions options_;
  Parameters parameters_;
  std::unique_ptr<LlamaModel> model_;
  AdamW optimizer_;
  Schedule schedule_;
  double loss_ = 0, labels_ = 0;  // since the last step
  std::optional<double> norm_;    // of the gradient, where ranks have agreed on it
};

}  // namespace hydrant::train
