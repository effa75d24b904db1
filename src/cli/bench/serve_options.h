// SPDX-License-Identifier: Apache-2.0
// The command line of `hydrant bench serve`, read and checked before anything is sent.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "traffic/load.h"

namespace hydrant::cli {

// One way of asking, measured beside the others.
struct ServeWay {
  std::string name;         // "4 open", "2.5/s, plain"
  int32_t concurrency = 0;  // 0: by rate
  bool is_plain = false;
};

struct BenchServeOptions {
  traffic::Server server;
  traffic::RequestSettings request;  // model: empty = the server's first
  traffic::LoadPlan plan;            // but its concurrency
  std::string suite_file;
  std::vector<ServeWay> ways;  // with --compare-plain: each with drafts, then plain
  bool compares_plain = false;
  int rounds = 1;
  int64_t warmup = -1;  // prompts; negative: not said
  bool json = false;
};

// Nothing when help was asked for and has been printed. Throws UserError.
std::optional<BenchServeOptions> ParseBenchServeFlags(const std::vector<std::string>& args);

}  // namespace hydrant::cli
