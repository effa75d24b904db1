// SPDX-License-Identifier: Apache-2.0
#include <fmt/core.h>

#include <algorithm>

#include "base/json.h"
#include "cli/bench/bench.h"
#include "cli/bench/flags.h"
#include "cli/flags/engine_flags.h"
#include "cli/flags/values.h"
#include "cli/terminal/errors.h"
#include "cli/terminal/progress.h"
#include "cli/terminal/terminal.h"
#include "eval/random_weights.h"
#include "eval/step.h"
#include "hydrant/error.h"
#include "kernels/kernels.h"
#include "load/loaded_model.h"

namespace hydrant::cli {
namespace {

using base::Json;

constexpr const char* kDescription =
    "Time the forward pass that verifies a tree of R nodes, for several R, with random weights of a model's shape (no\n"
    "download). Beside every time: the roofline, max(bytes / read bandwidth, multiplications / multiply peak), "
    "measured\n"
    "before and after the pass. The answer is first checked against the portable kernels, bit for bit.";

constexpr const char* kExamples =
    "Examples:\n"
    "  hydrant bench step                                        7B, 4 bits, 1 to 128 rows\n"
    "  hydrant bench step --shape 7b --weights w8a8 --rows 1,4,8 --context 1000 --seconds 30\n"
    "  hydrant bench step --shape tale --weights w8a8 --rows 1,5,17 --json\n"
    "  hydrant bench step --shape 7b --weights w4a8 --rows 1 --prefill 512\n";

constexpr int kMostRows = 512;

struct Options {
  BenchOptions bench{.seconds = 10};
  std::string shape = "7b";
  std::string weights = "w4a8";
  std::string kv_type = "auto";
  eval::StepOptions step{.rows = {1, 4, 8, 16, 32, 64, 128}, .prefill_chunk = 0};  // 0: as an engine would
  bool no_check = false;
};

std::vector<int> ParseRows(const std::string& text) {
  std::vector<int> rows;
  for (const std::string& item : ListItems(text)) {
    const bool is_number = !item.empty() && std::ranges::all_of(item, [](char c) { return c >= '0' && c <= '9'; });
    if (!is_number) throw UserError(fmt::format("--rows is \"{}\", expected numbers such as 1,4 or [1, 4]", text));
    const auto count = static_cast<int>(ParseInteger("--rows", item, 1, kMostRows));
    if (std::find(rows.begin(), rows.end(), count) != rows.end()) {
      throw UserError(fmt::format("--rows has {} twice", count));
    }
    rows.push_back(count);
  }
  return rows;
}

void AddWorkFlags(FlagSet& flags, Options& options) {
  const auto integer = [&flags](const char* flag, int* target, int64_t min, int64_t max, const std::string& help) {
    flags.Value(
        flag, "N", [=](const std::string& value) { *target = static_cast<int>(ParseInteger(flag, value, min, max)); },
        help);
  };
  flags.Group("Work");
  flags.Value(
      "--shape", "NAME",
      [&options](const std::string& value) { options.shape = ParseChoice("--shape", value, eval::ShapeNames()); },
      std::string(eval::kShapesHelp) + " (default 7b)");
  flags.Value(
      "--weights", "FORMAT",
      [&options](const std::string& value) { options.weights = ParseChoice("--weights", value, WeightFormatNames()); },
      "w4a8, w8a8, w4a16, w8a16, bf16 or f32 (default w4a8)");
  flags.Value(
      "--rows", "LIST", [&options](const std::string& value) { options.step.rows = ParseRows(value); },
      "Rows of a pass, as a list such as 1,4,8 (default 1,4,8,16,32,64,128)");
  integer("--context", &options.step.context, 0, 1 << 17, "Positions before the tree (default 32)");
  flags.Value(
      "--kv-type", "TYPE",
      [&options](const std::string& value) { options.kv_type = ParseChoice("--kv-type", value, KvTypeNames()); },
      "Keys and values are kept as f32, bf16 or f16; auto: bf16 beside packed weights, else f32 (default auto)");
  integer("--prefill", &options.step.prefill, 1, 1 << 17, "Also a prompt of N tokens");
  integer("--prefill-chunk", &options.step.prefill_chunk, 1, kMostRows,
          "Prompt rows of one pass (default: as `run` takes)");
  flags.Switch("--no-check", &options.no_check, "Leave out the comparison with the portable kernels");
}

Json PassJson(const eval::PassTime& pass, const eval::StepResult& result) {
  const double tops = 2e-9 * static_cast<double>(result.macs_per_row) * pass.rows / pass.ms.median;
  Json json = {{"rows", pass.rows}, {"passes", pass.passes}, {"tops", tops}};
  PutSpread(json, "ms", pass.ms);
  PutSpread(json, "roofline_ms", pass.roofline_ms);
  PutSpread(json, "roofline_share", pass.share);
  json["ratio"] = pass.ratio > 0 ? Json(pass.ratio) : Json();
  return json;
}

double ReadRate(const eval::PassTime& pass, const eval::StepResult& result) {
  return 1e-6 * static_cast<double>(result.weight_bytes + result.kv_bytes) / pass.ms.median;
}

Json StepJson(const Options& options, const eval::StepResult& result) {
  const kernels::Queue& queue = *options.step.queue;
  Json json = {{"shape", options.shape},
               {"weights", options.weights},
               {"target", queue.table->target},
               {"threads", queue.pool->num_threads()},
               {"context", options.step.context},
               {"kv_type", NameOf(options.step.kv_type)},
               {"bytes_read", result.weight_bytes + result.kv_bytes},
               {"weight_bytes", result.weight_bytes},
               {"kv_bytes", result.kv_bytes},
               {"macs_per_row", result.macs_per_row},
               {"multiply_type", eval::NameOf(eval::MultiplyTypeOf(options.step.format))},
               {"rounds", result.rounds},
               {"checked", result.checked},
               {"rows", Json::array()},
               {"version", HYDRANT_VERSION}};
  PutSpread(json, "read_gb_s", result.read_gb_s);
  PutSpread(json, "multiply_gmac_s", result.multiply_gmac_s);
  for (const eval::PassTime& pass : result.rows) {
    json["rows"].push_back(PassJson(pass, result));
    json["rows"].back()["gb_s"] = ReadRate(pass, result);
  }
  if (result.prefill.rows > 0) {
    json["prefill"] = PassJson(result.prefill, result);
    json["prefill"]["chunk"] = options.step.prefill_chunk;
    json["prefill"].erase("ratio");
  }
  return json;
}

std::string StepText(const Options& options, const eval::StepResult& result) {
  const kernels::Queue& queue = *options.step.queue;
  std::string text = fmt::format(
      "{} {}, {}, {} threads: a pass reads {:.3f} GB, and multiplies {:.3f} G times per row; context {} in {}\n",
      options.shape, options.weights, queue.table->target, queue.pool->num_threads(),
      1e-9 * static_cast<double>(result.weight_bytes + result.kv_bytes),
      1e-9 * static_cast<double>(result.macs_per_row), options.step.context, NameOf(options.step.kv_type));
  text += fmt::format("{:>8} {:>10} {:>10} {:>8} {:>8} {:>8} {:>12} {:>14}\n", "rows", "ms", "least", "GB/s", "TOPS",
                      "x 1 row", "roofline ms", "roofline/time");
  const auto line = [&](const std::string& name, const eval::PassTime& pass, const std::string& rate) {
    const double tops = 2e-9 * static_cast<double>(result.macs_per_row) * pass.rows / pass.ms.median;
    text += fmt::format("{:>8} {:10.3f} {:10.3f} {:>8} {:8.3f} {:>8} {:12.3f} {:14.2f}\n", name, pass.ms.median,
                        pass.ms.min, rate, tops, pass.ratio > 0 ? fmt::format("{:.2f}", pass.ratio) : "-",
                        pass.roofline_ms.median, pass.share.median);
  };
  for (const eval::PassTime& pass : result.rows) {
    line(std::to_string(pass.rows), pass, fmt::format("{:.1f}", ReadRate(pass, result)));
  }
  if (result.prefill.rows > 0) line(fmt::format("p{}", result.prefill.rows), result.prefill, "-");
  text +=
      fmt::format("read {:.1f} GB/s ({:.1f} .. {:.1f}), multiply {:.1f} GMAC/s ({:.1f} .. {:.1f}), {} rounds in turn\n",
                  result.read_gb_s.median, result.read_gb_s.min, result.read_gb_s.max, result.multiply_gmac_s.median,
                  result.multiply_gmac_s.min, result.multiply_gmac_s.max, result.rounds);
  return text + (result.checked ? "checked: equal to the portable kernels, bit for bit (one layer and lm head)\n"
                                : "not checked\n");
}

}  // namespace

int BenchStep(const std::vector<std::string>& args) {
  Options options;
  FlagSet flags("hydrant bench step", kDescription, kExamples);
  AddWorkFlags(flags, options);
  AddBenchFlags(flags, options.bench, "the rounds, at least three");
  if (!flags.Parse(args)) return kExitOk;
  if (flags.Given("--prefill-chunk") && !flags.Given("--prefill")) {
    throw UserError("--prefill-chunk is for prompts only", "add --prefill N, or leave it out");
  }
  const std::unique_ptr<base::ThreadPool> pool = BenchPool(options.bench);
  const int64_t hidden_size = eval::ShapeConfig(options.shape).hidden_size;
  kernels::Queue queue{pool.get(), &kernels::KernelsForModel(options.bench.cpu_target, hidden_size)};
  options.step.queue = &queue;
  options.step.format = *quant::WeightFormatNamed(options.weights);
  options.step.seconds = options.bench.seconds;
  options.step.check = !options.no_check;
  Progress progress(fmt::format("bench step {} {}", options.shape, options.weights));
  const auto fill = [&progress](double share) {
    progress.Update(share, "making random weights");
    return !Interrupted();
  };
  model::ModelWeights weights;
  if (!eval::MakeRandomModel(eval::ShapeConfig(options.shape), options.step.format, queue, fill, &weights)) {
    return InterruptedExit();
  }
  options.step.weights = &weights;
  options.step.kv_type = load::KvTypeNamed(options.kv_type, weights);
  if (options.step.prefill_chunk == 0) options.step.prefill_chunk = load::BestPrefillChunk(*queue.table, weights);
  options.step.on_progress = [&progress](double share, const std::string& note) {
    progress.Update(share, note);
    return !Interrupted();
  };
  const eval::StepResult result = eval::MeasureStep(options.step);
  progress.Clear();
  if (result.rounds > 0) {
    Print(options.bench.json ? base::DumpJson(StepJson(options, result)) + "\n" : StepText(options, result));
  }
  return Interrupted() ? InterruptedExit() : kExitOk;
}

}  // namespace hydrant::cli
