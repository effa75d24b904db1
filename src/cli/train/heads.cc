// SPDX-License-Identifier: Apache-2.0
#include <fmt/core.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <memory>
#include <optional>
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
#include "train/fit/train_heads.h"

namespace hydrant::cli {
namespace {

constexpr const char* kDescription =
    "Fit draft heads to a base model that stays as it is. Several kinds of heads share the base's passes.\n"
    "DIR of --out becomes a folder for --draft, and keeps the run in DIR/training: a checkpoint, metrics.jsonl. With\n"
    "several kinds each gets a folder of its own in it.";

constexpr const char* kExamples =
    "Examples:\n"
    "  hydrant train heads --arch hydra++ --base vicuna-7b --data sharegpt.jsonl --out my-heads\n"
    "  hydrant train heads --arch medusa,hydra,hydra++ --base models/tale-14m --data book1.txt --data book2.txt \\\n"
    "      --tokens 2000000 --seq-len 256 --out heads\n"
    "  hydrant train heads --arch hydra++ --base vicuna-7b --data sharegpt.jsonl --out my-heads --resume\n"
    "  mpirun -n 2 --bind-to numa hydrant train heads --arch hydra++ --base vicuna-7b --data sharegpt.jsonl --out "
    "my-heads\n"
    "  hydrant run --model vicuna-7b --draft my-heads --prompt 'Name three rivers.'\n";

constexpr std::array<std::string_view, 3> kLmHeads = {"own", "shared", "pruned"};

// What flags say of every kind of heads; unset: as the recipe has it.
struct Changes {
  std::optional<int64_t> heads, layers, hidden_offset, passes, epochs, warmup_steps;
  std::optional<double> rate, final_factor, weight_decay, dropout, noise, text_noise, label, teacher, decay,
      reconstruction, clip;
  bool untie = false;
  std::string lm_head;
};

struct Wanted {
  train::TrainHeadsOptions options;
  std::vector<std::string> archs;
  std::string recipe;
  Changes changes;
  bool json = false;
};

using Setter = FlagSet::Setter;

Setter IntegerInto(const char* flag, int64_t min, int64_t max, std::optional<int64_t>* target) {
  return [=](const std::string& value) { *target = ParseInteger(flag, value, min, max); };
}

Setter NumberInto(const char* flag, double min, double max, std::optional<double>* target) {
  return [=](const std::string& value) { *target = ShortestDouble(ParseFloat(flag, value, {.min = min, .max = max})); };
}

void AddDataFlags(FlagSet& flags, Wanted& wanted) {
  train::TrainHeadsOptions& options = wanted.options;
  flags.Value(
      "--arch", "LIST", [&wanted](const std::string& value) { wanted.archs = ListItems(value); },
      "Kinds of heads, with commas between: medusa, hydra, hydra++, eagle, eagle3, redrafter");
  flags.Text("--base", "DIR", &options.engine.model, "The base model, in Hugging Face layout, of floats");
  AddTextFlags(flags, options,
               {.rows = "Longest text that the base is shown; longer ones are cut (default 256)",
                .chat = "Chat template of conversations (default: the base's own)",
                .overwrites = "Begin anew where --out holds a run or heads"});
}

void AddLossFlags(FlagSet& flags, Changes& changes) {
  flags.Value("--label-loss", "X", NumberInto("--label-loss", 0, 1e3, &changes.label),
              "Weight of the cross-entropy against the text");
  flags.Value("--teacher-loss", "X", NumberInto("--teacher-loss", 0, 1e3, &changes.teacher),
              "Weight of the cross-entropy against the base's own distribution");
  flags.Value("--reconstruction-loss", "X", NumberInto("--reconstruction-loss", 0, 1e3, &changes.reconstruction),
              "Weight of the distance to the base's hidden states");
  flags.Value("--head-decay", "X", NumberInto("--head-decay", 0, 1, &changes.decay), "Head i counts X^i");
}

void AddRecipeFlags(FlagSet& flags, Wanted& wanted) {
  Changes& changes = wanted.changes;
  flags.Group("How they are trained (default: --recipe)");
  flags.Text("--recipe", "NAME", &wanted.recipe,
             "medusa-1, medusa-teacher, hydra, hydra-teacher, hydra++ (paper), hydra++-repo, eagle-1, eagle-3 or "
             "redrafter; default: "
             "the one of each kind, of medusa and hydra the one with a teacher");
  flags.Value("--heads", "K", IntegerInto("--heads", 1, 64, &changes.heads), "Heads (default 4)");
  flags.Value("--layers", "L", IntegerInto("--layers", 1, 16, &changes.layers),
              "Blocks of a head, the input block included (default: 1, of hydra++ 4)");
  flags.Value(
      "--hidden-offset", "N", IntegerInto("--hidden-offset", 0, 4096, &changes.hidden_offset),
      "Of hydra and hydra++: read the N-th last hidden states of the base; 0: those after the final norm (default 0)");
  flags.Switch("--untie-layers", &changes.untie,
               "Blocks behind the first have weights of their own (default: one block, as in released heads)");
  flags.Value("--passes", "N", IntegerInto("--passes", 1, 64, &changes.passes),
              "Of eagle, eagle3 and redrafter: tokens ahead that are trained (default 1, 7 and 5)");
  flags.Value(
      "--lm-head", "KIND",
      [&changes](const std::string& value) { changes.lm_head = ParseChoice("--lm-head", value, kLmHeads); },
      "Of medusa, hydra and hydra++: own (one for each head), shared (one for all), or pruned (one for each, of the "
      "tokens of --draft-vocab-size alone; default own)");
  flags.Value(
      "--draft-vocab-size", "N",
      [&wanted](const std::string& value) {
        wanted.options.draft_vocab_size = static_cast<int32_t>(ParseInteger("--draft-vocab-size", value, 1, 1 << 30));
      },
      "Of eagle3 and --lm-head pruned: draft only the N tokens that are learned most often (default: all)");
  flags.Value("--epochs", "N", IntegerInto("--epochs", 1, 10000, &changes.epochs), "Times over the text");
  flags.Value("--lr", "X", NumberInto("--lr", 0, 10, &changes.rate), "Peak learning rate");
  flags.Value("--warmup-steps", "N", IntegerInto("--warmup-steps", 0, 1 << 30, &changes.warmup_steps),
              "Steps of the linear rise to the peak");
  flags.Value("--final-lr", "X", NumberInto("--final-lr", 0, 1, &changes.final_factor),
              "Share of the peak at the end of the cosine");
  flags.Value("--weight-decay", "X", NumberInto("--weight-decay", 0, 10, &changes.weight_decay), "AdamW's");
  flags.Value("--clip", "X", NumberInto("--clip", 0, 1e6, &changes.clip), "Largest norm of the gradient; 0: any");
  flags.Value("--dropout", "X", NumberInto("--dropout", 0, 0.99, &changes.dropout),
              "Share of inputs left out, not of eagle's and eagle3's");
  flags.Value("--noise", "ALPHA", NumberInto("--noise", 0, 1e6, &changes.noise),
              "NEFTune's noise on hidden states (the paper tried 75, and lost)");
  flags.Value(
      "--text-noise", "X", NumberInto("--text-noise", 0, 1e6, &changes.text_noise),
      "EAGLE's noise on hidden states: uniform in +-X / 2 * 512 / tokens of the text (default 0, of eagle 0.2)");
  AddLossFlags(flags, changes);
}

void AddRunFlags(FlagSet& flags, Wanted& wanted) {
  train::TrainHeadsOptions& options = wanted.options;
  flags.Group("Run");
  AddStepFlags(flags, options,
               "Steps between measurements of tokens per step, on texts that are held out; 0: none (default 500)");
  AddEvalTokensFlag(flags, options.eval_tokens);
  flags.Text("--cache", "DIR", &options.cache,
             "Keep the base's hidden states there; runs over the same text may share them (default: in --out where "
             "there are several epochs)");
  flags.Value(
      "--cache-max", "SIZE",
      [&options](const std::string& value) {
        options.cache_most = value == "0" ? 0 : ParseBytes("--cache-max", value);
      },
      "Where the states take more, every epoch runs the base; 0: always (default: no limit)");
  flags.Switch("--json", &wanted.json, "Print one JSON object");
}

void AddFileFlags(FlagSet& flags, Wanted& wanted) {
  train::TrainHeadsOptions& options = wanted.options;
  flags.Group("Numbers");
  AddPrecisionFlag(flags, options);
  AddHeadFileFlag(flags, options.file);
  AddTypeFlag(flags, options);
  flags.Group("Machine");
  AddMachineFlags(flags, options.engine);
}

template <typename From, typename To>
void Change(const std::optional<From>& from, To& to) {
  if (from) to = static_cast<To>(*from);
}

// Released Hydra++ heads have four layers, all others one. The first block of a Hydra head is never tied.
bool HasBlocksToTie(const std::string& arch, const Changes& changes) {
  if (train::GoesTokenByToken(arch)) return false;
  return changes.layers.value_or(arch == "hydra++" ? 4 : 1) > (arch == "medusa" ? 1 : 2);
}

train::HeadsToTrain HeadsOf(const std::string& arch, const Wanted& wanted) {
  const Changes& changes = wanted.changes;
  train::HeadsToTrain heads;
  heads.shape.arch = arch;
  heads.recipe = wanted.recipe.empty() ? train::UsualRecipe(arch) : train::RecipeNamed(wanted.recipe);
  const bool is_counted = !train::GoesTokenByToken(arch);
  if (is_counted) Change(changes.heads, heads.shape.num_heads);
  if (is_counted || arch == "redrafter") Change(changes.layers, heads.shape.num_layers);
  if (arch.starts_with("hydra")) Change(changes.hidden_offset, heads.shape.hidden_layer_offset);
  heads.shape.tied_blocks = !changes.untie || !HasBlocksToTie(arch, changes);
  heads.shape.shared_lm_head = is_counted && changes.lm_head == "shared";
  heads.prunes_vocab = arch == "eagle3" || (is_counted && changes.lm_head == "pruned");
  Change(changes.passes, heads.recipe.num_passes);
  Change(changes.epochs, heads.recipe.epochs);
  Change(changes.rate, heads.recipe.peak_rate);
  Change(changes.warmup_steps, heads.recipe.warmup_steps);
  Change(changes.final_factor, heads.recipe.final_factor);
  Change(changes.weight_decay, heads.recipe.weight_decay);
  Change(changes.clip, heads.recipe.clip);
  if (is_counted || arch == "redrafter") Change(changes.dropout, heads.recipe.dropout);
  Change(changes.noise, heads.recipe.noise_alpha);
  Change(changes.text_noise, heads.recipe.text_noise);
  Change(changes.label, heads.recipe.label_weight);
  Change(changes.teacher, heads.recipe.teacher_weight);
  Change(changes.reconstruction, heads.recipe.reconstruction_weight);
  Change(changes.decay, heads.recipe.head_decay);
  return heads;
}

// A flag that changes none of the kinds is a mistake. One that changes some of them is not.
void CheckAreUsed(const FlagSet& flags, const Wanted& wanted) {
  const std::vector<std::string>& archs = wanted.archs;
  const auto is_counted = [](const std::string& arch) { return !train::GoesTokenByToken(arch); };
  const auto refuse = [&flags](const char* flag, bool is_used, const char* whose) {
    if (flags.Given(flag) && !is_used) throw UserError(fmt::format("{} is for {}", flag, whose), "leave it out");
  };
  const bool any_counted = std::ranges::any_of(archs, is_counted), all_counted = std::ranges::all_of(archs, is_counted);
  const bool any_redrafter = std::ranges::find(archs, "redrafter") != archs.end();
  for (const char* flag : {"--heads", "--lm-head"}) refuse(flag, any_counted, "medusa, hydra and hydra++");
  const auto can_be_tied = [&wanted](const std::string& arch) { return HasBlocksToTie(arch, wanted.changes); };
  refuse("--untie-layers", std::ranges::any_of(archs, can_be_tied),
         "heads of 2 --layers (medusa) or 3 (hydra, hydra++) and more");
  const auto has = [&archs](const char* arch) { return std::ranges::find(archs, arch) != archs.end(); };
  refuse("--hidden-offset", has("hydra") || has("hydra++"), "hydra and hydra++");
  refuse("--dropout", any_counted || any_redrafter, "medusa, hydra, hydra++ and redrafter");
  refuse("--layers", any_counted || any_redrafter, "medusa, hydra, hydra++ and redrafter");
  refuse("--passes", !all_counted, "eagle, eagle3 and redrafter");
}

void CheckPruning(const FlagSet& flags, const Wanted& wanted) {
  const bool is_pruned = wanted.changes.lm_head == "pruned", has_size = flags.Given("--draft-vocab-size");
  if (is_pruned && !has_size) {
    throw UserError("--lm-head pruned needs --draft-vocab-size", "say how many tokens the heads draft");
  }
  if (!has_size || is_pruned || std::ranges::find(wanted.archs, "eagle3") != wanted.archs.end()) return;
  throw UserError("--draft-vocab-size is for eagle3 and --lm-head pruned",
                  "any heads draft fewer tokens by 'hydrant run --draft-vocab', without training");
}

// Other names that kinds have, in papers and as folders.
std::string ArchOf(const std::string& text) {
  if (text == "medusa2" || text == "medusa-2") {
    throw UserError("--arch is " + text, "'hydrant train medusa2' trains heads and their base together");
  }
  if (text == "hydra_pp" || text == "hydra-pp" || text == "hydrapp") return "hydra++";
  if (text == "eagle-1" || text == "eagle1") return "eagle";
  if (text == "eagle-3") return "eagle3";
  return text;
}

bool ParseFlags(const std::vector<std::string>& args, Wanted& wanted) {
  FlagSet flags("hydrant train heads", kDescription, kExamples);
  AddDataFlags(flags, wanted);
  AddRecipeFlags(flags, wanted);
  AddRunFlags(flags, wanted);
  AddFileFlags(flags, wanted);
  if (!flags.Parse(args)) return false;
  RequireFlags(flags, "hydrant train heads", {"--arch", "--base", "--data", "--out"});
  CheckIsFolder("--base", wanted.options.engine.model);
  CheckAreUsed(flags, wanted);
  CheckPruning(flags, wanted);
  const std::vector<std::string_view> archs = train::ArchNames();
  for (std::string& arch : wanted.archs) arch = ParseChoice("--arch", ArchOf(arch), archs);
  // The order in which they are named is no setting of a run.
  std::ranges::sort(wanted.archs, {}, [&archs](const std::string& arch) { return std::ranges::find(archs, arch); });
  for (const std::string& arch : wanted.archs) wanted.options.heads.push_back(HeadsOf(arch, wanted));
  return true;
}

base::Json JsonOf(const train::TrainHeadsReport& report) {
  base::Json heads = base::Json::array();
  for (const train::TrainedHeads& trained : report.heads) {
    heads.push_back({{"arch", trained.arch},
                     {"folder", trained.folder},
                     {"loss", report.tokens > 0 ? base::Json(trained.loss) : base::Json()}});
    if (trained.tokens_per_step == 0) continue;
    heads.back()["tokens_per_step"] = trained.tokens_per_step;
    heads.back()["standard_error"] = trained.standard_error;
    heads.back()["best"] = {{"folder", trained.best_folder},
                            {"step", trained.best_step},
                            {"tokens_per_step", trained.best_tokens_per_step}};
  }
  base::Json json = JsonOfRun(report);
  json["heads"] = std::move(heads);
  json["base_seconds"] = report.base_seconds;
  return json;
}

void PrintReport(const train::TrainHeadsReport& report, bool json) {
  if (json) return Print(base::DumpJson(JsonOf(report)) + "\n");
  for (const train::TrainedHeads& heads : report.heads) {
    std::string figures;
    if (report.tokens > 0) figures += fmt::format(", loss {:.3f}", heads.loss);
    if (heads.tokens_per_step > 0) {
      figures += fmt::format(", {} tokens per step", WithError(heads.tokens_per_step, heads.standard_error));
    }
    Print(fmt::format("{}: {}{}\n", EscapedName(heads.folder), heads.arch, figures));
    if (heads.best_tokens_per_step <= heads.tokens_per_step) continue;
    Print(fmt::format("{}: after step {}, {:.3f} tokens per step\n", EscapedName(heads.best_folder), heads.best_step,
                      heads.best_tokens_per_step));
  }
  PrintSteps(report, fmt::format(" ({:.0f} % of it in the base)", 100 * report.base_seconds / report.seconds));
}

}  // namespace

int TrainHeads(const std::vector<std::string>& args) {
  const std::unique_ptr<parallel::Communicator> ranks = MakeRanks();
  Wanted wanted;
  if (!ParseFlags(args, wanted)) return kExitOk;
  RunConsole console(wanted.options, *ranks);
  const train::TrainHeadsReport report = train::TrainHeads(wanted.options);
  return console.End(report, [&] { PrintReport(report, wanted.json); });
}

}  // namespace hydrant::cli
