// SPDX-License-Identifier: Apache-2.0
// Writes draft heads as another project spells them: the same numbers under other names, in other files.
// docs/formats.md.
#pragma once

#include <atomic>
#include <cstdint>
#include <functional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/unfinished.h"

namespace hydrant::convert {

// What RespellOptions::layout may be.
std::span<const std::string_view> HeadLayoutNames();

struct RespellOptions {
  std::string in = {};      // heads, or a whole model with heads
  std::string out = {};     // made; see OutputFolder
  std::string layout = {};  // one of HeadLayoutNames
  // The base. "medusa-b" writes it too, "tensorrt-llm" takes its sizes into the config, and heads without an lm head
  // take its lm head where the layout needs one. With it the heads are checked against it.
  std::string model = {};
  int64_t tp = 1;  // rank files; of "tensorrt-llm" only
  bool replace = false;
  std::function<void(double share)> progress = {};  // may throw to end the work; then nothing is left behind
  std::function<void(const base::Leftover& leftover)> on_removed = {};  // as ConvertOptions::on_removed
  const std::atomic<bool>* stop = nullptr;  // as EngineOptions::stop; throws Stopped, likewise
};

struct RespellReport {
  std::vector<std::string> weights_files;  // in `out`
  std::string drafter;                     // HeadsInfo::name
  int64_t num_tensors = 0;                 // names, in all files
  uint64_t bytes = 0;                      // of all tensors of all files
  std::vector<std::string> left_out;       // tensors of the source that nothing reads and the layout has no place for
  std::string source_hash;
  std::vector<std::string> warnings;
  double seconds = 0;
};

// Throws UserError for options that do not fit, FileError for heads that the layout cannot hold, and what reading the
// folder throws.
RespellReport RespellHeads(const RespellOptions& options);

}  // namespace hydrant::convert
