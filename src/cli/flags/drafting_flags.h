// SPDX-License-Identifier: Apache-2.0
// Flags that `run` and `serve` have in common beside those of every engine (engine_flags.h).
#pragma once

#include "cli/flags/flags.h"
#include "cli/flags/run_flags.h"

namespace hydrant::cli {

// --tree, --tree-memory, --draft-p-min, --lookup, --lookup-rule, --lookup-min,
// --lookup-max-match.
void AddDraftingFlags(FlagSet& flags, RunOptions& options);
// --accept, --epsilon, --alpha, --root, --candidates.
void AddAcceptFlags(FlagSet& flags, AcceptOptions& accept);
// --template.
void AddTemplateFlag(FlagSet& flags, RunOptions& options);
// Refuses what does not fit together, and settles alpha.
void CheckAcceptance(const FlagSet& flags, RunOptions& options);

}  // namespace hydrant::cli
