// SPDX-License-Identifier: Apache-2.0
// What every training run is told, whatever it trains.
#pragma once

#include <atomic>
#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "parallel/communicator.h"
#include "tensor/dtype.h"

namespace hydrant::train {

struct TrainProgress {
  int64_t step = 0, steps = 0;  // done, and all
  int32_t epoch = 0;            // from 0
  double tokens_per_second = 0;
  double seconds_left = 0;
  std::string text = {};  // losses of the last step that counted them
};

struct RunOptions {
  std::vector<std::string> data;   // files (train/data/documents.h)
  std::string template_name = {};  // of conversations; empty: the base's own
  bool learns_prompts = false;     // RunDataOptions::learns_prompts
  std::string out;                 // folder
  int64_t tokens = 0;              // of an epoch at least; 0: all that there are
  int32_t row_tokens = 256;        // the longest text that the model is shown
  int32_t rows = 8;                // of a batch
  uint64_t seed = 1;
  std::string precision = "auto";  // of products: f32 | bf16; auto: bf16 where the CPU multiplies it
  DType dtype = DType::kBF16;      // of the tensors in the files that are made
  int64_t log_every = 10;          // steps
  int64_t save_every = 200;
  // Held-out texts are measured every so many steps and at the end. 0: never.
  int64_t eval_every = 500;
  int32_t eval_texts = 24;  // held out of the data, at most a tenth of it
  bool resume = false;      // go on where the run in `out` was
  bool replace = false;     // begin anew where there is one
  std::function<void(const TrainProgress& progress)> on_progress = {};
  std::function<void(const std::string& stage, double share)> on_stage = {};  // loading, reading; may throw
  std::function<void(const std::string& text)> warn = {};
  std::function<void(const std::string& text)> note = {};  // what is going to be done: sizes, where things are kept
  const std::atomic<bool>* stop = nullptr;                 // true: a checkpoint is written, and the run ends
  // Processes that each compute a share of every step, with the same options; null: this one alone. Rank 0 writes the
  // files and calls the functions. It decides from where a run goes on, and any rank's `stop` ends all of them.
  parallel::Communicator* ranks = nullptr;
};

struct RunReport {
  int64_t steps = 0, all_steps = 0;  // done, and of the whole run
  int64_t tokens = 0;                // of the steps of this call
  double seconds = 0;
  bool stopped = false;  // by RunOptions::stop, before the last step
};

}  // namespace hydrant::train
