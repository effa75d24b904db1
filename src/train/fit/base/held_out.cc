// SPDX-License-Identifier: Apache-2.0
#include "train/fit/base/held_out.h"

#include <algorithm>
#include <span>
#include <string>
#include <vector>

#include "base/free_memory.h"
#include "hydrant/error.h"

namespace hydrant::train {
namespace {

// Values, gradients, both moments, and what decays.
constexpr uint64_t kBytesPerParameter = 5 * sizeof(float);

// Each in a row of its own.
BatchTensors TensorsOf(const TokenData& data, std::span<const Segment> segments) {
  std::vector<SegmentTokens> texts;
  for (const Segment& segment : segments) {
    const auto begin = static_cast<size_t>(segment.begin), count = static_cast<size_t>(segment.count);
    texts.push_back({std::span(data.tokens).subspan(begin, count), std::span(data.learned).subspan(begin, count)});
  }
  return MakeBatchTensors(texts, std::vector<int32_t>(texts.size(), 1), {});
}

}  // namespace

BaseFigures MeasureHeldOut(const BaseFit& fit, const RunData& run, int32_t rows,
                           const std::function<void(double share)>& progress) {
  const std::span<const Segment> held_out = run.held_out;
  BaseFigures all;
  for (size_t first = 0; first < held_out.size(); first += static_cast<size_t>(rows)) {
    progress(static_cast<double>(first) / static_cast<double>(held_out.size()));
    const size_t count = std::min(static_cast<size_t>(rows), held_out.size() - first);
    const BaseFigures part = fit.Evaluate(TensorsOf(run.data, held_out.subspan(first, count)));
    all.loss += part.loss * part.labels;
    all.labels += part.labels;
  }
  if (all.labels > 0) all.loss /= all.labels;
  return all;
}

void CheckTrainingMemory(const model::ModelConfig& config) {
  int64_t parameters = 0;
  for (const ParameterRow& row : LlamaModel::Rows(config)) parameters += row.num_elements();
  const base::FreeMemory free = base::FreeNow();
  const uint64_t bytes = static_cast<uint64_t>(parameters) * kBytesPerParameter;
  if (bytes <= free.own) return;
  throw UserError("a model of " + std::to_string(parameters) + " parameters takes " + base::MemoryText(bytes) +
                      " to train (20 bytes each), and " + base::FreeText(free),
                  "choose a smaller model");
}

}  // namespace hydrant::train
