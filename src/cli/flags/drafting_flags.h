// SPDX-License-Identifier: Apache-2.0
// Flags that `run`, `serve`, `bench latency` and `bench batch` have in common beside those of every engine
// (engine_flags.h).
#pragma once

#include <string>

#include "cli/flags/flags.h"
#include "cli/flags/run_flags.h"

namespace hydrant::cli {

// What a command adds to their help.
struct DraftingHelp {
  std::string tree = {};   // behind --tree's default
  std::string other = {};  // behind that of --draft-p-min and --lookup
};
// --tree and what grown trees take, --tree-memory, --draft-p-min, --lookup and its rule.
void AddDraftingFlags(FlagSet& flags, RunOptions& options, const DraftingHelp& help);
// --accept, --epsilon, --alpha, --root, --candidates.
void AddAcceptFlags(FlagSet& flags, AcceptOptions& accept);
// --template.
void AddTemplateFlag(FlagSet& flags, RunOptions& options);
// Of those flags. Refuses what does not fit together; the first of several values becomes that of engine and request.
void CheckDrafting(const FlagSet& flags, RunOptions& options);
// For commands that take one value of each; with `may_have_trees` several of --tree.
void CheckOneOfEach(const RunOptions& options, bool may_have_trees);
// Throws UserError where a flag is given that only heads or draft models have a use for.
void RefuseWithoutDrafter(const FlagSet& flags, const std::string& hint);
// Likewise of --accept and --compare-plain, and settles alpha.
void CheckAcceptance(const FlagSet& flags, RunOptions& options);

}  // namespace hydrant::cli
