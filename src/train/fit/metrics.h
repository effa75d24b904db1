// SPDX-License-Identifier: Apache-2.0
// metrics.jsonl: a line of JSON for each kind of heads and each step that is logged.
#pragma once

#include <cstdint>
#include <cstdio>
#include <string>

#include "base/json_fwd.h"
#include "train/fit/head_fit.h"

namespace hydrant::train {

// Means of what the step has counted: losses, and the share of labels among each head's first 1 to 5 tokens.
base::Json MetricsOf(const StepFigures& figures);
// "loss 3.21, agreement .45 .33 .27 .22": of head i with the base's most likely token.
std::string WordsOf(const StepFigures& figures);

// What metrics.jsonl says, as curves over the steps: losses, and of agreement of the first head, tokens per step and
// perplexity what is there. An SVG file.
std::string PlotOf(const std::string& metrics_file);

// The line of `arch` with the most tokens per step; null where none was measured.
base::Json BestOf(const std::string& metrics_file, const std::string& arch);

// Is there a line of held-out texts after so many steps?
bool WasMeasured(const std::string& metrics_file, int64_t steps);

class MetricsFile {
 public:
  // Lines of steps after `kept_steps` are dropped: a run goes on from there.
  MetricsFile(const std::string& path, int64_t kept_steps);
  ~MetricsFile();
  MetricsFile(const MetricsFile&) = delete;
  MetricsFile& operator=(const MetricsFile&) = delete;

  void Add(const base::Json& line);

 private:
  std::string path_;
  std::FILE* file_ = nullptr;
};

}  // namespace hydrant::train
