// SPDX-License-Identifier: Apache-2.0
#include "train/fit/joint/train_medusa2.h"

#include <cmath>
#include <cstdio>
#include <memory>
#include <optional>
#include <span>
#include <utility>
#include <vector>

#include "base/json.h"
#include "base/mapped_file.h"
#include "base/paths.h"
#include "checkpoint/content_hash.h"
#include "checkpoint/tensor_source.h"
#include "hydrant/error.h"
#include "load/loaded_model.h"
#include "model/decoder.h"
#include "parallel/cores.h"
#include "train/base_states.h"
#include "train/base_tokenizer.h"
#include "train/evaluation.h"
#include "train/fit/base/held_out.h"
#include "train/fit/batch_text.h"
#include "train/fit/head_fit.h"
#include "train/fit/joint/joint_gradient.h"
#include "train/fit/metrics.h"
#include "train/fit/ranks.h"
#include "train/fit/run_loop.h"
#include "train/fit/run_settings.h"
#include "train/write_base.h"

namespace hydrant::train {
namespace {

using base::Json;

constexpr const char *kBase = "base", *kConfig = "/config.json", *kGeneration = "/generation_config.json";

std::string BaseFolder(const TrainMedusa2Options& options) { return options.out + "/" + kBase; }
std::string HeadsFolder(const TrainMedusa2Options& options) {
  return options.out + "/" + FolderNameOf(options.shape.arch);
}

class Run : public Trainee {
 public:
  explicit Run(const TrainMedusa2Options& options)
      : options_(options),
        loop_(options, {BaseFolder(options), HeadsFolder(options)}, {options.engine.model}),
        precision_(PrecisionNamed(options.precision)) {
    report_.base_folder = BaseFolder(options);
    report_.heads_folder = HeadsFolder(options);
  }

  TrainMedusa2Report Train() {
    LoadBase();
    run_ = loop_.ReadData(*loaded_);
    MakeFits();
    if (options_.eval_every > 0 && loop_.is_first()) report_.perplexity_before = Perplexity();
    static_cast<RunReport&>(report_) =
        loop_.Run(*this, run_, {{kBase, &base_->trained()}, {options_.shape.arch, &heads_->trained()}}, all_steps_);
    return report_;
  }

  std::string Step(const StepPlace& place, const Batch& share) override {
    const bool is_joint = place.step >= head_steps_, has_rows = !share.rows.empty();
    BatchTensors batch;
    if (has_rows) {
      text_ = TextOf(run_, share);
      batch = MakeBatchTensors(text_.segments, text_.rows, {});
    }
    const std::vector<double> counts = CountAllLabels(loop_.ranks(), batch, heads_->depth());
    const double labels = CountAllLabels(loop_.ranks(), batch, 1, BaseFit::kFirstShift).front();
    const HeadsPlace heads_place{.step = place.step, .counts = counts, .with_agreement = place.is_logged};
    const auto add_heads = [&](const std::vector<at::Tensor>& states) {
      return AddHeadsGradient(*heads_, states, batch, heads_place, options_.HeadsWeight());
    };
    if (has_rows && is_joint) {
      base_->AddGradient(batch, labels, {.teacher = Teacher(), .wanted = wanted_, .others = add_heads});
    } else if (has_rows) {
      add_heads(base_->States(batch, wanted_));
    }
    return is_joint ? StepBoth(place) : StepHeads(place, std::nullopt);
  }

  void Write(int64_t /*steps*/) override {
    WriteBase(config_, files_, base_->Tensors(),
              {.folder = report_.base_folder, .dtype = options_.dtype, .generation_config = generation_});
    WriteHeads(heads_->options().info, loaded_->weights.config, heads_->Tensors(),
               {.folder = report_.heads_folder, .file = options_.file, .dtype = options_.dtype, .base = kBase});
  }

  void Evaluate(int64_t steps) override {
    report_.perplexity = Perplexity();
    loop_.Stage("loading what is trained", 0);
    EngineOptions engine = options_.engine;
    engine.model = report_.base_folder;
    const std::unique_ptr<load::LoadedModel> trained = load::LoadModel(engine);
    const Evaluation evaluation(*trained, PromptsOf(run_.data, run_.held_out), options_.eval_tokens,
                                [this](double share) { loop_.Stage("decoding held-out replies", share); });
    const EvaluationFigures found = evaluation.Run(report_.heads_folder);
    report_.tokens_per_step = found.tokens_per_step;
    report_.standard_error = found.standard_error;
    Json line = JsonOf(found);
    line["perplexity"] = report_.perplexity;
    line["perplexity_before"] = report_.perplexity_before;
    loop_.LogMeasured(steps, options_.shape.arch, line);
  }

 private:
  void LoadBase() {
    loop_.Stage("loading", 0);
    parallel::TakeOwnCores(loop_.ranks(), options_.engine.threads);
    loaded_ = load::LoadModel(options_.engine);
    loop_.TakeThreads(loaded_->pool->num_threads());
    const model::ModelConfig& config = loaded_->weights.config;
    CheckPositions(config, options_.row_tokens);
    LlamaModel::CheckRows(config, options_.row_tokens);
    CheckTrainingMemory(config);
    const std::string& folder = options_.engine.model;
    files_ = ReadTokenizerFiles(folder, {});
    if (base::IsThere(folder + kGeneration)) generation_ = base::ReadTextFile(folder + kGeneration);
    config_ = base::ParseJson(base::ReadTextFile(folder + kConfig), folder + kConfig);
    config_.erase("dtype");  // as newer versions of transformers name it
    config_["torch_dtype"] = TorchTypeName(options_.dtype);
    config_["tie_word_embeddings"] = config.tied_embeddings;
  }

  void MakeFits() {
    const model::ModelConfig& config = loaded_->weights.config;
    head_steps_ = run_.StepsOf(options_.heads.epochs);
    all_steps_ = run_.StepsOf(options_.heads.epochs + options_.joint.epochs);
    const draft::HeadsInfo info = DescribeHeads(options_.shape, config);
    loop_.Agree(Settings(info));
    base_ = std::make_unique<BaseFit>(BaseFitOptions{.config = config,
                                                     .recipe = options_.joint,
                                                     .seed = options_.seed,
                                                     .precision = precision_,
                                                     .total_steps = all_steps_ - head_steps_});
    base_->Take(loaded_->weights);
    tensors_ = base_->tensors();
    heads_ = std::make_unique<HeadFit>(FitOptions{.info = info,
                                                  .shape = options_.shape,
                                                  .recipe = options_.heads,
                                                  .seed = options_.seed,
                                                  .precision = precision_,
                                                  .total_steps = head_steps_,
                                                  .rank = loop_.ranks().rank()},
                                       config, tensors_);
    wanted_ = WantedLayers(info, config);
    wanted_.push_back(model::kAfterFinalNorm);
    if (!options_.self_distillation) return;
    teacher_ = TakeBaseTensors(loaded_->weights);
    const std::vector<int32_t> states = {model::kAfterFinalNorm};
    teacher_states_ = std::make_unique<BaseStates>(*loaded_, states, options_.row_tokens);
  }

  Json Settings(const draft::HeadsInfo& info) const {
    Json settings = SettingsOf(options_, run_, precision_);
    settings["base"] = checkpoint::HashOfFiles(checkpoint::OpenModelFolder(options_.engine.model)->files());
    settings["shape"] = SettingsOf(options_.shape, info);
    settings["heads"] = SettingsOf(options_.heads);
    settings["joint"] = SettingsOf(options_.joint);
    settings["heads_rate_factor"] = options_.heads_rate_factor;
    settings["heads_weight"] = options_.HeadsWeight();
    settings["self_distillation"] = options_.self_distillation;
    return settings;
  }

  // The base as it was before, at the batch's positions.
  BaseTeacher Teacher() {
    if (!teacher_states_) return {};
    std::vector<Matrix> states;
    teacher_states_->Compute(text_.texts, states);
    return {.hidden = TensorOf(states.front()), .lm_head = teacher_.lm_head};
  }

  std::string StepHeads(const StepPlace& place, std::optional<double> rate) {
    heads_->SumOver(loop_.ranks());
    const StepFigures figures = heads_->Step(place.step, rate);
    CheckFinite(options_.shape.arch, figures.loss, figures.gradient_norm);
    report_.heads_loss = figures.loss;
    if (!place.is_logged) return {};
    loop_.Log(place, options_.shape.arch, MetricsOf(figures));
    return WordsOf(figures);
  }

  std::string StepBoth(const StepPlace& place) {
    base_->SumOver(loop_.ranks());
    const BaseFigures figures = base_->Step(place.step - head_steps_);
    CheckFinite("the base", figures.loss, figures.gradient_norm);
    report_.base_loss = figures.loss;
    const std::string words = StepHeads(place, figures.rate * options_.heads_rate_factor);
    if (!place.is_logged) return {};
    loop_.Log(place, kBase,
              {{"loss", figures.loss}, {"learning_rate", figures.rate}, {"gradient_norm", figures.gradient_norm}});
    char base[48];
    std::snprintf(base, sizeof(base), "base %.3f, heads ", figures.loss);
    return base + words;
  }

  double Perplexity() {
    const auto progress = [this](double share) { loop_.Stage("measuring the base", share); };
    return std::exp(MeasureHeldOut(*base_, run_, options_.rows, progress).loss);
  }

  const TrainMedusa2Options& options_;
  RunLoop loop_;
  Precision precision_;
  std::unique_ptr<load::LoadedModel> loaded_;
  Json config_;
  std::string generation_;  // generation_config.json's text
  TokenizerFiles files_;
  RunData run_;
  std::unique_ptr<BaseFit> base_;
  BaseTensors tensors_;
  std::unique_ptr<HeadFit> heads_;
  std::vector<int32_t> wanted_;
  BaseTensors teacher_;
  std::unique_ptr<BaseStates> teacher_states_;
  BatchText text_;
  int64_t head_steps_ = 0, all_steps_ = 0;
  TrainMedusa2Report report_;
};

void CheckOptions(const TrainMedusa2Options& options) {
  CheckRunOptions(options);
  CheckRange("TrainMedusa2Options::eval_tokens", options.eval_tokens, 2, 1 << 16);
  if (!GoesTokenByToken(options.shape.arch)) return;
  throw UserError("HeadShape::arch is '" + options.shape.arch +
                  "', and only medusa, hydra and hydra++ are trained together with their base");
}

}  // namespace

TrainMedusa2Report TrainMedusa2(const TrainMedusa2Options& options) {
  CheckOptions(options);
  return Run(options).Train();
}

}  // namespace hydrant::train
