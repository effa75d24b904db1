// SPDX-License-Identifier: Apache-2.0
// The training of one kind of heads: its network, its numbers, and one step of the optimizer.
#pragma once

#include <ATen/ATen.h>

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "draft/heads/head_tensors.h"
#include "model/model_config.h"
#include "parallel/communicator.h"
#include "train/fit/lm_loss.h"
#include "train/fit/networks/network.h"
#include "train/fit/trained_parameters.h"
#include "train/recipe.h"
#include "train/write_heads.h"

namespace hydrant::train {

struct FitOptions {
  draft::HeadsInfo info;  // DescribeHeads of the shape
  HeadShape shape;
  Recipe recipe;
  uint64_t seed = 1;
  Precision precision = Precision::kF32;
  int64_t total_steps = 1;
  int rank = 0;  // each draws dropout and noise of its own
};

struct StepFigures : OptimizerFigures {
  double loss = 0;
  std::vector<HeadSums> heads;
};

class HeadFit {
 public:
  // `base` must outlive it.
  HeadFit(FitOptions options, const model::ModelConfig& config, const BaseTensors& base);

  // Adds the gradient of a batch, whose labels count as the whole batch's: `counts` (LossOptions::counts).
  void AddGradient(const BatchTensors& batch, const at::Tensor& final_hidden, int64_t step,
                   const std::vector<double>& counts, bool with_agreement);
  // Adds what the other ranks have added since the last step. Then Step does the same on all of them.
  void SumOver(parallel::Communicator& ranks);
  // Changes the parameters by what was added since the last step. `rate`: in place of the recipe's.
  StepFigures Step(int64_t step, std::optional<double> rate = {});
  // The loss without a gradient, dropout or noise.
  LossResult Evaluate(const BatchTensors& batch, const at::Tensor& final_hidden) const;
  // Logits [N, V] of head i at every position; of a network that goes on token by token, i tokens below it.
  at::Tensor Logits(const BatchTensors& batch, int32_t head) const;

  const FitOptions& options() const { return options_; }
  TrainedParameters& trained() { return trained_; }
  Parameters& parameters() { return trained_.parameters(); }
  // Tokens that it learns to predict at a position.
  int32_t depth() const;
  // Views of the parameters as they are now.
  std::vector<TrainedTensor> Tensors() const { return trained_.parameters().Tensors(); }

 private:
  std::vector<LmHead> LmHeads() const;
  LossOptions LossOf(const std::vector<double>& counts, bool with_gradient, bool with_agreement) const;
  at::Tensor Reconstruction(const std::vector<at::Tensor>& states, const BatchTensors& batch,
                            const at::Tensor& final_hidden, const std::vector<double>& counts) const;

  FitOptions options_;
  const BaseTensors* base_;
  TrainedParameters trained_;
  std::unique_ptr<Network> network_;
  LossResult sums_;  // since the last step
};

}  // namespace hydrant::train
