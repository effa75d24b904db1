// SPDX-License-Identifier: Apache-2.0
// From text to heads: the whole run of `hydrant train heads`. No header of libtorch in here.
#pragma once

#include <atomic>
#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "hydrant/engine.h"
#include "parallel/communicator.h"
#include "tensor/dtype.h"
#include "train/head_rows.h"
#include "train/recipe.h"
#include "train/write_heads.h"

namespace hydrant::train {

// One kind of heads of a run. All kinds of a run see the same batches, for which the base runs once.
struct HeadsToTrain {
  HeadShape shape;
  Recipe recipe;
};

struct TrainProgress {
  int64_t step = 0, steps = 0;  // done, and all
  int32_t epoch = 0;            // from 0
  double tokens_per_second = 0;
  double seconds_left = 0;
  std::string text = {};  // losses and agreement of the last step that counted them
};

struct TrainHeadsOptions {
  EngineOptions engine;            // the base: EngineOptions::model
  std::vector<std::string> data;   // files (train/data/documents.h)
  std::string template_name = {};  // of conversations; empty: the base's own
  bool learns_prompts = false;     // RunDataOptions::learns_prompts
  std::string out;                 // folder
  std::vector<HeadsToTrain> heads;
  // Of eagle3: so many of the tokens that are learned most often are drafted; 0: all tokens of the base.
  int32_t draft_vocab_size = 0;
  int64_t tokens = 0;        // of an epoch at least; 0: all that there are
  int32_t row_tokens = 256;  // the longest text that the base is shown
  int32_t rows = 8;          // of a batch
  uint64_t seed = 1;
  std::string precision = "auto";  // of products: f32 | bf16; auto: bf16 where the CPU multiplies it
  HeadFile file = HeadFile::kTorch;
  DType dtype = DType::kBF16;  // of the file
  int64_t log_every = 10;      // steps
  int64_t save_every = 200;
  // Tokens per step are measured every so many steps and at the end, on texts that are not trained on. 0: never.
  int64_t eval_every = 500;
  int32_t eval_texts = 24;   // held out of the data, at most a tenth of it
  int32_t eval_tokens = 64;  // of each reply
  // Where hidden states are kept that one epoch computes and later ones read, 2 bytes a number. Runs over the same text
  // may share a folder. Empty: in `out`, where there are several epochs.
  std::string cache = {};
  uint64_t cache_most = ~uint64_t{0};  // bytes; where the states take more, every epoch runs the base. 0: likewise
  bool resume = false;                 // go on where the run in `out` was
  bool replace = false;                // begin anew where there is one
  std::function<void(const TrainProgress& progress)> on_progress = {};
  std::function<void(const std::string& stage, double share)> on_stage = {};  // loading, reading; may throw
  std::function<void(const std::string& text)> warn = {};
  std::function<void(const std::string& text)> note = {};  // what is going to be done: sizes, where things are kept
  const std::atomic<bool>* stop = nullptr;                 // true: a checkpoint is written, and the run ends
  // Processes that each compute a share of every step, with the same options; null: this one alone. Rank 0 writes the
  // files and calls the functions. It decides from where a run goes on, and any rank's `stop` ends all of them.
  parallel::Communicator* ranks = nullptr;
};

struct TrainedHeads {
  std::string arch, folder;
  double loss = 0;                                 // of the last step
  double tokens_per_step = 0, standard_error = 0;  // of the last evaluation; 0: there was none
};

struct TrainHeadsReport {
  std::vector<TrainedHeads> heads;
  int64_t steps = 0, all_steps = 0;  // done, and of the whole run
  int64_t tokens = 0;                // of the steps of this call
  double seconds = 0;
  double base_seconds = 0;  // of these, in the base's passes
  bool stopped = false;     // by TrainHeadsOptions::stop, before the last step
};

// Throws UserError for what the user can set right; then the last checkpoint is whole.
TrainHeadsReport TrainHeads(const TrainHeadsOptions& options);

}  // namespace hydrant::train
