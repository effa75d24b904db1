// SPDX-License-Identifier: Apache-2.0
// From text to a base model: the whole run of `hydrant train base`. No header of libtorch in here.
#pragma once

#include <cstdint>
#include <functional>
#include <string>

#include "train/base_config.h"
#include "train/recipe.h"
#include "train/run_options.h"

namespace hydrant::train {

struct TrainBaseOptions : RunOptions {
  TrainBaseOptions() { row_tokens = 0; }  // as many as the model has positions

  BaseShape shape;
  // The folder whose tokenizer the model gets. Empty: a new one, which make_tokenizer makes of `data`.
  std::string tokenizer;
  // The content of tokenizer.model with so many tokens; train::TrainTokenizer, wherever that may run. On rank 0.
  std::function<std::string(int32_t vocab_size)> make_tokenizer;
  OptimizerRecipe recipe = BaseRecipe();
  int threads = 0;  // 0: as many as the process may use cores
};

struct TrainBaseReport : RunReport {
  int64_t num_parameters = 0;
  double loss = 0;           // of the last step
  double held_out_loss = 0;  // of the last evaluation
  double perplexity = 0;     // exp of it, per token; 0: there was none
};

// Throws UserError for what the user can set right; then the last checkpoint is whole.
TrainBaseReport TrainBase(const TrainBaseOptions& options);

}  // namespace hydrant::train
