// SPDX-License-Identifier: Apache-2.0
// The time of a forward pass over R rows, beside the roofline of the same moment: the thesis that verifying a tree
// costs what one token costs, measured.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "eval/roofline.h"
#include "eval/spread.h"
#include "kernels/ops/queue.h"
#include "model/decoder.h"
#include "model/weights.h"
#include "quant/packed_weight.h"

namespace hydrant::eval {

struct StepOptions {
  kernels::Queue* queue = nullptr;
  const model::ModelWeights* weights = nullptr;
  quant::WeightFormat format = quant::WeightFormat::kStored;
  std::vector<int> rows = {};  // each: a tree of so many nodes, the root at position `context`
  int context = 32;            // positions with random keys and values
  DType kv_type = DType::kF32;
  int prefill = 0;          // > 0: also a prompt of so many tokens, by chunks
  int prefill_chunk = 256;  // rows
  double seconds = 10;      // at least three rounds
  bool check = true;
  std::function<bool(double share, const std::string& note)> on_progress = {};  // false: stop
};

struct PassTime {
  int rows = 0;
  int passes = 0;  // timed
  Spread ms;
  Spread roofline_ms;  // max(bytes / read speed, rows * multiplies / multiply speed), from the readings around the pass
  Spread share;        // roofline over time, pass by pass
  double ratio = 0;    // to one row, median over the rounds; 0 where one row was not asked for
};

struct StepResult {
  int64_t weight_bytes = 0, kv_bytes = 0;  // what one pass reads
  int64_t macs_per_row = 0;
  Spread read_gb_s, multiply_gmac_s;
  std::vector<PassTime> rows;
  PassTime prefill;  // rows = 0: not asked for; the logits of one row only
  int rounds = 0;
  bool checked = false;
};

// Measures all numbers of rows in turn, again and again, each after a pass that is not timed; reads the roofline
// between any two of them. First checks one layer and the lm head for every number of rows, on sampled rows, bit for
// bit against the portable table (keys and values in f32). An InternalError says where they differ.
StepResult MeasureStep(const StepOptions& options);

// The type whose multiply peak bounds a format's matmuls, and the products per weight and row.
kernels::PeakType MultiplyTypeOf(quant::WeightFormat format);
int ProductsOf(quant::WeightFormat format);

}  // namespace hydrant::eval
