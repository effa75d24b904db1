// SPDX-License-Identifier: Apache-2.0
// The chat that `hydrant run` opens in a terminal when there is no prompt.
#pragma once

#include <string>

#include "cli/flags/run_flags.h"
#include "hydrant/engine.h"

namespace hydrant::cli {

// Reads lines until /quit, Ctrl-D or the end of stdin. A turn that fails (a conversation beyond the context) is
// reported and taken back; the chat goes on. Returns the exit code.
int RunChat(Engine& engine, const RunOptions& options, const std::string& resolved_template);

}  // namespace hydrant::cli
