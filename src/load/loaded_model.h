// SPDX-License-Identifier: Apache-2.0
// Everything that an engine loads: weights, drafter, tree, tokenizer, and the queue they run on.
#pragma once

#include <memory>
#include <span>
#include <string>
#include <vector>

#include "base/thread_pool.h"
#include "draft/drafter.h"
#include "draft/first_of.h"
#include "draft/lookup_drafter.h"
#include "hydrant/engine.h"
#include "hydrant/error.h"
#include "kernels/kernels.h"
#include "kv/kv_cache.h"
#include "model/decoder.h"
#include "model/model_config.h"
#include "model/weights.h"
#include "tokenizer/tokenizer.h"

namespace hydrant::load {

// Rows of one forward at most: bounds activations and logits (65 MB at V = 32,000), and the size of a tree.
inline constexpr int32_t kMaxRows = 512;

struct LoadedModel {
  EngineOptions options;
  std::unique_ptr<base::ThreadPool> pool;
  kernels::Queue queue;
  model::ModelWeights weights;
  std::unique_ptr<draft::Drafter> drafter;  // null: none
  draft::LookupDrafter lookup;
  std::unique_ptr<draft::FirstOf> lookup_or_drafter;  // null: no drafter
  std::unique_ptr<model::Decoder> decoder;
  std::unique_ptr<tokenizer::Tokenizer> tokenizer;  // null: none
  kv::KvShape kv_shape;                             // the base's layers, then those of proposer()
  EngineInfo info;

  // What sequences draft with: lookups in their text, then the drafter.
  draft::Drafter& proposer() { return lookup_or_drafter ? static_cast<draft::Drafter&>(*lookup_or_drafter) : lookup; }
  kv::LayerRange base_layers() const { return {.first = 0, .count = weights.config.num_layers}; }
  // The keys and values of the loaded drafter alone, without lookups: what evaluation asks.
  draft::DraftKv DraftKvIn(kv::BlockTable& table) const {
    return {.table = &table, .first_layer = base_layers().count};
  }
};

// Throws UserError for anything wrong with files or options.
std::unique_ptr<LoadedModel> LoadModel(const EngineOptions& options);

// The two ends of LoadModel, for weights that come from elsewhere. OpenQueue: threads and kernels for the config in
// `weights` and for `options`. FinishLoading, with weights and drafter in place: the rest.
void OpenQueue(LoadedModel& loaded);
void FinishLoading(LoadedModel& loaded);

// EngineOptions::threads of 0, where a process may use `allowed`: fewer for models whose layers are so small that their
// threads would meet more than they multiply. 1 .. allowed.
int ThreadsFor(const model::ModelConfig& config, int allowed);

// EngineOptions::kv_type. "auto": bf16 beside packed weights, whose products are rounded more than that, else f32.
// Throws UserError for an unknown name.
DType KvTypeNamed(const std::string& name, const model::ModelWeights& weights);

// EngineOptions::prefill_chunk of 0.
int32_t BestPrefillChunk(const kernels::KernelTable& table, const model::ModelWeights& weights);

// For a model whose logits are NaN or infinite: text would go on with whatever token comes first.
FileError NoFiniteLogits(const std::string& model);

// Keys and values that f16 cannot hold become infinite: scores NaN, or positions that are passed over in silence.
// Throws FileError where that has happened to `layers` in one of the slots `first` .. first + count - 1.
void CheckKvRange(const kv::BlockTable& table, int32_t first, int32_t count, kv::LayerRange layers,
                  const std::string& model);

// For a request or an engine that names a tree where nothing fills one.
UserError NeedsHeads(const std::string& option);

// Throws UserError when the prompt is empty, has ids outside the vocabulary, or is longer than the context.
void CheckPrompt(const LoadedModel& loaded, const std::vector<int32_t>& prompt_ids);
// Throws UserError for one outside the vocabulary; `name` says whose they are.
void CheckIds(const LoadedModel& loaded, std::span<const int32_t> ids, const std::string& name);

}  // namespace hydrant::load
