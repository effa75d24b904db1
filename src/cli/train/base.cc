// SPDX-License-Identifier: Apache-2.0
#include <fmt/core.h>

#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "base/json.h"
#include "cli/flags/flags.h"
#include "cli/flags/values.h"
#include "cli/terminal/errors.h"
#include "cli/terminal/escape.h"
#include "cli/terminal/terminal.h"
#include "cli/train/modules.h"
#include "cli/train/run_flags.h"
#include "cli/train/train.h"
#include "hydrant/error.h"
#include "train/fit/base/train_base.h"

namespace hydrant::cli {
namespace {

constexpr const char* kDescription =
    "Make a small base model of Llama's architecture, and a tokenizer for it, from text. DIR of --out becomes a "
    "folder\n"
    "for --model in Hugging Face's layout, and keeps the run in DIR/training: a checkpoint, metrics.jsonl.\n"
    "Without sizes it is as large as the embedded model: 15 million parameters, 4096 tokens.";

constexpr const char* kExamples =
    "Examples:\n"
    "  hydrant train base --data books/ --template vicuna --out my-model\n"
    "  hydrant train base --data stories.txt --vocab-size 1024 --hidden-size 128 --layers 6 --intermediate-size 352 "
    "\\\n"
    "      --positions 256 --out small\n"
    "  hydrant train base --data books/ --config llama/config.json --tokenizer llama --out my-llama\n"
    "  hydrant train base --data books/ --template vicuna --out my-model --resume\n"
    "  mpirun -n 2 --bind-to numa hydrant train base --data books/ --out my-model\n"
    "  hydrant run --model my-model --template none --prompt 'Once upon a time'\n"
    "  hydrant train heads --arch hydra++ --base my-model --data books/ --out my-heads\n";

constexpr size_t kLeastSample = size_t{1} << 16;

struct Wanted {
  train::TrainBaseOptions options;
  size_t sample_bytes = train::SentenceOptions{}.most_bytes;
  bool json = false;
};

void AddShapeFlags(FlagSet& flags, Wanted& wanted) {
  train::BaseShape& shape = wanted.options.shape;
  const auto size = [&flags](const char* flag, std::optional<int64_t>* target, const char* help) {
    flags.Value(
        flag, "N", [=](const std::string& value) { *target = ParseInteger(flag, value, 1, 1 << 24); }, help);
  };
  flags.Group("Model (default: --config, else the embedded model's sizes)");
  flags.Text("--config", "FILE", &shape.config, "A config.json in Hugging Face's form, whose model_type is llama");
  flags.Text("--tokenizer", "DIR", &wanted.options.tokenizer,
             "Take the tokenizer of this model (default: a new one, from the text)");
  size("--vocab-size", &shape.vocab_size, "Tokens; with --tokenizer as many as that has, or more (default 4096)");
  flags.Value(
      "--tokenizer-text", "SIZE",
      [&wanted](const std::string& value) {
        wanted.sample_bytes = ParseBytes("--tokenizer-text", value);
        if (wanted.sample_bytes >= kLeastSample) return;
        throw UserError(fmt::format("--tokenizer-text is {}, expected 64k or more", value));
      },
      "Text that a new tokenizer is made from: lines drawn from --data (default 16m)");
  size("--hidden-size", &shape.hidden_size, "Numbers of a hidden state (default 256)");
  size("--layers", &shape.num_layers, "Decoder layers (default 16)");
  size("--attention-heads", &shape.num_heads, "Heads of attention, a divisor of --hidden-size (default 4)");
  size("--kv-heads", &shape.num_kv_heads, "Heads of keys and values (default: --attention-heads)");
  size("--intermediate-size", &shape.intermediate_size, "Numbers inside the MLP (default 704)");
  size("--positions", &shape.max_positions, "Tokens of the longest text (default 512)");
}

void AddRecipeFlags(FlagSet& flags, train::OptimizerRecipe& recipe) {
  const auto integer = [&flags](const char* flag, int64_t min, int64_t max, auto set, const std::string& help) {
    flags.Value(
        flag, "N", [=](const std::string& value) { set(ParseInteger(flag, value, min, max)); }, help);
  };
  const auto number = [&flags](const char* flag, double max, double* target, const std::string& help) {
    flags.Value(
        flag, "X",
        [=](const std::string& value) { *target = ShortestDouble(ParseFloat(flag, value, {.min = 0, .max = max})); },
        fmt::format("{} (default {})", help, *target));
  };
  flags.Group("How it is trained");
  integer(
      "--epochs", 1, 10000, [&recipe](int64_t value) { recipe.epochs = static_cast<int32_t>(value); },
      fmt::format("Times over the text (default {})", recipe.epochs));
  number("--lr", 10, &recipe.peak_rate, "Peak learning rate");
  integer(
      "--warmup-steps", 0, 1 << 30, [&recipe](int64_t value) { recipe.warmup_steps = value; },
      fmt::format("Steps of the linear rise to the peak (default {})", recipe.warmup_steps));
  number("--final-lr", 1, &recipe.final_factor, "Share of the peak at the end of the cosine");
  number("--weight-decay", 10, &recipe.weight_decay, "AdamW's, of matrices");
  number("--clip", 1e6, &recipe.clip, "Largest norm of the gradient; 0: any");
}

bool ParseFlags(const std::vector<std::string>& args, Wanted& wanted) {
  train::TrainBaseOptions& options = wanted.options;
  FlagSet flags("hydrant train base", kDescription, kExamples);
  AddTextFlags(flags, options,
               {.rows = "Longest text that the model is shown; longer ones are cut (default: --positions)",
                .chat = "Chat template that the model gets: vicuna (default: none); with --tokenizer: of conversations "
                        "(default: that model's)",
                .overwrites = "Begin anew where --out holds a run or a model"});
  AddShapeFlags(flags, wanted);
  AddRecipeFlags(flags, options.recipe);
  flags.Group("Run");
  AddStepFlags(flags, options,
               "Steps between measurements of perplexity, on texts that are held out; 0: none (default 500)");
  flags.Switch("--json", &wanted.json, "Print one JSON object");
  flags.Group("Numbers");
  AddPrecisionFlag(flags, options);
  AddTypeFlag(flags, options);
  flags.Group("Machine");
  flags.Value(
      "--threads", "N",
      [&options](const std::string& value) {
        options.threads = static_cast<int>(ParseInteger("--threads", value, 0, 1024));
      },
      "0 = one for each core that this process may use (default 0)");
  if (!flags.Parse(args)) return false;
  RequireFlags(flags, "hydrant train base", {"--data", "--out"});
  if (flags.Given("--tokenizer-text") && !options.tokenizer.empty()) {
    throw UserError("--tokenizer-text is for a new tokenizer, and --tokenizer names one", "leave one of them out");
  }
  return true;
}

std::string MakeTokenizer(const Wanted& wanted, int32_t vocab_size) {
  train::TokenizerOptions options{.vocab_size = vocab_size};
  options.sentences = {.most_bytes = wanted.sample_bytes,
                       .seed = wanted.options.seed,
                       .template_name = wanted.options.template_name,
                       .progress = [&](double share) {
                         wanted.options.on_stage("reading text for a tokenizer", share);
                         if (Interrupted()) throw Stopped();
                       }};
  return TrainTokenizerInModule(wanted.options.data, options);
}

base::Json JsonOf(const train::TrainBaseReport& report, const std::string& folder) {
  base::Json json = JsonOfRun(report);
  json["folder"] = folder;
  json["parameters"] = report.num_parameters;
  json["loss"] = report.loss;
  if (report.perplexity == 0) return json;
  json["held_out_loss"] = report.held_out_loss;
  json["perplexity"] = report.perplexity;
  return json;
}

void PrintReport(const train::TrainBaseReport& report, const Wanted& wanted) {
  const std::string& folder = wanted.options.out;
  if (wanted.json) return Print(base::DumpJson(JsonOf(report, folder)) + "\n");
  if (report.tokens == 0) return Print(fmt::format("All {} steps were done already\n", report.all_steps));
  const std::string held_out =
      report.perplexity > 0 ? fmt::format(", perplexity {:.3f} on held-out text", report.perplexity) : "";
  Print(fmt::format("{}: {} parameters, loss {:.3f}{}\n", EscapedName(folder), report.num_parameters, report.loss,
                    held_out));
  PrintSteps(report, "");
}

}  // namespace

int TrainBase(const std::vector<std::string>& args) {
  const std::unique_ptr<parallel::Communicator> ranks = MakeRanks();
  Wanted wanted;
  if (!ParseFlags(args, wanted)) return kExitOk;
  RunConsole console(wanted.options, *ranks);
  wanted.options.make_tokenizer = [&wanted](int32_t vocab_size) { return MakeTokenizer(wanted, vocab_size); };
  const train::TrainBaseReport report = train::TrainBase(wanted.options);
  return console.End(report, [&] { PrintReport(report, wanted); });
}

}  // namespace hydrant::cli
