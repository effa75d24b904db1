// SPDX-License-Identifier: Apache-2.0
// Parameters and the optimizer that changes them: a kind of heads has one, and a base that is trained.
#pragma once

#include <cstdint>
#include <optional>
#include <vector>

#include "parallel/communicator.h"
#include "train/fit/adamw.h"
#include "train/fit/parameters.h"
#include "train/recipe.h"
#include "train/schedule.h"

namespace hydrant::train {

struct OptimizerFigures {
  double rate = 0;           // of learning
  double gradient_norm = 0;  // before clipping
};

class TrainedParameters {
 public:
  TrainedParameters(std::vector<ParameterRow> rows, const OptimizerRecipe& recipe, int64_t total_steps);

  // Adds the gradients of the other ranks. Then Step does the same on all of them.
  void SumOver(parallel::Communicator& ranks);
  // Changes the values by the gradients, and sets these to zero. Steps count from 0. `rate`: in place of the recipe's.
  OptimizerFigures Step(int64_t step, std::optional<double> rate = {});

  Parameters& parameters() { return parameters_; }
  const Parameters& parameters() const { return parameters_; }
  AdamW& optimizer() { return optimizer_; }
  const Schedule& schedule() const { return schedule_; }

 private:
  Parameters parameters_;
  AdamW optimizer_;
  Schedule schedule_;
  double clip_;
  std::optional<double> norm_;  // of the gradient, where ranks have agreed on it
};

}  // namespace hydrant::train
