// SPDX-License-Identifier: Apache-2.0
// Writes a folder whose linear layers are packed and load by mapping the file. docs/formats.md.
#pragma once

#include <atomic>
#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "base/unfinished.h"
#include "quant/packed_weight.h"

namespace hydrant::convert {

struct ConvertOptions {
  std::string in = {};     // a base, heads, or a whole model with heads
  std::string out = {};    // made; see OutputFolder
  std::string model = {};  // the base that heads belong to; empty: `in` itself
  std::optional<quant::WeightFormat> weights = {}, head_weights = {};  // packed formats; heads without one: w8a8
  std::optional<kernels::PackedLayout> layout = {};  // without one: what this machine's kernels read as it lies
  bool replace = false;
  int threads = 0;                                  // 0: all
  std::function<void(double share)> progress = {};  // may throw to end the work; then nothing is left behind
  // Called before the work, for each folder beside `out` that a killed conversion had left and that was removed.
  std::function<void(const base::Leftover& leftover)> on_removed = {};
  const std::atomic<bool>* stop = nullptr;  // as EngineOptions::stop; throws Stopped, likewise
};

struct ConvertReport {
  std::string weights_file;  // in `out`
  kernels::PackedLayout layout = kernels::PackedLayout::kLines;
  int64_t num_packed = 0;                      // tensors
  uint64_t bytes_before = 0, bytes_after = 0;  // of all tensors of the file
  std::string source_hash;
  std::vector<std::string> warnings;  // of what was read
  double seconds = 0;
};

// Throws UserError for options that do not fit the folder, for folders that are packed already, and what reading the
// folder throws.
ConvertReport ConvertFolder(const ConvertOptions& options);

}  // namespace hydrant::convert
