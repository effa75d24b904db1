// SPDX-License-Identifier: Apache-2.0
#include "train/fit/trained_parameters.h"

#include <utility>

#include "train/fit/ranks.h"

namespace hydrant::train {

TrainedParameters::TrainedParameters(std::vector<ParameterRow> rows, const OptimizerRecipe& recipe, int64_t total_steps)
    : parameters_(std::move(rows)),
      optimizer_({.beta1 = recipe.beta1,
                  .beta2 = recipe.beta2,
                  .epsilon = recipe.epsilon,
                  .weight_decay = recipe.weight_decay},
                 parameters_.size()),
      schedule_({.peak = recipe.peak_rate,
                 .warmup_steps = recipe.warmup_steps,
                 .total_steps = total_steps,
                 .final_factor = recipe.final_factor}),
      clip_(recipe.clip) {}

void TrainedParameters::SumOver(parallel::Communicator& ranks) {
  if (ranks.size() > 1) norm_ = SumGradients(ranks, parameters_);
}

OptimizerFigures TrainedParameters::Step(int64_t step, std::optional<double> rate) {
  const OptimizerFigures figures{.rate = rate ? *rate : schedule_.At(step),
                                 .gradient_norm = norm_ ? *norm_ : GradientNorm(parameters_)};
  ClipGradients(parameters_, figures.gradient_norm, clip_);
  norm_.reset();
  optimizer_.Step(parameters_, figures.rate, step + 1);
  return figures;
}

}  // namespace hydrant::train
