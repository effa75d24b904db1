// SPDX-License-Identifier: Apache-2.0
#include "load/draft_model_loading.h"

#include <algorithm>
#include <numeric>
#include <utility>

#include "draft/draft_model.h"
#include "draft/heads/draft_vocab.h"
#include "load/same_tokens.h"

namespace hydrant::load {
namespace {

// The tokens that the lm head keeps: those that the user names, and none that the base does not have. Empty: all.
std::vector<int32_t> KeptTokens(const std::vector<int32_t>& named, int64_t own_vocab, int64_t base_vocab) {
  std::vector<int32_t> tokens = named;
  std::erase_if(tokens, [&](int32_t token) { return token >= own_vocab; });
  if (!named.empty() || own_vocab == base_vocab) return tokens;
  tokens.resize(static_cast<size_t>(std::min(own_vocab, base_vocab)));
  std::iota(tokens.begin(), tokens.end(), 0);
  return tokens;
}

void Pack(model::ModelWeights& weights, draft::HeadPacking& packing) {
  packing.packer->Keep(weights.embedding);
  for (model::LayerWeights& layer : weights.layers) {
    for (model::Linear* linear : model::LinearsOf(layer)) packing.packer->Add(*linear, packing.choice);
  }
  model::FormatChoice lm_head = packing.choice;
  if (lm_head.format) lm_head.format = model::LmHeadFormat(*lm_head.format);
  packing.packer->Add(weights.lm_head, lm_head);
  packing.report = packing.packer->Run();
  packing.arranger->Arrange(weights);
  packing.format = weights.layers.front().q.format();
  weights.bytes += packing.report.bytes_after - packing.report.bytes_freed;
}

}  // namespace

std::unique_ptr<draft::Drafter> LoadDraftModel(const std::string& folder, const model::ModelWeights& base,
                                               const std::string& base_folder, kernels::Queue* queue,
                                               draft::HeadPacking& packing, std::vector<std::string>* warnings) {
  model::ModelWeights weights = model::LoadModelWeights(folder);
  const model::ModelConfig& config = weights.config;
  CheckSameTokens(folder, config.vocab_size, base_folder, base.config.vocab_size);
  warnings->insert(warnings->end(), weights.warnings.begin(), weights.warnings.end());
  if (config.max_positions < base.config.max_positions) {
    warnings->push_back(config.file + ": the draft model was made for " + std::to_string(config.max_positions) +
                        " positions, the base for " + std::to_string(base.config.max_positions) +
                        ": behind those, few of its drafts may be accepted");
  }
  std::vector<int32_t> tokens = KeptTokens(packing.draft_vocab, config.vocab_size, base.config.vocab_size);
  if (!tokens.empty()) draft::LmHeadCutter(tokens).Cut(weights.lm_head);
  Pack(weights, packing);
  packing.num_tokens = static_cast<int64_t>(tokens.size());
  return draft::MakeDraftModel(std::move(weights), std::move(tokens), base.config.vocab_size, queue);
}

}  // namespace hydrant::load
