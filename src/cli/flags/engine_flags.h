// SPDX-License-Identifier: Apache-2.0
// Flags of every command that loads a model to run it.
#pragma once

#include <functional>
#include <span>
#include <string>
#include <string_view>

#include "cli/flags/flags.h"
#include "hydrant/engine.h"

namespace hydrant::cli {

// --model and --weights.
void AddBaseFlags(FlagSet& flags, EngineOptions& options);
// --model, --draft and AddWeightFlags.
void AddModelFlags(FlagSet& flags, EngineOptions& options);
// --weights, --head-weights and the draft vocabulary.
void AddWeightFlags(FlagSet& flags, EngineOptions& options);
// --tree-memory; without it the user's cache folder.
void AddTreeMemoryFlag(FlagSet& flags, EngineOptions& options);
// --threads, --cpu-target, --kv-type, --prefill-chunk.
void AddMachineFlags(FlagSet& flags, EngineOptions& options);
void AddKvMemoryFlag(FlagSet& flags, EngineOptions& options);

// As help texts list them.
std::string CpuTargetChoices();

// Values of --kv-type (load::KvTypeNamed).
std::span<const std::string_view> KvTypeNames();

// For EngineOptions::on_pack: a line on a terminal while weights are converted; Ctrl-C ends it (Interruption).
std::function<void(double share)> PackProgress();

// Refuses empty values, and folders that are not there.
void CheckFolders(const EngineOptions& options);
// Refuses heads without the base model that they belong to: the embedded model has its own.
void CheckDraftHasModel(const EngineOptions& options);
void CheckNotEmpty(const FlagSet& flags, const char* flag, const std::string& value);

}  // namespace hydrant::cli
