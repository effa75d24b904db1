// SPDX-License-Identifier: Apache-2.0
// What drafting costs, part by part: the paper's Table 1 (prefix layer, each head, base step), beside the time that
// reading the parts' weights takes.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "draft/drafter.h"
#include "draft/heads/head_kind.h"
#include "eval/roofline.h"
#include "eval/spread.h"
#include "kernels/ops/queue.h"
#include "model/weights.h"
#include "tree/topology.h"

namespace hydrant::eval {

struct HeadsOptions {
  kernels::Queue* queue = nullptr;  // the drafter's, too
  const model::ModelWeights* base = nullptr;
  draft::Drafter* drafter = nullptr;
  draft::Drafter* portable = nullptr;      // the same heads on the portable table, to compare with; null: no check
  std::vector<int64_t> part_weights = {};  // as PartWeights gives them; empty: a draft model
  tree::Topology tree = {};                // to be filled; every depth of the heads, or fewer
  int context = 32;
  int committed = 3;  // rows that a step hands to the drafter: root and accepted nodes
  DType kv_type = DType::kF32;
  double seconds = 5;                                                           // at least three rounds
  std::function<bool(double share, const std::string& note)> on_progress = {};  // false: stop
};

struct DraftPart {
  std::string name;   // "prefix layer", "head 1", .., "all"
  int64_t bytes = 0;  // of its tensors, each once
  Spread ms;
  Spread read_ms;      // bytes / read bandwidth of the same moment
  double ratio = 0;    // ms / read_ms, median over the rounds
  double of_step = 0;  // ms / base step, median over the rounds
};

struct HeadsResult {
  Spread step_ms;  // base step: one row
  int64_t step_bytes = 0;
  Spread read_gb_s;
  std::vector<DraftPart> parts;  // "all" last
  int rounds = 0;
  bool checked = false;
};

// Measures in turn the base step, the prefix layer over committed rows, and drafting with the tree cut to depth 1, 2,
// ..: a head's time is the difference of two depths. First compares the heads' logits with those of `portable`, bit for
// bit.
HeadsResult MeasureHeads(const HeadsOptions& options);

// Weights of the matrices that each part reads, tied blocks once: [0] the prefix layer (0 where there is none), [i]
// head i. `draft_rows`: tokens that the heads draft.
std::vector<int64_t> PartWeights(const draft::HeadsFile& file, const model::ModelConfig& base, int64_t draft_rows);

}  // namespace hydrant::eval
