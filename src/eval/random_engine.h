// SPDX-License-Identifier: Apache-2.0
// Engines over random weights: whole generations of a shape are timed without a download, by the code that `run` uses.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "eval/random_weights.h"
#include "hydrant/engine.h"

namespace hydrant::eval {

struct RandomModel {
  std::string shape;               // of ShapeNames()
  std::vector<std::string> heads;  // of RandomDrafterNames()
};

// Makes one engine for each kind of heads over one base, or one without heads where no kind is named. Random heads
// draft what the base does not choose, so acceptance is about 0. Of `options` it reads weights and head_weights
// (formats that random weights can be made in), draft_vocab_size, tree, threads, cpu_target, kv_type and prefill_chunk,
// and nothing that names a file. Throws UserError where memory is short. Empty when stopped.
std::vector<std::unique_ptr<Engine>> MakeRandomEngines(const RandomModel& what, const EngineOptions& options,
                                                       const FillProgress& on_progress);

}  // namespace hydrant::eval
