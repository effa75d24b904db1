// SPDX-License-Identifier: Apache-2.0
// The entry of hydrant-tokenizer.so.
#include "cli/train/modules.h"

extern "C" __attribute__((visibility("default"))) void HydrantTrainTokenizer(hydrant::cli::TokenizerJob* job) {
  try {
    job->model = hydrant::train::TrainTokenizer(job->files, *job->options);
  } catch (...) {
    job->error = std::current_exception();
  }
}
