// SPDX-License-Identifier: Apache-2.0
#include "train/fit/train_heads.h"

#include <algorithm>
#include <chrono>
#include <cmath>
#include <filesystem>
#include <memory>
#include <utility>

#include "base/atomic_file.h"
#include "base/free_memory.h"
#include "base/json.h"
#include "base/paths.h"
#include "checkpoint/content_hash.h"
#include "checkpoint/tensor_source.h"
#include "hydrant/error.h"
#include "load/loaded_model.h"
#include "parallel/cores.h"
#include "train/data/batches.h"
#include "train/evaluation.h"
#include "train/fit/blas.h"
#include "train/fit/checkpoint.h"
#include "train/fit/head_fit.h"
#include "train/fit/metrics.h"
#include "train/fit/ranks.h"
#include "train/fit/run_settings.h"
#include "train/run_data.h"
#include "train/run_lock.h"
#include "train/state_source.h"

namespace hydrant::train {
namespace {

using base::Json;
using Clock = std::chrono::steady_clock;

double SecondsSince(Clock::time_point start) { return std::chrono::duration<double>(Clock::now() - start).count(); }

class Run {
 public:
  explicit Run(const TrainHeadsOptions& options)
      : options_(options),
        alone_(parallel::MakeSingle()),
        ranks_(options.ranks != nullptr ? *options.ranks : *alone_),
        is_first_(ranks_.rank() == 0),
        precision_(PrecisionNamed(options.precision)),
        record_(options.out + "/training") {}

  TrainHeadsReport Train() {
    if (is_first_) PrepareFolder();
    LoadBase();
    ReadData();
    MakeFits();
    if (options_.resume && is_first_) step_ = ReadCheckpoint(CheckpointFile(), fits_, settings_);
    TakeStart(ranks_, fits_, step_);
    if (is_first_) metrics_ = std::make_unique<MetricsFile>(record_ + "/metrics.jsonl", step_);
    started_at_ = step_;
    const Clock::time_point start = Clock::now();
    Loop(start);
    report_.seconds = SecondsSince(start);
    report_.steps = step_;
    report_.all_steps = all_steps_;
    return std::move(report_);
  }

 private:
  std::string CheckpointFile() const { return record_ + "/checkpoint.safetensors"; }

  // A run that is there is gone on with or begun anew only where the user says so.
  void PrepareFolder() {
    if (options_.out.empty()) throw UserError("TrainHeadsOptions::out is empty, expected a folder");
    const bool is_there = base::IsThere(CheckpointFile());
    if (options_.resume && !is_there) {
      throw FileError(options_.out, "holds no run to go on with: " + CheckpointFile() + " is missing");
    }
    if (!options_.resume && !options_.replace && (is_there || base::IsThere(options_.out + "/config.json"))) {
      throw FileError(options_.out, "holds a run or heads already",
                      "go on with it by TrainHeadsOptions::resume, or begin anew by TrainHeadsOptions::replace");
    }
    std::error_code error;
    std::filesystem::create_directories(record_, error);
    if (error) throw FileError(record_, "cannot be made: " + error.message());
    lock_ = std::make_unique<RunLock>(record_);
  }

  void Stage(const std::string& name, double share) const {
    if (is_first_ && options_.on_stage) options_.on_stage(name, share);
    if (options_.stop != nullptr && *options_.stop) throw Stopped();
  }

  void LoadBase() {
    Stage("loading", 0);
    parallel::TakeOwnCores(ranks_, options_.engine.threads);
    loaded_ = load::LoadModel(options_.engine);
    SetLibraryThreads(ranks_, loaded_->pool->num_threads());
    if (is_first_ && IsReferenceBlas(BlasFile()) && options_.warn) {
      options_.warn("libtorch multiplies with the reference BLAS (" + BlasFile() +
                    "), which is some thirty times as slow as others; on Debian install libopenblas0-pthread");
    }
    base_ = TakeBaseTensors(loaded_->weights);
    const int64_t most = loaded_->weights.config.max_positions;
    if (options_.row_tokens > most) {
      throw UserError("TrainHeadsOptions::row_tokens is " + std::to_string(options_.row_tokens) +
                          ", and the base has " + std::to_string(most) + " positions",
                      "choose a smaller number");
    }
  }

  void ReadData() {
    run_ = ReadRunData(*loaded_, {.files = options_.data,
                                  .template_name = options_.template_name,
                                  .learns_prompts = options_.learns_prompts,
                                  .tokens = options_.tokens,
                                  .row_tokens = options_.row_tokens,
                                  .rows = options_.rows,
                                  .held_out = options_.eval_every > 0 ? options_.eval_texts : 0,
                                  .seed = options_.seed,
                                  .progress = [this](double share) { Stage("reading text", share); },
                                  .warn = is_first_ ? options_.warn : nullptr});
  }

  void MakeFits() {
    settings_ = {{"base", checkpoint::HashOfFiles(checkpoint::OpenModelFolder(options_.engine.model)->files())},
                 {"data", ContentHash(run_.data)},
                 {"tokens", options_.tokens},
                 {"row_tokens", options_.row_tokens},
                 {"rows", options_.rows},
                 {"seed", options_.seed},
                 {"held_out", run_.held_out.size()},
                 {"precision", precision_ == Precision::kBF16 ? "bf16" : "f32"},
                 {"heads", Json::array()}};
    for (HeadsToTrain heads : options_.heads) {
      if (heads.shape.arch == "eagle3") {
        heads.shape.draft_vocab = run_.DraftVocab(options_.draft_vocab_size, loaded_->weights.config.vocab_size);
      }
      draft::HeadsInfo info = DescribeHeads(heads.shape, loaded_->weights.config);
      if (info.base_model.empty()) {
        info.base_model = std::filesystem::weakly_canonical(options_.engine.model).filename().string();
      }
      const int64_t steps = run_.StepsOf(heads.recipe.epochs);
      all_steps_ = std::max(all_steps_, steps);
      owned_.push_back(std::make_unique<HeadFit>(FitOptions{.info = info,
                                                            .shape = heads.shape,
                                                            .recipe = heads.recipe,
                                                            .seed = options_.seed,
                                                            .precision = precision_,
                                                            .total_steps = steps,
                                                            .rank = ranks_.rank()},
                                                 loaded_->weights.config, base_));
      fits_.push_back({heads.shape.arch, owned_.back().get()});
      std::vector<size_t> states;
      for (const int32_t layer : WantedLayers(info, loaded_->weights.config)) states.push_back(WantedState(layer));
      states_of_.push_back(std::move(states));
      settings_["heads"].push_back({{"shape", SettingsOf(heads.shape, info)}, {"recipe", SettingsOf(heads.recipe)}});
      const std::string name = FolderNameOf(heads.shape.arch);
      report_.heads.push_back(
          {heads.shape.arch, options_.heads.size() == 1 ? options_.out : options_.out + "/" + name});
    }
    CheckSameSettings(ranks_, settings_);
    final_state_ = WantedState(model::kAfterFinalNorm);
    if (!is_first_) ranks_.Barrier();  // rank 0 makes the file that all ranks of a machine share
    OpenStates();
    if (is_first_) ranks_.Barrier();
  }

  // The place of a hidden state among those that are computed.
  size_t WantedState(int32_t layer) {
    const auto found = std::ranges::find(wanted_, layer);
    if (found != wanted_.end()) return static_cast<size_t>(found - wanted_.begin());
    wanted_.push_back(layer);
    return wanted_.size() - 1;
  }

  void OpenStates() {
    auto base = std::make_unique<BaseStates>(*loaded_, wanted_, options_.row_tokens);
    const int64_t hidden_size = loaded_->weights.config.hidden_size;
    const auto numbers = static_cast<int64_t>(wanted_.size()) * hidden_size;
    std::unique_ptr<StateCache> cache;
    const bool is_wanted = !options_.cache.empty() || all_steps_ > run_.order->steps(0);
    const uint64_t bytes = StateCache::BytesFor(run_.order->segments(), numbers);
    if (is_wanted && bytes <= options_.cache_most) {
      const Json key = {{"held_out", run_.held_out.size()},
                        {"base", settings_["base"]},
                        {"data", settings_["data"]},
                        {"row_tokens", options_.row_tokens},
                        {"tokens", options_.tokens},
                        {"seed", options_.seed},
                        {"states", wanted_}};
      cache = std::make_unique<StateCache>(options_.cache.empty() ? record_ : options_.cache, base::DumpJson(key),
                                           run_.order->segments(), numbers);
      Note("hidden states: " + base::MemoryText(bytes) + " in " + cache->path() + ", there are " +
           std::to_string(cache->num_kept()) + " of " + std::to_string(run_.order->segments().size()) + " texts");
    } else if (is_wanted) {
      Note("hidden states would take " + base::MemoryText(bytes) + ": every epoch runs the base");
    }
    states_ = std::make_unique<StateSource>(std::move(base), std::move(cache), hidden_size, wanted_.size());
  }

  void Note(const std::string& text) const {
    if (is_first_ && options_.note) options_.note(text);
  }

  void Loop(Clock::time_point start) {
    for (int32_t epoch = 0; step_ < all_steps_; ++epoch) {
      const int64_t first = run_.StepsOf(epoch), last = std::min(all_steps_, run_.StepsOf(epoch + 1));
      while (step_ < last) {
        ranks_.set_step(step_);
        if (StopIsWanted()) {
          report_.stopped = true;
          return Save();
        }
        Step(epoch, run_.order->at(epoch, step_ - first), start);
        const bool is_last = step_ == all_steps_;
        const bool is_measured = options_.eval_every > 0 && (step_ % options_.eval_every == 0 || is_last);
        if (is_measured || is_last || step_ % options_.save_every == 0) Save();
        if (is_measured) Evaluate();
        if (is_last && is_first_) WritePlot();
      }
    }
  }

  // All ranks stop after the same step, whichever of them was told to.
  bool StopIsWanted() { return ranks_.MaxReduce(options_.stop != nullptr && *options_.stop ? 1 : 0) != 0; }

  // Labels of each head in the rows of all ranks.
  std::vector<double> CountAllLabels(const BatchTensors& own, int32_t depth) {
    std::vector<double> counts(static_cast<size_t>(depth), 0.0);
    if (own.tokens.defined()) counts = CountLabels(own, depth);
    ranks_.TreeSum(std::span(counts));
    return counts;
  }

  // The batch's tokens and the base's states of them.
  BatchTensors Gather(const Batch& batch) {
    std::vector<SegmentTokens> segments;
    std::vector<std::span<const int32_t>> texts;
    std::vector<int32_t> rows, indices;
    for (const Row& row : batch.rows) {
      rows.push_back(static_cast<int32_t>(row.segments.size()));
      for (const int32_t index : row.segments) {
        indices.push_back(index);
        const Segment& segment = run_.order->segments()[static_cast<size_t>(index)];
        const auto begin = static_cast<size_t>(segment.begin), count = static_cast<size_t>(segment.count);
        segments.push_back(
            {std::span(run_.data.tokens).subspan(begin, count), std::span(run_.data.learned).subspan(begin, count)});
        texts.push_back(segments.back().tokens);
      }
    }
    const Clock::time_point start = Clock::now();
    states_->Compute(indices, texts, matrices_);
    report_.base_seconds += SecondsSince(start);
    std::vector<at::Tensor> hidden;
    for (const Matrix& matrix : matrices_) hidden.push_back(TensorOf(matrix));
    return MakeBatchTensors(segments, rows, std::move(hidden));
  }

  void Step(int32_t epoch, const Batch& batch, Clock::time_point start) {
    const Batch share = ShareOf(batch, ranks_.rank(), ranks_.size());
    const bool has_rows = !share.rows.empty();
    const BatchTensors tensors = has_rows ? Gather(share) : BatchTensors();
    for (const Row& row : batch.rows) report_.tokens += row.tokens;
    ++step_;
    const bool is_logged = step_ % options_.log_every == 0 || step_ == 1 || step_ == all_steps_;
    std::string words;
    for (size_t f = 0; f < fits_.size(); ++f) {
      HeadFit& fit = *fits_[f].fit;
      if (step_ > fit.options().total_steps) continue;
      BatchTensors own = tensors;
      const std::vector<double> counts = CountAllLabels(own, fit.depth());
      if (has_rows) {
        own.hidden.clear();
        for (const size_t state : states_of_[f]) own.hidden.push_back(tensors.hidden[state]);
        fit.AddGradient(own, tensors.hidden[final_state_], step_ - 1, counts, is_logged);
      }
      fit.SumOver(ranks_);
      const StepFigures figures = fit.Step(step_ - 1);
      CheckFinite(fits_[f].name, figures);
      report_.heads[f].loss = figures.loss;
      if (!is_logged) continue;
      Log(fits_[f].name, epoch, figures, start);
      words += (words.empty() ? "" : "; ") + (fits_.size() > 1 ? fits_[f].name + " " : "") + WordsOf(figures);
    }
    Progress(epoch, words, start);
  }

  // The parameters are spoilt then: the checkpoint on the disk is the last good one.
  static void CheckFinite(const std::string& name, const StepFigures& figures) {
    if (std::isfinite(figures.loss) && std::isfinite(figures.gradient_norm)) return;
    throw UserError("the loss of " + name + " is no finite number any more",
                    "go on from the last checkpoint with a lower Recipe::peak_rate or products in f32; that checkpoint "
                    "is whole");
  }

  void Log(const std::string& arch, int32_t epoch, const StepFigures& figures, Clock::time_point start) {
    if (!is_first_) return;
    Json line = {{"step", step_}, {"epoch", epoch}, {"arch", arch}, {"tokens_per_second", Speed(start)}};
    line.update(MetricsOf(figures));
    metrics_->Add(line);
  }

  double Speed(Clock::time_point start) const { return static_cast<double>(report_.tokens) / SecondsSince(start); }

  void Progress(int32_t epoch, const std::string& words, Clock::time_point start) const {
    if (!is_first_ || !options_.on_progress) return;
    const double per_step = SecondsSince(start) / static_cast<double>(step_ - started_at_);
    options_.on_progress({.step = step_,
                          .steps = all_steps_,
                          .epoch = epoch,
                          .tokens_per_second = Speed(start),
                          .seconds_left = per_step * static_cast<double>(all_steps_ - step_),
                          .text = words});
  }

  void Evaluate() {
    if (!is_first_ || run_.held_out.empty()) return;
    if (!evaluation_) {
      std::vector<std::vector<int32_t>> prompts;
      for (const Segment& segment : run_.held_out) prompts.push_back(PromptOf(run_.data, segment));
      evaluation_ = std::make_unique<Evaluation>(*loaded_, prompts, options_.eval_tokens,
                                                 [this](double share) { Stage("decoding held-out replies", share); });
    }
    for (size_t f = 0; f < fits_.size(); ++f) {
      if (step_ > fits_[f].fit->options().total_steps) continue;
      Stage("measuring " + fits_[f].name, static_cast<double>(f) / static_cast<double>(fits_.size()));
      TrainedHeads& heads = report_.heads[f];
      const EvaluationFigures found = evaluation_->Run(heads.folder);
      heads.tokens_per_step = found.tokens_per_step;
      heads.standard_error = found.standard_error;
      metrics_->Add({{"step", step_},
                     {"arch", heads.arch},
                     {"tokens_per_step", found.tokens_per_step},
                     {"standard_error", found.standard_error},
                     {"emitted_per_step", found.emitted_per_step},
                     {"chain_tokens_per_step", found.chain_per_step}});
    }
  }

  void WritePlot() const {
    const std::string plot = PlotOf(record_ + "/metrics.jsonl");
    base::AtomicFile file(record_ + "/loss.svg");
    file.Write(plot.data(), plot.size());
    file.Keep();
  }

  void Save() {
    CheckSameParameters(ranks_, fits_);
    if (!is_first_) return;
    WriteCheckpoint(CheckpointFile(), fits_, step_, settings_);
    WritePlot();
    for (size_t f = 0; f < fits_.size(); ++f) {
      const HeadFit& fit = *fits_[f].fit;
      WriteHeads(fit.options().info, loaded_->weights.config, fit.Tensors(),
                 {.folder = report_.heads[f].folder,
                  .file = options_.file,
                  .dtype = options_.dtype,
                  .base = fit.options().info.base_model,
                  .draft_vocab = fit.options().shape.draft_vocab});
    }
  }

  const TrainHeadsOptions& options_;
  std::unique_ptr<parallel::Communicator> alone_;
  parallel::Communicator& ranks_;
  const bool is_first_;  // of the ranks: writes, and tells the user
  Precision precision_;
  std::string record_;  // folder of what a run keeps beside the heads
  std::unique_ptr<RunLock> lock_;
  std::unique_ptr<load::LoadedModel> loaded_;
  BaseTensors base_;
  RunData run_;
  std::unique_ptr<Evaluation> evaluation_;
  std::vector<std::unique_ptr<HeadFit>> owned_;
  std::vector<NamedFit> fits_;
  std::vector<int32_t> wanted_;                 // hidden states
  std::vector<std::vector<size_t>> states_of_;  // of each fit, among them
  size_t final_state_ = 0;
  std::unique_ptr<StateSource> states_;
  std::vector<Matrix> matrices_;
  std::unique_ptr<MetricsFile> metrics_;
  Json settings_;
  int64_t step_ = 0, started_at_ = 0, all_steps_ = 0;
  TrainHeadsReport report_;
};

}  // namespace

TrainHeadsReport TrainHeads(const TrainHeadsOptions& options) {
  CheckOptions(options);
  return Run(options).Train();
}

}  // namespace hydrant::train
