// SPDX-License-Identifier: Apache-2.0
// A reply that appears while it is made, or does not.
#pragma once

#include "cli/flags/run_flags.h"
#include "hydrant/engine.h"

namespace hydrant::cli {

// --show-drafts in a terminal, or with --color=always.
bool UseColor(const RunOptions& options);

// Generates and writes every piece of text to stdout at once; Ctrl-C ends the reply (finish_reason "cancelled").
GenerationResult StreamReply(Engine& engine, const GenerationRequest& request, bool color);

// Prints nothing; Ctrl-C ends it likewise.
GenerationResult GenerateSilently(Engine& engine, const GenerationRequest& request);

}  // namespace hydrant::cli
