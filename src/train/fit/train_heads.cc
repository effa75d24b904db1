// SPDX-License-Identifier: Apache-2.0
#include "train/fit/train_heads.h"

#include <algorithm>
#include <chrono>
#include <filesystem>
#include <memory>
#include <set>
#include <utility>

#include "base/free_memory.h"
#include "base/json.h"
#include "checkpoint/content_hash.h"
#include "checkpoint/tensor_source.h"
#include "hydrant/error.h"
#include "load/loaded_model.h"
#include "parallel/cores.h"
#include "train/evaluation.h"
#include "train/fit/batch_text.h"
#include "train/fit/head_fit.h"
#include "train/fit/metrics.h"
#include "train/fit/ranks.h"
#include "train/fit/run_loop.h"
#include "train/fit/run_settings.h"
#include "train/state_source.h"
#include "train/time_text.h"

namespace hydrant::train {
namespace {

using base::Json;
using Clock = std::chrono::steady_clock;

// Of each kind of heads: one kind alone has the whole folder.
std::vector<std::string> FoldersOf(const TrainHeadsOptions& options) {
  if (options.heads.size() == 1) return {options.out};
  std::vector<std::string> folders;
  for (const HeadsToTrain& heads : options.heads) {
    folders.push_back(options.out + "/" + FolderNameOf(heads.shape.arch));
  }
  return folders;
}

class Run : public Trainee {
 public:
  explicit Run(const TrainHeadsOptions& options)
      : options_(options),
        loop_(options, FoldersOf(options), {options.engine.model}),
        precision_(PrecisionNamed(options.precision)) {}

  TrainHeadsReport Train() {
    LoadBase();
    run_ = loop_.ReadData(*loaded_);
    MakeFits();
    MakeStates();
    std::vector<TrainedPart> parts;
    for (Fit& fit : fits_) parts.push_back({fit.arch, &fit.heads->trained()});
    static_cast<RunReport&>(report_) = loop_.Run(*this, run_, std::move(parts), all_steps_);
    return std::move(report_);
  }

  std::string Step(const StepPlace& place, const Batch& share) override {
    const bool has_rows = !share.rows.empty();
    const BatchTensors tensors = has_rows ? Gather(share) : BatchTensors();
    std::string words;
    for (size_t f = 0; f < fits_.size(); ++f) {
      HeadFit& heads = *fits_[f].heads;
      if (place.step >= heads.options().total_steps) continue;
      const std::vector<double> counts = CountAllLabels(loop_.ranks(), tensors, heads.depth());
      if (has_rows) {
        BatchTensors own = tensors;
        own.hidden.clear();
        for (const size_t state : fits_[f].states) own.hidden.push_back(tensors.hidden[state]);
        heads.AddGradient(own, tensors.hidden[final_state_], place.step, counts, place.is_logged);
      }
      heads.SumOver(loop_.ranks());
      const StepFigures figures = heads.Step(place.step);
      CheckFinite(fits_[f].arch, figures.loss, figures.gradient_norm);
      report_.heads[f].loss = figures.loss;
      if (!place.is_logged) continue;
      loop_.Log(place, fits_[f].arch, MetricsOf(figures));
      words += (words.empty() ? "" : "; ") + (fits_.size() > 1 ? fits_[f].arch + " " : "") + WordsOf(figures);
    }
    return words;
  }

  void Write(int64_t /*steps*/) override {
    for (size_t f = 0; f < fits_.size(); ++f) {
      WriteTo(report_.heads[f].folder, *fits_[f].heads);
    }
  }

  void Evaluate(int64_t steps) override {
    if (!evaluation_) {
      evaluation_ =
          std::make_unique<Evaluation>(*loaded_, PromptsOf(run_.data, run_.held_out), options_.eval_tokens,
                                       [this](double share) { loop_.Stage("decoding held-out replies", share); });
    }
    for (size_t f = 0; f < fits_.size(); ++f) {
      if (steps > fits_[f].heads->options().total_steps) continue;
      loop_.Stage("measuring " + fits_[f].arch, static_cast<double>(f) / static_cast<double>(fits_.size()));
      TrainedHeads& heads = report_.heads[f];
      const EvaluationFigures found = evaluation_->Run(heads.folder);
      heads.tokens_per_step = found.tokens_per_step;
      heads.standard_error = found.standard_error;
      const Json best = BestOf(loop_.metrics_file(), heads.arch);
      const bool is_best = best.is_null() || found.tokens_per_step > best["tokens_per_step"].get<double>();
      loop_.LogMeasured(steps, heads.arch, JsonOf(found));
      heads.best_folder = loop_.record() + "/best/" + FolderNameOf(heads.arch);
      heads.best_step = is_best ? steps : best["step"].get<int64_t>();
      heads.best_tokens_per_step = is_best ? found.tokens_per_step : best["tokens_per_step"].get<double>();
      if (is_best) WriteTo(heads.best_folder, *fits_[f].heads);
    }
  }

 private:
  struct Fit {
    std::string arch;
    std::unique_ptr<HeadFit> heads;
    std::vector<size_t> states;  // that it reads, among wanted_
  };

  void WriteTo(const std::string& folder, const HeadFit& heads) const {
    WriteHeads(heads.options().info, loaded_->weights.config, heads.Tensors(),
               {.folder = folder,
                .file = options_.file,
                .dtype = options_.dtype,
                .base = heads.options().info.base_model,
                .draft_vocab = heads.options().shape.draft_vocab});
  }

  void LoadBase() {
    loop_.Stage("loading", 0);
    parallel::TakeOwnCores(loop_.ranks(), options_.engine.threads);
    loaded_ = load::LoadModel(options_.engine);
    loop_.TakeThreads(loaded_->pool->num_threads());
    base_ = TakeBaseTensors(loaded_->weights);
    CheckPositions(loaded_->weights.config, options_.row_tokens);
  }

  void MakeFits() {
    Json settings = SettingsOf(options_, run_, precision_);
    settings["base"] = checkpoint::HashOfFiles(checkpoint::OpenModelFolder(options_.engine.model)->files());
    settings["heads"] = Json::array();
    for (const HeadsToTrain& heads : options_.heads) settings["heads"].push_back(MakeFit(heads));
    final_state_ = WantedState(model::kAfterFinalNorm);
    // Kept states are bf16, others f32.
    settings["keeps_states"] = KeepsStates();
    loop_.Agree(settings);
    cache_key_ = {{"held_out", run_.held_out.size()},
                  {"base", settings["base"]},
                  {"data", settings["data"]},
                  {"row_tokens", options_.row_tokens},
                  {"tokens", options_.tokens},
                  {"seed", options_.seed},
                  {"states", wanted_},
                  {"kv_type", NameOf(loaded_->kv_shape.dtype)}};
  }

  uint64_t StateBytes() const { return StateCache::BytesFor(run_.order->segments(), StateNumbers()); }
  // Of a token, in all hidden states together.
  int64_t StateNumbers() const { return static_cast<int64_t>(wanted_.size()) * loaded_->weights.config.hidden_size; }
  bool KeepsStates() const {
    const bool is_wanted = !options_.cache.empty() || all_steps_ > run_.order->steps(0);
    return is_wanted && StateBytes() <= options_.cache_most;
  }

  // Returns its settings.
  Json MakeFit(HeadsToTrain heads) {
    const model::ModelConfig& config = loaded_->weights.config;
    if (heads.prunes_vocab) {
      heads.shape.draft_vocab = run_.DraftVocab(options_.draft_vocab_size, config.vocab_size);
      const size_t found = heads.shape.draft_vocab.size();
      if (found > 0 && found < static_cast<size_t>(options_.draft_vocab_size)) {
        loop_.Warn("the text has " + std::to_string(found) + " different tokens: " + heads.shape.arch +
                   " heads draft no others");
      }
    }
    draft::HeadsInfo info = DescribeHeads(heads.shape, config);
    if (info.base_model.empty()) {
      info.base_model = std::filesystem::weakly_canonical(options_.engine.model).filename().string();
    }
    const int64_t steps = run_.StepsOf(heads.recipe.epochs);
    all_steps_ = std::max(all_steps_, steps);
    Fit fit{.arch = heads.shape.arch,
            .heads = std::make_unique<HeadFit>(FitOptions{.info = info,
                                                          .shape = heads.shape,
                                                          .recipe = heads.recipe,
                                                          .seed = options_.seed,
                                                          .precision = precision_,
                                                          .total_steps = steps,
                                                          .rank = loop_.ranks().rank()},
                                               config, base_),
            .states = {}};
    for (const int32_t layer : WantedLayers(info, config)) fit.states.push_back(WantedState(layer));
    fits_.push_back(std::move(fit));
    report_.heads.push_back({heads.shape.arch, FoldersOf(options_)[report_.heads.size()]});
    return {{"shape", SettingsOf(heads.shape, info)}, {"recipe", SettingsOf(heads.recipe)}};
  }

  // The place of a hidden state among those that are computed.
  size_t WantedState(int32_t layer) {
    const auto found = std::ranges::find(wanted_, layer);
    if (found != wanted_.end()) return static_cast<size_t>(found - wanted_.begin());
    wanted_.push_back(layer);
    return wanted_.size() - 1;
  }

  // Rank 0 makes the file that all ranks of a machine share.
  void MakeStates() {
    if (!loop_.is_first()) loop_.ranks().Barrier();
    auto base = std::make_unique<BaseStates>(*loaded_, wanted_, options_.row_tokens);
    const int64_t hidden_size = loaded_->weights.config.hidden_size;
    std::unique_ptr<StateCache> cache = OpenCache();
    if (cache != nullptr && loop_.is_first()) SayTimeOf(*base, *cache);
    states_ = std::make_unique<StateSource>(std::move(base), std::move(cache), hidden_size, wanted_.size());
    if (loop_.is_first()) loop_.ranks().Barrier();
  }

  // Null where no states are kept.
  std::unique_ptr<StateCache> OpenCache() {
    const std::vector<Segment>& segments = run_.order->segments();
    const uint64_t bytes = StateBytes();
    if (!KeepsStates()) {
      if (bytes > options_.cache_most) {
        loop_.Note("hidden states would take " + base::MemoryText(bytes) + ": every epoch runs the base");
      }
      return nullptr;
    }
    auto cache = std::make_unique<StateCache>(options_.cache.empty() ? loop_.record() : options_.cache,
                                              base::DumpJson(cache_key_), segments, StateNumbers());
    loop_.Note("hidden states: " + base::MemoryText(bytes) + " in " + cache->path() + "; those of " +
               std::to_string(cache->num_kept()) + " of " + std::to_string(segments.size()) + " texts are there");
    return cache;
  }

  // How long the base will take for the states that are not there yet, by one text of those.
  void SayTimeOf(BaseStates& base, const StateCache& cache) {
    const std::vector<Segment>& segments = run_.order->segments();
    const auto left = static_cast<int64_t>(segments.size()) - cache.num_kept();
    if (left == 0) return;
    const Segment& longest = *std::ranges::max_element(segments, {}, &Segment::count);
    const std::span<const int32_t> text =
        std::span(run_.data.tokens).subspan(static_cast<size_t>(longest.begin), static_cast<size_t>(longest.count));
    const std::span<const int32_t> first = text.first(1);
    base.Compute(std::span(&first, 1), matrices_);  // reads the weights
    const Clock::time_point start = Clock::now();
    base.Compute(std::span(&text, 1), matrices_);
    const double seconds = std::chrono::duration<double>(Clock::now() - start).count();
    int64_t tokens = 0;
    for (const Segment& segment : segments) tokens += segment.count;
    const double share = static_cast<double>(left) / static_cast<double>(segments.size());
    const double all = seconds * static_cast<double>(tokens) / static_cast<double>(text.size()) * share;
    loop_.Note("the base will take about " + TimeText(all / loop_.ranks().size()) + " for the others");
  }

  // The batch's tokens and the base's states of them.
  BatchTensors Gather(const Batch& batch) {
    const BatchText text = TextOf(run_, batch);
    const Clock::time_point start = Clock::now();
    states_->Compute(text.indices, text.texts, matrices_);
    report_.base_seconds += std::chrono::duration<double>(Clock::now() - start).count();
    std::vector<at::Tensor> hidden;
    for (const Matrix& matrix : matrices_) hidden.push_back(TensorOf(matrix));
    return MakeBatchTensors(text.segments, text.rows, std::move(hidden));
  }

  const TrainHeadsOptions& options_;
  RunLoop loop_;
  Precision precision_;
  std::unique_ptr<load::LoadedModel> loaded_;
  BaseTensors base_;
  RunData run_;
  std::unique_ptr<Evaluation> evaluation_;
  std::vector<Fit> fits_;
  std::vector<int32_t> wanted_;  // hidden states
  size_t final_state_ = 0;
  Json cache_key_;
  std::unique_ptr<StateSource> states_;
  std::vector<Matrix> matrices_;
  int64_t all_steps_ = 0;
  TrainHeadsReport report_;
};

void CheckOptions(const TrainHeadsOptions& options) {
  CheckRunOptions(options);
  CheckRange("TrainHeadsOptions::draft_vocab_size", options.draft_vocab_size, 0, 1 << 30);
  CheckRange("TrainHeadsOptions::eval_tokens", options.eval_tokens, 2, 1 << 16);
  if (options.heads.empty()) throw UserError("TrainHeadsOptions::heads is empty, expected at least one kind of heads");
  std::set<std::string> archs;
  for (const HeadsToTrain& heads : options.heads) {
    const std::string& arch = heads.shape.arch;
    if (!archs.insert(arch).second) throw UserError("TrainHeadsOptions::heads has " + arch + " twice");
    const Recipe& recipe = heads.recipe;
    if (recipe.label_weight == 0 && recipe.teacher_weight == 0 && recipe.reconstruction_weight == 0) {
      throw UserError("Recipe::label_weight and Recipe::teacher_weight of " + arch + " are 0: nothing is to be learned",
                      "give one of them a weight");
    }
  }
}

}  // namespace

TrainHeadsReport TrainHeads(const TrainHeadsOptions& options) {
  CheckOptions(options);
  return Run(options).Train();
}

}  // namespace hydrant::train
