// SPDX-License-Identifier: Apache-2.0
// From a base model and text to that model and heads, trained together: the whole run of `hydrant train medusa2`
// (Medusa paper, arXiv 2401.10774, sections 2.2.2 and 2.3.2). No header of libtorch in here.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "hydrant/engine.h"
#include "train/head_rows.h"
#include "train/recipe.h"
#include "train/run_options.h"
#include "train/write_heads.h"

namespace hydrant::train {

// First the heads learn alone, by their own recipe, which spares the base the large gradients of heads that know
// nothing. Then both learn, and the loss is the base's plus heads_weight times that of the heads.
struct TrainMedusa2Options : RunOptions {
  EngineOptions engine;                     // the base: EngineOptions::model
  HeadShape shape;                          // of medusa, hydra or hydra++
  Recipe heads;                             // of the heads alone
  OptimizerRecipe joint = JointRecipe();    // of both: epochs, and the base's optimizer
  double heads_rate_factor = 4;             // while both learn, the heads' rate is so many times the base's
  std::optional<double> heads_weight = {};  // unset: 0.2, with self_distillation 0.01
  // The base learns to keep the distribution that it had, in place of the text's tokens: for text that it has written.
  bool self_distillation = false;
  HeadFile file = HeadFile::kTorch;
  int32_t eval_tokens = 64;  // of each reply to a held-out text, over which tokens per step are measured

  double HeadsWeight() const { return heads_weight.value_or(self_distillation ? 0.01 : 0.2); }
};

struct TrainMedusa2Report : RunReport {
  std::string base_folder, heads_folder;
  double base_loss = 0, heads_loss = 0;            // of the last step; base_loss: 0 while the heads learn alone
  double perplexity_before = 0, perplexity = 0;    // of the base on held-out text; 0: not measured
  double tokens_per_step = 0, standard_error = 0;  // of the last evaluation; 0: there was none
};

// Throws UserError for what the user can set right; then the last checkpoint is whole.
TrainMedusa2Report TrainMedusa2(const TrainMedusa2Options& options);

}  // namespace hydrant::train
