// SPDX-License-Identifier: Apache-2.0
// The command line of `hydrant serve`.
#pragma once

#include <chrono>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "cli/flags/run_flags.h"
#include "server/http/http_server.h"

namespace hydrant::cli {

struct ServeOptions {
  RunOptions run;  // model, heads, drafting, template
  server::HttpOptions http;
  std::string model_name;    // as clients see it; empty: the folder's name
  int32_t queue = 256;       // sequences that wait
  int32_t max_tokens = 0;    // of one reply; 0: as many as the context holds
  int32_t most_per_key = 0;  // sequences of one key; 0: as of all together
  std::string api_key_file;
  bool share_cache = false, log_requests = false, quiet = false;
  bool allow_unknown = false;
  std::chrono::seconds drain_delay{0}, shutdown_timeout{30}, request_timeout{0};
};

// Nothing when help was asked for and has been printed. Throws UserError.
std::optional<ServeOptions> ParseServeFlags(const std::vector<std::string>& args);

}  // namespace hydrant::cli
