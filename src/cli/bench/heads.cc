// SPDX-License-Identifier: Apache-2.0
#include <fmt/core.h>

#include <algorithm>
#include <array>
#include <memory>
#include <optional>

#include "base/json.h"
#include "cli/bench/bench.h"
#include "cli/bench/flags.h"
#include "cli/flags/engine_flags.h"
#include "cli/flags/values.h"
#include "cli/terminal/errors.h"
#include "cli/terminal/progress.h"
#include "cli/terminal/terminal.h"
#include "draft/heads/head_tensors.h"
#include "eval/heads.h"
#include "eval/random_heads.h"
#include "hydrant/error.h"
#include "kernels/kernels.h"
#include "load/folder_kind.h"
#include "load/loaded_model.h"
#include "tree/parse.h"

namespace hydrant::cli {
namespace {

using base::Json;

constexpr const char* kDescription =
    "What drafting costs (the paper's Table 1): the prefix layer, each head, the base model's step; beside each the "
    "bytes\n"
    "of its weights and the time that reading them takes. With --shape: random weights, no download. With --model and\n"
    "--draft: heads that are there. The heads' logits are first compared with the portable kernels', bit for bit.";

constexpr const char* kExamples =
    "Examples:\n"
    "  hydrant bench heads                           Medusa, Hydra and Hydra++ at 7B in 4 bits\n"
    "  hydrant bench heads --shape 7b --heads hydra++ --head-weights w8a8 --tree mc_sim_7b_63\n"
    "  hydrant bench heads --model vicuna-7b --draft hydra-pp-7b --draft medusa-7b --json\n";

struct Options {
  BenchOptions bench{.seconds = 5};
  std::string shape = "7b";
  std::vector<std::string> kinds = {"medusa", "hydra", "hydra++"};
  EngineOptions engine;  // with --shape: the formats only
  std::vector<std::string> drafts;
  int context = 32;
  bool no_check = false;
};

// One method's result with what it was measured on.
struct Measured {
  std::string name;
  std::string weights;  // of the base
  std::string target;
  int threads = 0;
  int32_t nodes = 0;
  eval::HeadsResult result;
};

void AddShapeFlags(FlagSet& flags, Options& options) {
  flags.Group("Random weights");
  flags.Value(
      "--shape", "NAME",
      [&options](const std::string& value) { options.shape = ParseChoice("--shape", value, eval::ShapeNames()); },
      std::string(eval::kShapesHelp) +
          " (default 7b); --weights auto is w4a8 then, and --head-weights auto the same as --weights");
  flags.Value(
      "--heads", "LIST", [&options](const std::string& value) { options.kinds = ParseHeadKinds(value); },
      eval::RandomDrafterList() + ", separated by commas (default medusa,hydra,hydra++)");
}

void CheckTogether(const FlagSet& flags, const Options& options) {
  for (const char* flag : {"--shape", "--heads"}) {
    if (flags.Given("--model") && flags.Given(flag)) {
      throw UserError(fmt::format("{} is for random weights, and --model names a folder", flag),
                      "leave one of them out");
    }
  }
  if (flags.Given("--model") != flags.Given("--draft")) {
    throw UserError("--model and --draft go together", "give both, or --shape for random weights");
  }
  if (flags.Given("--model")) {
    CheckIsFolder("--model", options.engine.model);
    for (const std::string& draft : options.drafts) CheckIsFolder("--draft", draft);
  }
  for (const char* flag : {"--draft-vocab", "--draft-vocab-text"}) {
    if (!flags.Given("--model") && flags.Given(flag)) {
      throw UserError(fmt::format("{} names tokens, and random heads have none", flag),
                      "give their number with --draft-vocab-size, or heads with --model and --draft");
    }
  }
}

bool ParseFlags(const std::vector<std::string>& args, Options& options) {
  FlagSet flags("hydrant bench heads", kDescription, kExamples);
  AddShapeFlags(flags, options);
  flags.Group("Weights in files");
  flags.Text("--model", "DIR", &options.engine.model, "Base model folder");
  flags.Repeated(
      "--draft", "DIR", [&options](const std::string& value) { options.drafts.push_back(value); },
      "Folder with heads; may be given several times");
  flags.Group("Weights");
  AddWeightFlags(flags, options.engine);
  flags.Group("Work");
  flags.Text("--tree", "TREE", &options.engine.tree,
             "The tree to fill (default: a chain through all heads, or of 8 levels)");
  flags.Value(
      "--context", "N",
      [&options](const std::string& value) {
        options.context = static_cast<int>(ParseInteger("--context", value, 0, 1 << 17));
      },
      "Positions before the base step's row (default 32)");
  flags.Switch("--no-check", &options.no_check, "Leave out the comparison with the portable kernels");
  AddBenchFlags(flags, options.bench, "the rounds of each method, at least three");
  if (!flags.Parse(args)) return false;
  CheckTogether(flags, options);
  if (!flags.Given("--model")) ChooseRandomFormats(options.engine);
  return true;
}

tree::Topology TreeFor(const Options& options, const draft::Drafter& drafter) {
  const int32_t heads = drafter.max_depth();
  if (options.engine.tree.empty()) {
    const std::vector<std::vector<int32_t>> chain{std::vector<int32_t>(static_cast<size_t>(drafter.usual_depth()), 0)};
    return tree::Topology::FromPaths(chain);
  }
  const tree::NamedTopology named = tree::ParseTree(options.engine.tree);
  tree::Topology topology = tree::ForHeads(named, heads);
  tree::CheckFits(topology, {.num_heads = heads, .max_nodes = load::kMaxRows}, "tree '" + named.name + "'");
  return topology;
}

class HeadsBench {
 public:
  explicit HeadsBench(const Options& options) : options_(options), progress_("bench heads") {}

  std::vector<Measured> OfShapes(kernels::Queue& queue) {
    std::vector<Measured> measured;
    const auto fill = [this](double share) { return Note(share, "making random weights"); };
    model::ModelWeights base;
    if (!eval::MakeRandomModel(eval::ShapeConfig(options_.shape), *quant::WeightFormatNamed(options_.engine.weights),
                               queue, fill, &base)) {
      return measured;
    }
    const quant::WeightFormat format = *quant::WeightFormatNamed(options_.engine.head_weights);
    for (const std::string& kind : options_.kinds) {
      kernels::Queue portable{queue.pool, &kernels::PortableKernels()};
      kernels::Queue* const queues[] = {&queue, &portable};
      const auto drafters = eval::MakeRandomDrafters(
          {.name = kind, .format = format, .draft_vocab = options_.engine.draft_vocab_size}, base, queues, fill);
      if (drafters.empty() || Interrupted()) return measured;
      const int64_t all = base.config.vocab_size, cut = options_.engine.draft_vocab_size;
      const std::optional<draft::HeadsInfo> info = eval::PublishedHeads(kind);
      measured.push_back(Measure({&queue, &base, drafters[0].get(), drafters[1].get(), load::KvTypeNamed("auto", base),
                                  cut > 0 ? std::min(cut, all) : all},
                                 kind, info ? std::optional(FileOf(*info)) : std::nullopt));
    }
    return measured;
  }

  std::vector<Measured> OfFolders() {
    std::vector<Measured> measured;
    for (const std::string& draft : options_.drafts) {
      if (Interrupted()) break;
      EngineOptions own = options_.engine;
      own.draft = draft;
      own.threads = options_.bench.threads;
      own.cpu_target = options_.bench.cpu_target;
      own.load_tokenizer = false;
      own.on_pack = PackProgress();
      own.stop = StopFlag();
      const std::unique_ptr<load::LoadedModel> loaded = load::LoadModel(own);
      progress_.Clear();
      PrintWarnings(loaded->info.warnings);
      own.cpu_target = "portable";
      const auto portable = options_.no_check ? nullptr : load::LoadModel(own);
      measured.push_back(Measure(
          {&loaded->queue, &loaded->weights, loaded->drafter.get(), portable ? portable->drafter.get() : nullptr,
           loaded->kv_shape.dtype, loaded->info.num_draft_vocab},
          loaded->drafter->name(), load::IsDraftModel(draft) ? std::nullopt : std::optional(draft::OpenHeads(draft))));
    }
    return measured;
  }

 private:
  bool Note(double share, const std::string& note) {
    progress_.Update(share, note);
    return !Interrupted();
  }

  struct Heads {
    kernels::Queue* queue;
    const model::ModelWeights* base;
    draft::Drafter *drafter, *portable;
    DType kv_type;
    int64_t num_draft_vocab;
  };

  static draft::HeadsFile FileOf(const draft::HeadsInfo& info) {
    draft::HeadsFile file;
    file.info = info;
    return file;
  }

  // `file`: of heads; none: a draft model.
  Measured Measure(const Heads& what, const std::string& name, const std::optional<draft::HeadsFile>& file) {
    const model::Linear& first = what.base->layers.front().q;
    Measured measured{.name = name,
                      .weights = first.packed ? quant::NameOf(first.packed->format) : NameOf(first.weight.dtype),
                      .target = what.queue->table->target,
                      .threads = what.queue->pool->num_threads(),
                      .nodes = 0,
                      .result = {}};
    const model::ModelConfig& config = what.base->config;
    eval::HeadsOptions heads{.queue = what.queue, .base = what.base, .drafter = what.drafter};
    if (!options_.no_check) heads.portable = what.portable;
    if (file) heads.part_weights = eval::PartWeights(*file, config, what.num_draft_vocab);
    heads.tree = TreeFor(options_, *what.drafter);
    heads.context = options_.context;
    heads.kv_type = what.kv_type;
    heads.seconds = options_.bench.seconds;
    heads.on_progress = [this, &name](double share, const std::string& note) {
      return Note(share, fmt::format("{}: {}", name, note));
    };
    measured.nodes = heads.tree.num_nodes() - 1;
    measured.result = eval::MeasureHeads(heads);
    progress_.Clear();
    return measured;
  }

  const Options& options_;
  Progress progress_;
};

Json HeadsJson(const Options& options, std::span<const Measured> methods) {
  Json json = {{"threads", methods.empty() ? 0 : methods.front().threads},
               {"target", methods.empty() ? "" : methods.front().target},
               {"context", options.context},
               {"methods", Json::array()},
               {"version", HYDRANT_VERSION}};
  if (options.engine.model.empty()) {
    json["shape"] = options.shape;
    json["weights"] = options.engine.weights;
    json["head_weights"] = options.engine.head_weights;
  } else {
    json["model"] = options.engine.model;
  }
  for (size_t m = 0; m < methods.size(); ++m) {
    const eval::HeadsResult& result = methods[m].result;
    Json method = {{"name", methods[m].name}, {"tree_nodes", methods[m].nodes}, {"step_bytes", result.step_bytes},
                   {"rounds", result.rounds}, {"checked", result.checked},      {"parts", Json::array()}};
    if (!options.drafts.empty()) {
      method["draft"] = options.drafts[m];
      method["weights"] = methods[m].weights;
    }
    PutSpread(method, "step_ms", result.step_ms);
    PutSpread(method, "read_gb_s", result.read_gb_s);
    for (const eval::DraftPart& part : result.parts) {
      Json row = {{"name", part.name}, {"bytes", part.bytes}, {"ratio", part.ratio}, {"of_step", part.of_step}};
      PutSpread(row, "ms", part.ms);
      PutSpread(row, "read_ms", part.read_ms);
      method["parts"].push_back(std::move(row));
    }
    json["methods"].push_back(std::move(method));
  }
  return json;
}

std::string HeadsText(const Options& options, const Measured& measured) {
  const eval::HeadsResult& result = measured.result;
  const std::string what =
      options.engine.model.empty()
          ? fmt::format("{} {}, heads {}", options.shape, options.engine.weights, options.engine.head_weights)
          : fmt::format("{} (weights {})", options.engine.model, measured.weights);
  std::string text =
      fmt::format("{} on {}, {}, a tree of {} nodes\n", measured.name, what, measured.target, measured.nodes);
  text += fmt::format("{:14} {:>10} {:>10} {:>8} {:>9} {:>10} {:>11}\n", "", "ms", "least", "GB", "read ms", "ms/read",
                      "% of a step");
  for (const eval::DraftPart& part : result.parts) {
    text += fmt::format("{:14} {:10.3f} {:10.3f} {:8.3f} {:9.3f} {:10.2f} {:11.1f}\n", part.name, part.ms.median,
                        part.ms.min, 1e-9 * static_cast<double>(part.bytes), part.read_ms.median, part.ratio,
                        100 * part.of_step);
  }
  const double step_read = 1e-6 * static_cast<double>(result.step_bytes) / result.read_gb_s.median;
  text += fmt::format("{:14} {:10.3f} {:10.3f} {:8.3f} {:9.3f} {:10.2f} {:11.1f}\n", "base step", result.step_ms.median,
                      result.step_ms.min, 1e-9 * static_cast<double>(result.step_bytes), step_read,
                      result.step_ms.median / step_read, 100.0);
  text += fmt::format("read {:.1f} GB/s ({:.1f} .. {:.1f}), {} rounds in turn; {}\n\n", result.read_gb_s.median,
                      result.read_gb_s.min, result.read_gb_s.max, result.rounds,
                      result.checked ? "checked: equal to the portable kernels, bit for bit" : "not checked");
  return text;
}

}  // namespace

int BenchHeads(const std::vector<std::string>& args) {
  Options options;
  if (!ParseFlags(args, options)) return kExitOk;
  HeadsBench bench(options);
  std::vector<Measured> measured;
  if (options.engine.model.empty()) {
    const std::unique_ptr<base::ThreadPool> pool = BenchPool(options.bench);
    const int64_t hidden_size = eval::ShapeConfig(options.shape).hidden_size;
    kernels::Queue queue{pool.get(), &kernels::KernelsForModel(options.bench.cpu_target, hidden_size)};
    measured = bench.OfShapes(queue);
  } else {
    measured = bench.OfFolders();
  }
  if (Interrupted()) return InterruptedExit();
  if (options.bench.json) {
    Print(base::DumpJson(HeadsJson(options, measured)) + "\n");
  } else {
    for (const Measured& method : measured) Print(HeadsText(options, method));
  }
  return kExitOk;
}

}  // namespace hydrant::cli
