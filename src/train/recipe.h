// SPDX-License-Identifier: Apache-2.0
// How heads are trained, by names: what their authors did, as far as papers and repositories say it (docs/training.md
// has the sources).
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace hydrant::train {

// How the optimizer goes: AdamW, a linear rise and half a cosine, clipping.
struct OptimizerRecipe {
  double peak_rate = 1e-3;
  int64_t warmup_steps = 40;
  double final_factor = 0;
  double beta1 = 0.9, beta2 = 0.999, epsilon = 1e-8;
  double weight_decay = 0;
  double clip = 1;  // largest norm of the gradient; 0: any
  int32_t epochs = 1;
};

struct Recipe : OptimizerRecipe {
  std::string name;
  // What is minimised, per head: label_weight times the cross-entropy against the text's token, and teacher_weight
  // times that against the base's own distribution. Head i counts head_decay^i.
  double label_weight = 1, teacher_weight = 0;
  double head_decay = 1;
  // Distance of each head's last state from the base's hidden state at the place that it stands for (smooth L1).
  double reconstruction_weight = 0;
  double noise_alpha = 0;  // NEFTune on the hidden states
  double text_noise = 0;   // PassOptions::text_noise
  double dropout = 0;

  // Of heads that go on token by token (head_rows.h): passes that are trained, 1 at least. Of others it says nothing.
  int32_t num_passes = 0;
};

// "medusa-1", "medusa-teacher", "hydra", "hydra-teacher", "hydra++", "hydra++-repo", "eagle-1", "eagle-3", "redrafter".
std::vector<std::string_view> RecipeNames();
// Throws UserError for an unknown name, with the nearest one.
Recipe RecipeNamed(std::string_view name);
// What an arch is trained by where nobody names a recipe: the best that is known here (docs/benchmarks/training.md).
Recipe UsualRecipe(std::string_view arch);

// How a base model is trained: the optimizer's numbers of Llama's paper (arXiv 2302.13971, section 2.3), with a peak
// rate for models of a few million parameters.
OptimizerRecipe BaseRecipe();

// How a base and its heads are trained together: the optimizer's numbers of FasterDecoding/Medusa's second stage, with
// a peak rate of the base for training all of its weights (that code trains low-rank ones).
OptimizerRecipe JointRecipe();

}  // namespace hydrant::train
