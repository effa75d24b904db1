// SPDX-License-Identifier: Apache-2.0
#include <fmt/core.h>
#include <fmt/format.h>

#include <cmath>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "base/json.h"
#include "cli/flags/engine_flags.h"
#include "cli/flags/flags.h"
#include "cli/flags/values.h"
#include "cli/terminal/errors.h"
#include "cli/terminal/escape.h"
#include "cli/terminal/terminal.h"
#include "cli/train/run_flags.h"
#include "cli/train/train.h"
#include "hydrant/error.h"
#include "train/fit/joint/train_medusa2.h"

namespace hydrant::cli {
namespace {

constexpr const char* kDescription =
    "Train a base model and draft heads together (Medusa-2). First the heads learn alone, then both.\n"
    "DIR of --out gets the folders 'base' for --model and, by the kind of heads, 'medusa' for --draft; it keeps the "
    "run\n"
    "in DIR/training. The base's texts change: to keep them as they are, use 'hydrant train heads'.";

constexpr const char* kExamples =
    "Examples:\n"
    "  hydrant train medusa2 --base vicuna-7b --data sharegpt.jsonl --seq-len 2048 --out medusa-vicuna\n"
    "  hydrant train distill-data --model vicuna-7b --data prompts.jsonl --temperature 0.3 --out replies.jsonl\n"
    "  hydrant train medusa2 --base vicuna-7b --data replies.jsonl --self-distill --out medusa-vicuna\n"
    "  hydrant run --model medusa-vicuna/base --draft medusa-vicuna/medusa --prompt 'Name three rivers.'\n";

struct Wanted {
  train::TrainMedusa2Options options;
  bool json = false;
};

void AddHeadFlags(FlagSet& flags, train::HeadShape& shape) {
  flags.Group("Heads");
  flags.Value(
      "--arch", "KIND",
      [&shape](const std::string& value) {
        std::vector<std::string_view> archs = train::ArchNames();
        std::erase_if(archs, train::GoesTokenByToken);
        shape.arch = ParseChoice("--arch", value, archs);
      },
      "medusa, hydra or hydra++ (default medusa)");
  flags.Value(
      "--heads", "K",
      [&shape](const std::string& value) {
        shape.num_heads = static_cast<int32_t>(ParseInteger("--heads", value, 1, 64));
      },
      "Heads (default 4)");
  flags.Value(
      "--layers", "L",
      [&shape](const std::string& value) {
        shape.num_layers = static_cast<int32_t>(ParseInteger("--layers", value, 1, 16));
      },
      "Blocks of a head, the input block included (default: 1, of hydra++ 4)");
}

void AddRecipeFlags(FlagSet& flags, train::TrainMedusa2Options& options) {
  const auto epochs = [&flags](const char* flag, int32_t* target, const char* help) {
    flags.Value(
        flag, "N",
        [=](const std::string& value) { *target = static_cast<int32_t>(ParseInteger(flag, value, 1, 10000)); },
        fmt::format("{} (default {})", help, *target));
  };
  const auto number = [&flags](const char* flag, double max, double* target, const std::string& help) {
    flags.Value(
        flag, "X",
        [=](const std::string& value) { *target = ShortestDouble(ParseFloat(flag, value, {.min = 0, .max = max})); },
        fmt::format("{} (default {})", help, *target));
  };
  flags.Group("How they are trained");
  epochs("--head-epochs", &options.heads.epochs, "Times over the text for the heads alone");
  epochs("--epochs", &options.joint.epochs, "Times over the text, after that, for both");
  number("--heads-lr", 10, &options.heads.peak_rate, "Peak learning rate of the heads alone");
  number("--lr", 10, &options.joint.peak_rate, "Peak learning rate of the base");
  number("--lr-multiplier", 1e6, &options.heads_rate_factor,
         "While both learn, the heads' learning rate is so many times the base's");
  flags.Value(
      "--heads-weight", "X",
      [&options](const std::string& value) {
        options.heads_weight = ShortestDouble(ParseFloat("--heads-weight", value, {.min = 0, .max = 1e3}));
      },
      "The loss is the base's and so many times that of the heads (default 0.2, with --self-distill 0.01)");
  flags.Switch("--self-distill", &options.self_distillation,
               "The base learns to keep the distribution that it had, not the text: for text of 'distill-data'");
  flags.Value(
      "--warmup-steps", "N",
      [&options](const std::string& value) {
        options.joint.warmup_steps = options.heads.warmup_steps = ParseInteger("--warmup-steps", value, 0, 1 << 30);
      },
      fmt::format("Steps of the linear rise to the peak, of either part (default {})", options.joint.warmup_steps));
  number("--final-lr", 1, &options.joint.final_factor, "Share of the base's peak at the end of the cosine");
  number("--weight-decay", 10, &options.joint.weight_decay, "AdamW's, of the base's matrices");
  number("--clip", 1e6, &options.joint.clip, "Largest norm of the base's gradient; 0: any");
}

void AddFileFlags(FlagSet& flags, Wanted& wanted) {
  train::TrainMedusa2Options& options = wanted.options;
  flags.Group("Run");
  AddStepFlags(flags, options,
               "Steps between measurements of tokens per step and perplexity, on texts that are held out; 0: none "
               "(default 500)");
  AddEvalTokensFlag(flags, options.eval_tokens);
  flags.Switch("--json", &wanted.json, "Print one JSON object");
  flags.Group("Numbers");
  AddPrecisionFlag(flags, options);
  AddHeadFileFlag(flags, options.file);
  AddTypeFlag(flags, options);
  flags.Group("Machine");
  AddMachineFlags(flags, options.engine);
}

bool ParseFlags(const std::vector<std::string>& args, Wanted& wanted) {
  train::TrainMedusa2Options& options = wanted.options;
  options.shape.arch = "medusa";
  options.heads = train::RecipeNamed("medusa-1");
  FlagSet flags("hydrant train medusa2", kDescription, kExamples);
  flags.Text("--base", "DIR", &options.engine.model, "The base model to begin with, in Hugging Face layout, of floats");
  AddTextFlags(flags, options,
               {.rows = "Longest text that the model is shown; longer ones are cut (default 256)",
                .chat = "Chat template of conversations (default: the base's own)",
                .overwrites = "Begin anew where --out holds a run"});
  AddHeadFlags(flags, options.shape);
  AddRecipeFlags(flags, options);
  AddFileFlags(flags, wanted);
  if (!flags.Parse(args)) return false;
  RequireFlags(flags, "hydrant train medusa2", {"--base", "--data", "--out"});
  CheckIsFolder("--base", options.engine.model);
  return true;
}

base::Json JsonOf(const train::TrainMedusa2Report& report) {
  base::Json json = JsonOfRun(report);
  json["base"] = {{"folder", report.base_folder}, {"loss", report.base_loss}};
  json["heads"] = {{"folder", report.heads_folder}, {"loss", report.heads_loss}};
  if (report.tokens_per_step == 0) return json;
  json["base"]["perplexity_before"] = report.perplexity_before;
  json["base"]["perplexity"] = report.perplexity;
  json["heads"]["tokens_per_step"] = report.tokens_per_step;
  json["heads"]["standard_error"] = report.standard_error;
  return json;
}

void PrintReport(const train::TrainMedusa2Report& report, bool json) {
  if (json) return Print(base::DumpJson(JsonOf(report)) + "\n");
  std::string base, heads;
  if (report.tokens > 0) {
    base = report.base_loss > 0 ? fmt::format(", loss {:.3f}", report.base_loss) : ", not trained yet";
    heads = fmt::format(", loss {:.3f}", report.heads_loss);
  }
  if (report.tokens_per_step > 0) {
    base +=
        fmt::format(", perplexity {:.3f} on held-out text, before {:.3f}", report.perplexity, report.perplexity_before);
    heads += fmt::format(", {} tokens per step", WithError(report.tokens_per_step, report.standard_error));
  }
  Print(fmt::format("{}: base{}\n", EscapedName(report.base_folder), base));
  Print(fmt::format("{}: heads{}\n", EscapedName(report.heads_folder), heads));
  PrintSteps(report, "");
}

}  // namespace

int TrainMedusa2(const std::vector<std::string>& args) {
  const std::unique_ptr<parallel::Communicator> ranks = MakeRanks();
  Wanted wanted;
  if (!ParseFlags(args, wanted)) return kExitOk;
  RunConsole console(wanted.options, *ranks);
  const train::TrainMedusa2Report report = train::TrainMedusa2(wanted.options);
  return console.End(report, [&] { PrintReport(report, wanted.json); });
}

}  // namespace hydrant::cli
