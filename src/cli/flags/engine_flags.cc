// SPDX-License-Identifier: Apache-2.0
#include "cli/flags/engine_flags.h"

#include <fmt/format.h>

#include <array>
#include <cstdlib>
#include <memory>
#include <string_view>

#include "cli/flags/values.h"
#include "cli/terminal/progress.h"
#include "cli/terminal/terminal.h"
#include "hydrant/error.h"
#include "kernels/kernels.h"

namespace hydrant::cli {
namespace {

constexpr std::array<std::string_view, 4> kKvTypes = {"auto", "f32", "bf16", "f16"};
constexpr std::array<std::string_view, 8> kWeightFormats = {"auto", "stored", "f32",   "bf16",
                                                            "w8a8", "w4a8",   "w8a16", "w4a16"};

void AddBaseFormat(FlagSet& flags, EngineOptions& options) {
  flags.Value(
      "--weights", "FORMAT",
      [&options](const std::string& value) { options.weights = ParseChoice("--weights", value, kWeightFormats); },
      "auto (as in the folder), stored, f32, bf16, w8a8, w4a8, w8a16 or w4a16 (default auto); w4a8: weights in 4 bits, "
      "what they multiply in 8. Other floats are converted at every start; 'hydrant convert' does it once");
}

// As freedesktop.org's base directory specification has it; empty where there is no home.
std::string CacheFolder() {
  if (const char* cache = std::getenv("XDG_CACHE_HOME"); cache != nullptr && cache[0] == '/') {
    return std::string(cache) + "/hydrant";
  }
  const char* home = std::getenv("HOME");
  return home != nullptr && home[0] == '/' ? std::string(home) + "/.cache/hydrant" : "";
}

}  // namespace

std::span<const std::string_view> KvTypeNames() { return kKvTypes; }

void AddBaseFlags(FlagSet& flags, EngineOptions& options) {
  flags.Text("--model", "DIR", &options.model, "Base model folder");
  AddBaseFormat(flags, options);
}

void AddModelFlags(FlagSet& flags, EngineOptions& options) {
  flags.Text("--model", "DIR", &options.model,
             "Base model folder (default of 'run': the embedded tale-14m with its heads)");
  flags.Repeated(
      "--draft", "DIR",
      [&options](const std::string& value) {
        if (value.empty()) throw UserError("--draft is empty");
        if (options.draft.empty()) {
          options.draft = value;
        } else {
          options.more_drafts.push_back(value);
        }
      },
      "Folder with draft heads (hydrant inspect names the kinds), or a small model with the same tokens; given several "
      "times, their trees are merged (default: none)");
  AddWeightFlags(flags, options);
}

void AddWeightFlags(FlagSet& flags, EngineOptions& options) {
  AddBaseFormat(flags, options);
  flags.Value(
      "--head-weights", "FORMAT",
      [&options](const std::string& value) {
        options.head_weights = ParseChoice("--head-weights", value, kWeightFormats);
      },
      "The same for the heads (default auto: w8a8 where the base is packed and the heads are floats)");
  const auto file = [&flags](const char* flag, std::string* target, const std::string& help) {
    const auto set = [=](const std::string& value) {
      if (value.empty()) throw UserError(fmt::format("{} is empty", flag));
      *target = value;
    };
    flags.Value(flag, "FILE", set, help);
  };
  file("--draft-vocab", &options.draft_vocab,
       "Heads draft these tokens only, a JSON array of ids; changes the speed, not the text");
  file("--draft-vocab-text", &options.draft_vocab_text,
       "The same with the --draft-vocab-size most frequent tokens of a text");
  flags.Value(
      "--draft-vocab-size", "N",
      [&options](const std::string& value) {
        options.draft_vocab_size = static_cast<int32_t>(ParseInteger("--draft-vocab-size", value, 1, 1 << 24));
      },
      "How many tokens of --draft-vocab-text");
}

void AddTreeMemoryFlag(FlagSet& flags, EngineOptions& options) {
  options.tree_memory = CacheFolder();
  if (!options.tree_memory.empty()) options.tree_memory += "/trees";
  flags.Value(
      "--tree-memory", "DIR",
      [&options](const std::string& value) {
        if (value.empty()) throw UserError("--tree-memory is empty", "name a folder, or none");
        options.tree_memory = value == "none" ? "" : value;
      },
      "Where --tree auto keeps what it learns of model, heads and machine from run to run; none = nowhere (default "
      "~/.cache/hydrant/trees)");
}

std::string CpuTargetChoices() { return fmt::format("{}", fmt::join(kernels::CpuTargetNames(), ", ")); }

void AddMachineFlags(FlagSet& flags, EngineOptions& options) {
  flags.Value(
      "--threads", "N",
      [&options](const std::string& value) {
        options.threads = static_cast<int32_t>(ParseInteger("--threads", value, 0, 1024));
      },
      "0 = one for each core that this process may use and the model has work for (default 0)");
  flags.Text("--cpu-target", "NAME", &options.cpu_target,
             "Instructions to use: " + CpuTargetChoices() + " (default auto: the best of this machine for the model)");
  flags.Value(
      "--kv-type", "TYPE",
      [&options](const std::string& value) { options.kv_type = ParseChoice("--kv-type", value, kKvTypes); },
      "Keys and values are kept as f32, bf16 or f16 (default auto: bf16 under packed weights, else f32)");
  flags.Value(
      "--prefill-chunk", "N",
      [&options](const std::string& value) {
        options.prefill_chunk = static_cast<int32_t>(ParseInteger("--prefill-chunk", value, 1, 512));
      },
      "Prompt tokens that are read at once, 1 to 512; changes the speed, not the text (default: the fastest)");
}

void AddKvMemoryFlag(FlagSet& flags, EngineOptions& options) {
  flags.Value(
      "--kv-memory", "SIZE",
      [&options](const std::string& value) {
        options.kv_memory = value == "auto" ? 0 : ParseBytes("--kv-memory", value);
      },
      "Most memory that keys and values may come to take, such as 8G or 512M (default auto: half of what is free, at "
      "most 16 texts of full length); it is taken as it is used");
}

std::function<void(double share)> PackProgress() {
  return [progress = std::make_shared<Progress>("converting weights")](double share) {
    if (Interrupted()) throw Interruption();
    progress->Update(share);
    if (share >= 1) progress->Clear();
  };
}

void CheckFolders(const EngineOptions& options) {
  CheckIsFolder("--model", options.model);
  if (!options.draft.empty()) CheckIsFolder("--draft", options.draft);
  for (const std::string& draft : options.more_drafts) CheckIsFolder("--draft", draft);
}

void CheckDraftHasModel(const EngineOptions& options) {
  if (options.draft.empty() || !options.model.empty()) return;
  throw UserError("--draft needs the base model that the heads belong to", "give --model DIR");
}

void CheckNotEmpty(const FlagSet& flags, const char* flag, const std::string& value) {
  if (flags.Given(flag) && value.empty()) throw UserError(fmt::format("{} is empty", flag));
}

}  // namespace hydrant::cli
