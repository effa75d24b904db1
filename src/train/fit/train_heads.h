// SPDX-License-Identifier: Apache-2.0
// From text to heads: the whole run of `hydrant train heads`. No header of libtorch in here.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "hydrant/engine.h"
#include "train/head_rows.h"
#include "train/recipe.h"
#include "train/run_options.h"
#include "train/write_heads.h"

namespace hydrant::train {

// One kind of heads of a run. All kinds of a run see the same batches, for which the base runs once.
struct HeadsToTrain {
  HeadShape shape;
  bool prunes_vocab = false;  // to TrainHeadsOptions::draft_vocab_size tokens
  Recipe recipe;
};

struct TrainHeadsOptions : RunOptions {
  EngineOptions engine;  // the base: EngineOptions::model
  std::vector<HeadsToTrain> heads;
  // Of heads with prunes_vocab: so many of the tokens that are learned most often are drafted; 0: all of the base's.
  int32_t draft_vocab_size = 0;
  HeadFile file = HeadFile::kTorch;
  int32_t eval_tokens = 64;  // of each reply to a held-out text, over which tokens per step are measured
  // Where hidden states are kept that one epoch computes and later ones read, 2 bytes a number. Runs over the same text
  // may share a folder. Empty: in `out`, where there are several epochs.
  std::string cache = {};
  uint64_t cache_most = ~uint64_t{0};  // bytes; where the states take more, every epoch runs the base. 0: likewise
};

struct TrainedHeads {
  std::string arch, folder;
  double loss = 0;                                 // of the last step
  double tokens_per_step = 0, standard_error = 0;  // of the last evaluation; 0: there was none
  // The evaluation with the most tokens per step, of all calls of the run, and the heads as they were then.
  std::string best_folder = {};
  int64_t best_step = 0;
  double best_tokens_per_step = 0;
};

struct TrainHeadsReport : RunReport {
  std::vector<TrainedHeads> heads;
  double base_seconds = 0;  // of all, in the base's passes
};

// Throws UserError for what the user can set right; then the last checkpoint is whole.
TrainHeadsReport TrainHeads(const TrainHeadsOptions& options);

}  // namespace hydrant::train
