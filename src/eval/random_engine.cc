// SPDX-License-Identifier: Apache-2.0
#include "eval/random_engine.h"

#include <algorithm>
#include <utility>

#include "base/check.h"
#include "eval/random_heads.h"
#include "load/loaded_model.h"

namespace hydrant::eval {
namespace {

quant::WeightFormat FormatOf(const std::string& name) {
  const auto format = quant::WeightFormatNamed(name);
  HYDRANT_CHECK(format.has_value());
  return *format;
}

std::unique_ptr<load::LoadedModel> NewModel(const EngineOptions& options, const model::ModelConfig& config) {
  auto loaded = std::make_unique<load::LoadedModel>();
  loaded->options = options;
  loaded->options.model = config.file;
  loaded->weights.config = config;
  load::OpenQueue(*loaded);
  return loaded;
}

bool AddHeads(load::LoadedModel& loaded, const std::string& kind, const FillProgress& on_progress) {
  const EngineOptions& options = loaded.options;
  kernels::Queue* const queues[] = {&loaded.queue};
  auto drafters = MakeRandomDrafters(
      {.name = kind, .format = FormatOf(options.head_weights), .draft_vocab = options.draft_vocab_size}, loaded.weights,
      queues, on_progress);
  if (drafters.empty()) return false;
  loaded.drafter = std::move(drafters.front());
  const int64_t all = loaded.weights.config.vocab_size, cut = options.draft_vocab_size;
  loaded.info.num_draft_vocab = static_cast<int32_t>(cut > 0 ? std::min(cut, all) : all);
  loaded.info.head_weights = options.head_weights;
  return true;
}

}  // namespace

std::vector<std::unique_ptr<Engine>> MakeRandomEngines(const RandomModel& what, const EngineOptions& options,
                                                       const FillProgress& on_progress) {
  model::ModelConfig config = ShapeConfig(what.shape);
  config.file = "random weights of shape " + what.shape;
  std::vector<std::unique_ptr<Engine>> engines;
  model::ModelWeights base;  // copies share the weights
  const size_t count = std::max<size_t>(1, what.heads.size());
  for (size_t i = 0; i < count; ++i) {
    std::unique_ptr<load::LoadedModel> loaded = NewModel(options, config);
    if (i == 0 && !MakeRandomModel(config, FormatOf(options.weights), loaded->queue, on_progress, &base)) return {};
    loaded->weights = base;
    if (!what.heads.empty() && !AddHeads(*loaded, what.heads[i], on_progress)) return {};
    load::FinishLoading(*loaded);
    engines.push_back(std::make_unique<Engine>(std::move(loaded)));
  }
  return engines;
}

}  // namespace hydrant::eval
