// SPDX-License-Identifier: Apache-2.0
#include "train/fit/base/train_base.h"

#include <cmath>
#include <cstdio>
#include <memory>
#include <span>
#include <tuple>
#include <utility>
#include <vector>

#include "base/json.h"
#include "base/paths.h"
#include "base/thread_pool.h"
#include "hydrant/error.h"
#include "parallel/cores.h"
#include "train/base_tokenizer.h"
#include "train/fit/base/held_out.h"
#include "train/fit/batch_text.h"
#include "train/fit/ranks.h"
#include "train/fit/run_loop.h"
#include "train/fit/run_settings.h"
#include "train/write_base.h"

namespace hydrant::train {
namespace {

using base::Json;

constexpr const char* kName = "base";

// Rank 0's files, for all.
TokenizerFiles Shared(parallel::Communicator& ranks, TokenizerFiles files) {
  if (ranks.size() == 1) return files;
  const auto share = [&ranks](std::string& text) {
    auto size = static_cast<int64_t>(text.size());
    ranks.Broadcast(parallel::BytesOf(std::span(&size, 1)), 0);
    text.resize(static_cast<size_t>(size));
    if (size > 0) ranks.Broadcast(parallel::BytesOf(std::span(text)), 0);
  };
  auto count = static_cast<int64_t>(files.size());
  ranks.Broadcast(parallel::BytesOf(std::span(&count, 1)), 0);
  TokenizerFiles all;
  auto next = files.begin();
  for (int64_t i = 0; i < count; ++i) {
    std::string name, content;
    if (ranks.rank() == 0) std::tie(name, content) = *next++;
    share(name);
    share(content);
    all.emplace(std::move(name), std::move(content));
  }
  return all;
}

std::string FolderOf(const std::string& file) {
  return file.empty() ? "" : std::filesystem::absolute(file).parent_path().string();
}

class Run : public Trainee {
 public:
  explicit Run(const TrainBaseOptions& options)
      : options_(WithRows(options)),
        config_(CheckedConfig(options)),
        loop_(options_, {options_.out}, {options_.tokenizer, FolderOf(options_.shape.config)}) {}

  TrainBaseReport Train() {
    parallel::TakeOwnCores(loop_.ranks(), options_.threads);
    const int threads = options_.threads > 0 ? options_.threads : base::DefaultThreads();
    pool_ = std::make_unique<base::ThreadPool>(threads, /*pin=*/true);
    loop_.TakeThreads(threads);
    MakeTokenizer();
    const model::ModelConfig sizes = SizesOf(config_, options_.shape);
    ReadData(sizes);
    const int64_t steps = data_.StepsOf(options_.recipe.epochs);
    const Precision precision = PrecisionNamed(options_.precision);
    fit_ = std::make_unique<BaseFit>(BaseFitOptions{.config = sizes,
                                                    .recipe = options_.recipe,
                                                    .seed = options_.seed,
                                                    .precision = precision,
                                                    .total_steps = steps});
    report_.num_parameters = fit_->parameters().size();
    loop_.Agree(Settings(precision));
    Describe(steps);
    if (loop_.is_first() && !options_.resume) KeepTokenizer();
    static_cast<RunReport&>(report_) = loop_.Run(*this, data_, {{kName, &fit_->trained()}}, steps);
    return report_;
  }

  std::string Step(const StepPlace& place, const Batch& share) override {
    BatchTensors batch;
    if (!share.rows.empty()) batch = TensorsOf(share);
    const double labels = CountAllLabels(loop_.ranks(), batch, 1, BaseFit::kFirstShift).front();
    if (!share.rows.empty()) fit_->AddGradient(batch, labels);
    fit_->SumOver(loop_.ranks());
    const BaseFigures figures = fit_->Step(place.step);
    CheckFinite("the model", figures.loss, figures.gradient_norm);
    report_.loss = figures.loss;
    if (!place.is_logged) return {};
    loop_.Log(place, kName,
              {{"loss", figures.loss}, {"learning_rate", figures.rate}, {"gradient_norm", figures.gradient_norm}});
    char words[64];
    std::snprintf(words, sizeof(words), "loss %.3f", figures.loss);
    return words + HeldOutWords();
  }

  void Write(int64_t) override {
    WriteBase(config_, files_, fit_->Tensors(), {.folder = options_.out, .dtype = options_.dtype});
  }

  void Evaluate(int64_t steps) override {
    const BaseFigures found =
        MeasureHeldOut(*fit_, data_, options_.rows, [this](double share) { loop_.Stage("measuring", share); });
    if (found.labels == 0) return;
    report_.held_out_loss = found.loss;
    report_.perplexity = std::exp(found.loss);
    loop_.LogMeasured(
        steps, kName,
        {{"held_out_loss", report_.held_out_loss}, {"perplexity", report_.perplexity}, {"tokens", found.labels}});
  }

 private:
  static TrainBaseOptions WithRows(TrainBaseOptions options) {
    if (options.row_tokens == 0) {
      options.row_tokens = static_cast<int32_t>(SizesOf(ConfigOf(options.shape), options.shape).max_positions);
    }
    CheckRunOptions(options);
    static_cast<void>(PrecisionNamed(options.precision));
    if (options.tokenizer.empty()) CheckNewTemplate(options.template_name);
    return options;
  }

  // Before anything is written.
  static Json CheckedConfig(const TrainBaseOptions& options) {
    Json config = ConfigOf(options.shape);
    const model::ModelConfig sizes = SizesOf(config, options.shape);
    if (options.row_tokens != 0) CheckPositions(sizes, options.row_tokens);
    CheckTrainingMemory(sizes);
    return config;
  }

  void MakeTokenizer() {
    if (loop_.is_first()) {
      if (options_.resume) {
        // A run that ended before it wrote the model has its tokenizer in the record alone.
        const bool is_kept = base::IsThere(TokenizerFolder());
        files_ = ReadTokenizerFiles(is_kept ? TokenizerFolder() : options_.out, options_.template_name);
        CheckSameTokenizer();
      } else if (!options_.tokenizer.empty()) {
        files_ = ReadTokenizerFiles(options_.tokenizer, options_.template_name);
      } else {
        loop_.Stage("making a tokenizer", 0);
        const model::ModelConfig sizes = SizesOf(config_, options_.shape);
        files_ = NewTokenizerFiles(options_.make_tokenizer(static_cast<int32_t>(sizes.vocab_size)),
                                   options_.template_name, sizes.max_positions);
      }
    }
    files_ = Shared(loop_.ranks(), std::move(files_));
    tokenizer_ = LoadTokenizerOf(files_, options_.template_name);
    FitToTokenizer(config_, options_.shape, *tokenizer_.tokenizer, options_.dtype);
  }

  std::string TokenizerFolder() const { return loop_.record() + "/tokenizer"; }

  void KeepTokenizer() const {
    MakeFolder(TokenizerFolder());
    for (const auto& [name, content] : files_) WriteText(TokenizerFolder() + "/" + name, content);
  }

  // The run has its tokenizer: another one would be ignored.
  void CheckSameTokenizer() const {
    if (!base::IsFolder(options_.tokenizer)) return;
    if (ReadTokenizerFiles(options_.tokenizer, options_.template_name) == files_) return;
    throw FileError(options_.tokenizer, "is another tokenizer than that of the run",
                    "leave out TrainBaseOptions::tokenizer, or begin anew");
  }

  void ReadData(const model::ModelConfig& sizes) {
    data_ = loop_.ReadData({.name = options_.out,
                            .tokenizer = tokenizer_.tokenizer.get(),
                            .chat = tokenizer_.chat,
                            .vocab_size = sizes.vocab_size,
                            .pool = pool_.get()});
  }

  Json Settings(Precision precision) const {
    Json settings = SettingsOf(options_, data_, precision);
    settings["config"] = config_;
    settings["config"].erase("torch_dtype");  // of the file alone
    settings["recipe"] = SettingsOf(options_.recipe);
    return settings;
  }

  void Describe(int64_t steps) const {
    int64_t tokens = 0;
    for (const Segment& segment : data_.order->segments()) tokens += segment.count;
    loop_.Note(std::to_string(report_.num_parameters) + " parameters, " + std::to_string(tokens) +
               " tokens an epoch, " + std::to_string(steps) + " steps");
  }

  BatchTensors TensorsOf(const Batch& batch) const {
    const BatchText text = TextOf(data_, batch);
    return MakeBatchTensors(text.segments, text.rows, {});
  }

  std::string HeldOutWords() const {
    if (report_.perplexity == 0) return {};
    char words[64];
    std::snprintf(words, sizeof(words), ", perplexity %.2f on held-out text", report_.perplexity);
    return words;
  }

  const TrainBaseOptions options_;
  Json config_;
  RunLoop loop_;
  std::unique_ptr<base::ThreadPool> pool_;
  TokenizerFiles files_;
  LoadedTokenizer tokenizer_;
  RunData data_;
  std::unique_ptr<BaseFit> fit_;
  TrainBaseReport report_;
};

}  // namespace

TrainBaseReport TrainBase(const TrainBaseOptions& options) { return Run(options).Train(); }

}  // namespace hydrant::train
