// SPDX-License-Identifier: Apache-2.0
#include "cli/commands/convert.h"

#include <fmt/core.h>
#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <optional>
#include <span>
#include <string_view>

#include "base/json.h"
#include "cli/flags/engine_flags.h"
#include "cli/flags/flags.h"
#include "cli/flags/values.h"
#include "cli/terminal/errors.h"
#include "cli/terminal/escape.h"
#include "cli/terminal/option_names.h"
#include "cli/terminal/sections.h"
#include "cli/terminal/terminal.h"
#include "convert/convert.h"
#include "convert/respell.h"
#include "hydrant/error.h"

namespace hydrant::cli {
namespace {

constexpr const char* kDescription =
    "Write the model or heads of folder IN to the new folder OUT, in one of two ways.\n"
    "With --weights or --head-weights: packed weights, which 'run' maps and reads as they lie. Config, tokenizer, "
    "chat\n"
    "template and trees are copied. The base's lm head stays in 8 bits, embeddings and norms stay as they are.\n"
    "With --layout and the name of a layout of heads: the heads' numbers as they are, spelled as another project "
    "reads\n"
    "them. Rank files that are split for tensor parallelism are joined, and written for --tp ranks.";

constexpr const char* kExamples =
    "Examples:\n"
    "  hydrant convert --weights w4a8 vicuna-7b vicuna-7b-w4a8\n"
    "  hydrant convert --head-weights w8a8 --model vicuna-7b hydra-vicuna-7b hydra-vicuna-7b-w8a8\n"
    "  hydrant convert --weights w4a8 --head-weights w4a8 vicuna-7b-medusa-2 OUT   model with heads\n"
    "  hydrant run --model vicuna-7b-w4a8 --draft hydra-vicuna-7b-w8a8 --prompt 'Name three rivers.'\n"
    "  hydrant convert --layout vllm medusa-vicuna-7b OUT                          heads for vLLM\n"
    "  hydrant convert --layout tensorrt-llm --tp 2 hydra-vicuna-7b OUT            rank0 and rank1\n"
    "  hydrant convert --layout hydra OUT hydra_lm_head                            and joined again\n"
    "  hydrant convert --layout medusa-b --model vicuna-7b medusa-vicuna-7b OUT    model with heads\n"
    "  hydrant convert --layout safetensors eagle-vicuna-7b OUT                    EAGLE's .bin file\n";

// Of packed weights.
constexpr std::array<std::string_view, 3> kLayouts = {"auto", "lines", "interleaved"};
constexpr std::array<std::string_view, 4> kFormats = {"w8a8", "w4a8", "w8a16", "w4a16"};

std::optional<quant::WeightFormat> ParseFormat(const char* flag, const std::string& value) {
  if (value == "f32" || value == "bf16") {
    throw UserError(std::string(flag) + " is " + value + ": floats need no conversion",
                    "'hydrant run' takes a checkpoint of floats as it lies");
  }
  return quant::WeightFormatNamed(ParseChoice(flag, value, kFormats));
}

struct Wanted {
  convert::ConvertOptions packing;
  std::string head_layout;  // empty: packing
  int64_t tp = 0;           // 0: not said
  bool json = false;
};

void ParseLayout(const std::string& value, Wanted& wanted) {
  const std::span<const std::string_view> of_heads = convert::HeadLayoutNames();
  std::vector<std::string_view> names(kLayouts.begin(), kLayouts.end());
  names.insert(names.end(), of_heads.begin(), of_heads.end());
  const std::string layout = ParseChoice("--layout", value, names);
  wanted.packing.layout.reset();
  if (layout == "lines") wanted.packing.layout = kernels::PackedLayout::kLines;
  if (layout == "interleaved") wanted.packing.layout = kernels::PackedLayout::kInterleaved;
  if (std::ranges::find(of_heads, layout) != of_heads.end()) wanted.head_layout = layout;
}

void AddFlags(FlagSet& flags, Wanted& wanted) {
  convert::ConvertOptions& options = wanted.packing;
  flags.Positional("IN", &options.in, true, "Folder with a base model, heads, or both");
  flags.Positional("OUT", &options.out, true, "Folder to make");
  const auto format = [&flags](const char* flag, std::optional<quant::WeightFormat>* target, const std::string& help) {
    flags.Value(
        flag, "FORMAT", [=](const std::string& value) { *target = ParseFormat(flag, value); }, help);
  };
  format("--weights", &options.weights, "Of the base: w8a8, w4a8, w8a16 or w4a16");
  format("--head-weights", &options.head_weights, "Of the heads (default w8a8)");
  flags.Text("--model", "DIR", &options.model,
             "The base that heads belong to, where IN holds heads only; of layouts of heads medusa-b needs it");
  flags.Value(
      "--layout", "LAYOUT", [&wanted](const std::string& value) { ParseLayout(value, wanted); },
      "Of packed weights: lines (for AMX, AVX2 and portable kernels), interleaved (for AVX-512), or auto: as this "
      "machine reads them; a machine of the other kind copies the weights when it loads them (default auto). Of heads: "
      "medusa-a, medusa-b, vllm, tensorrt-llm, hydra, or safetensors, which takes every kind");
  flags.Value(
      "--tp", "N", [&wanted](const std::string& value) { wanted.tp = ParseInteger("--tp", value, 1, 64); },
      "Ranks of layout tensorrt-llm, a file each (default 1)");
  flags.Switch("--force", &options.replace,
               "Where OUT is a folder that was converted before, delete it and all it holds once the new one is whole");
  flags.Switch("--json", &wanted.json, "Print one JSON object");
  flags.Value(
      "--threads", "N",
      [&options](const std::string& value) {
        options.threads = static_cast<int>(ParseInteger("--threads", value, 0, 1024));
      },
      "Threads; 0 = one for each core that this process may use (default 0)");
}

void CheckTogether(const Wanted& wanted) {
  if (wanted.head_layout.empty() && wanted.tp > 0) {
    throw UserError("--tp is for rank files", "add --layout tensorrt-llm");
  }
  if (wanted.head_layout.empty()) return;
  if (wanted.packing.weights || wanted.packing.head_weights) {
    throw UserError(std::string(wanted.packing.weights ? "--weights" : "--head-weights") +
                        " packs weights, and layout " + wanted.head_layout + " holds floats",
                    "convert twice: first the layout, then the weights");
  }
}

bool ParseFlags(const std::vector<std::string>& args, Wanted& wanted) {
  FlagSet flags("hydrant convert", kDescription, kExamples);
  AddFlags(flags, wanted);
  if (!flags.Parse(args)) return false;
  const convert::ConvertOptions& options = wanted.packing;
  CheckNotEmpty(flags, "--model", options.model);
  if (options.in.empty() || options.out.empty()) throw UserError("a folder's name is empty");
  CheckIsFolder("IN", options.in);
  if (!options.model.empty()) CheckIsFolder("--model", options.model);
  CheckTogether(wanted);
  return true;
}

int PackWeights(const Wanted& wanted, const base::Json& removed) {
  const convert::ConvertOptions& options = wanted.packing;
  const convert::ConvertReport report = convert::ConvertFolder(options);
  PrintWarnings(report.warnings);
  if (wanted.json) {
    const base::Json object = {{"out", options.out},
                               {"weights_file", report.weights_file},
                               {"layout", NameOf(report.layout)},
                               {"packed_tensors", report.num_packed},
                               {"bytes_before", report.bytes_before},
                               {"bytes_after", report.bytes_after},
                               {"source_hash", report.source_hash},
                               {"removed", removed},
                               {"seconds", report.seconds},
                               {"warnings", WithFlags(report.warnings)}};
    Print(base::DumpJson(object) + "\n");
    return kExitOk;
  }
  Print(fmt::format("{}/{}: {} tensors packed, {} to {} in {:.1f} s\n", EscapedName(options.out), report.weights_file,
                    report.num_packed, ByteText(report.bytes_before), ByteText(report.bytes_after), report.seconds));
  return kExitOk;
}

int RespellHeads(const Wanted& wanted, const base::Json& removed) {
  const convert::ConvertOptions& packing = wanted.packing;
  const convert::RespellReport report = convert::RespellHeads({.in = packing.in,
                                                               .out = packing.out,
                                                               .layout = wanted.head_layout,
                                                               .model = packing.model,
                                                               .tp = std::max<int64_t>(1, wanted.tp),
                                                               .replace = packing.replace,
                                                               .progress = packing.progress,
                                                               .on_removed = packing.on_removed,
                                                               .stop = packing.stop});
  PrintWarnings(report.warnings);
  if (wanted.json) {
    const base::Json object = {{"out", packing.out},
                               {"layout", wanted.head_layout},
                               {"drafter", report.drafter},
                               {"weights_files", report.weights_files},
                               {"tensors", report.num_tensors},
                               {"bytes", report.bytes},
                               {"left_out", report.left_out},
                               {"source_hash", report.source_hash},
                               {"removed", removed},
                               {"seconds", report.seconds},
                               {"warnings", WithFlags(report.warnings)}};
    Print(base::DumpJson(object) + "\n");
    return kExitOk;
  }
  Print(fmt::format("{}/{}: {} tensors of {} heads in layout {}, {} in {:.1f} s\n", EscapedName(packing.out),
                    fmt::join(report.weights_files, ", "), report.num_tensors, report.drafter, wanted.head_layout,
                    ByteText(report.bytes), report.seconds));
  if (!report.left_out.empty()) {
    Print(fmt::format("Left out, since nothing reads it: {}\n",
                      EscapedName(fmt::format("{}", fmt::join(report.left_out, ", ")))));
  }
  return kExitOk;
}

}  // namespace

int Convert(const std::vector<std::string>& args) {
  Wanted wanted;
  if (!ParseFlags(args, wanted)) return kExitOk;
  base::Json removed = base::Json::array();
  wanted.packing.on_removed = [&removed](const base::Leftover& leftover) {
    removed.push_back(leftover.path);
    PrintError(fmt::format("Removed {} ({}), which a conversion that was killed had left\n", leftover.path,
                           ByteText(leftover.bytes)));
  };
  wanted.packing.progress = PackProgress();
  wanted.packing.stop = StopFlag();
  return wanted.head_layout.empty() ? PackWeights(wanted, removed) : RespellHeads(wanted, removed);
}

}  // namespace hydrant::cli
