// SPDX-License-Identifier: Apache-2.0
#include "cli/commands/convert.h"

#include <fmt/core.h>

#include <array>
#include <optional>
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
#include "hydrant/error.h"

namespace hydrant::cli {
namespace {

constexpr const char* kDescription =
    "Write the model or heads of folder IN to the new folder OUT with packed weights, which 'run' maps and reads as "
    "they\n"
    "lie. Config, tokenizer, chat template and trees are copied. The base's lm head stays in 8 bits, embeddings and\n"
    "norms stay as they are.";

constexpr const char* kExamples =
    "Examples:\n"
    "  hydrant convert --weights w4a8 vicuna-7b vicuna-7b-w4a8\n"
    "  hydrant convert --head-weights w8a8 --model vicuna-7b hydra-vicuna-7b hydra-vicuna-7b-w8a8\n"
    "  hydrant convert --weights w4a8 --head-weights w4a8 vicuna-7b-medusa-2 OUT   model with heads\n"
    "  hydrant run --model vicuna-7b-w4a8 --draft hydra-vicuna-7b-w8a8 --prompt 'Name three rivers.'\n";

constexpr std::array<std::string_view, 3> kLayouts = {"auto", "lines", "interleaved"};
constexpr std::array<std::string_view, 4> kFormats = {"w8a8", "w4a8", "w8a16", "w4a16"};

std::optional<quant::WeightFormat> ParseFormat(const char* flag, const std::string& value) {
  if (value == "f32" || value == "bf16") {
    throw UserError(std::string(flag) + " is " + value + ": floats need no conversion",
                    "'hydrant run' takes a checkpoint of floats as it lies");
  }
  return quant::WeightFormatNamed(ParseChoice(flag, value, kFormats));
}

bool ParseFlags(const std::vector<std::string>& args, convert::ConvertOptions& options, bool& json) {
  FlagSet flags("hydrant convert", kDescription, kExamples);
  flags.Positional("IN", &options.in, true, "Folder with a base model, heads, or both");
  flags.Positional("OUT", &options.out, true, "Folder to make");
  const auto format = [&flags](const char* flag, std::optional<quant::WeightFormat>* target, const std::string& help) {
    flags.Value(
        flag, "FORMAT", [=](const std::string& value) { *target = ParseFormat(flag, value); }, help);
  };
  format("--weights", &options.weights, "Of the base: w8a8, w4a8, w8a16 or w4a16");
  format("--head-weights", &options.head_weights, "Of the heads (default w8a8)");
  flags.Text("--model", "DIR", &options.model, "The base that heads belong to, where IN holds heads only");
  flags.Value(
      "--layout", "LAYOUT",
      [&options](const std::string& value) {
        const std::string layout = ParseChoice("--layout", value, kLayouts);
        options.layout.reset();
        if (layout == "lines") options.layout = kernels::PackedLayout::kLines;
        if (layout == "interleaved") options.layout = kernels::PackedLayout::kInterleaved;
      },
      "lines (for AMX, AVX2 and portable kernels), interleaved (for AVX-512), or auto: as this machine reads them; a "
      "machine of the other kind copies the weights when it loads them (default auto)");
  flags.Switch("--force", &options.replace,
               "Where OUT is a folder that was converted before, delete it and all it holds once the new one is whole");
  flags.Switch("--json", &json, "Print one JSON object");
  flags.Value(
      "--threads", "N",
      [&options](const std::string& value) {
        options.threads = static_cast<int>(ParseInteger("--threads", value, 0, 1024));
      },
      "Threads; 0 = one for each core that this process may use (default 0)");
  if (!flags.Parse(args)) return false;
  CheckNotEmpty(flags, "--model", options.model);
  if (options.in.empty() || options.out.empty()) throw UserError("a folder's name is empty");
  CheckIsFolder("IN", options.in);
  if (!options.model.empty()) CheckIsFolder("--model", options.model);
  return true;
}

}  // namespace

int Convert(const std::vector<std::string>& args) {
  convert::ConvertOptions options;
  bool json = false;
  if (!ParseFlags(args, options, json)) return kExitOk;
  base::Json removed = base::Json::array();
  options.on_removed = [&removed](const base::Leftover& leftover) {
    removed.push_back(leftover.path);
    PrintError(fmt::format("Removed {} ({}), which a conversion that was killed had left\n", leftover.path,
                           ByteText(leftover.bytes)));
  };
  options.progress = PackProgress();
  options.stop = StopFlag();
  const convert::ConvertReport report = convert::ConvertFolder(options);
  PrintWarnings(report.warnings);
  if (json) {
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

}  // namespace hydrant::cli
