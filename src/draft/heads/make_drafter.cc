// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <iterator>
#include <optional>
#include <utility>
#include <vector>

#include "draft/drafter.h"
#include "draft/heads/base_copies.h"
#include "draft/heads/draft_vocab.h"
#include "draft/heads/head_kind.h"
#include "hydrant/error.h"

namespace hydrant::draft {
namespace {

// Of `wanted` (empty: of all tokens) those whose rows the file has not pruned; empty: all.
std::vector<int32_t> TokensToDraft(HeadWeights& weights, const std::vector<int32_t>& wanted) {
  if (!weights.token_map.empty()) {
    if (wanted.empty()) return {};
    throw FileError(weights.info.weights_file, "these heads have a token map of their own",
                    "leave out EngineOptions::draft_vocab");
  }
  const std::optional<std::vector<int32_t>> unpruned = UnprunedTokens(LmHeadsOf(weights));
  if (!unpruned) return wanted;
  if (unpruned->empty()) {
    throw FileError(weights.info.weights_file,
                    "the lm heads are rows of zeros with biases of -1e4, which draft nothing");
  }
  if (wanted.empty()) return *unpruned;
  std::vector<int32_t> tokens;
  std::ranges::set_intersection(wanted, *unpruned, std::back_inserter(tokens));
  if (!tokens.empty()) return tokens;
  throw FileError(weights.info.weights_file, "these heads draft no token of EngineOptions::draft_vocab",
                  "leave out EngineOptions::draft_vocab");
}

void CutVocabulary(HeadWeights& weights, const std::vector<int32_t>& tokens) {
  if (tokens.empty()) return;
  LmHeadCutter cutter(tokens);
  for (model::Linear* lm_head : LmHeadsOf(weights)) cutter.Cut(*lm_head);
  weights.token_map = tokens;
  // Heads that use the base's lm head get a smaller one of their own. `bytes` never counted the base's, so that only
  // bytes_after is added for them.
  if (weights.info.own_lm_heads || weights.info.shared_lm_head) weights.bytes -= cutter.bytes_before();
  weights.bytes += cutter.bytes_after();
}

void Pack(HeadWeights& weights, HeadPacking& packing) {
  CutVocabulary(weights, TokensToDraft(weights, packing.draft_vocab));
  const std::vector<model::Linear*> linears = LinearsOf(weights), lm_heads = LmHeadsOf(weights);
  for (model::Linear* linear : linears) packing.packer->Add(*linear, packing.choice);
  packing.report = packing.packer->Run();
  for (model::Linear* linear : linears) packing.arranger->Arrange(*linear);
  for (model::Linear* lm_head : lm_heads) packing.arranger->Arrange(*lm_head);  // the base's too, if in use
  packing.format = (linears.empty() ? lm_heads : linears).front()->format();
  packing.num_tokens = static_cast<int64_t>(weights.token_map.size());
  weights.bytes += packing.report.bytes_after - packing.report.bytes_freed;
}

}  // namespace

std::unique_ptr<Drafter> MakeDrafter(const std::string& folder, const model::ModelWeights& base, kernels::Queue* queue,
                                     HeadPacking& packing, std::vector<std::string>* warnings) {
  HeadsFile file = OpenHeads(folder);
  CheckBaseOf(file, base);
  warnings->insert(warnings->end(), file.info.warnings.begin(), file.info.warnings.end());
  if (file.info.hidden_layer_offset > base.config.num_layers) {
    throw FileError(file.info.config_file, "'hidden_state_offset' is " + std::to_string(file.info.hidden_layer_offset) +
                                               ", but the base (" + base.config.file + ") has " +
                                               std::to_string(base.config.num_layers) + " layers");
  }
  const std::unique_ptr<HeadWeights> weights = LoadHeads(std::move(file), base);
  Pack(*weights, packing);
  return weights->IntoDrafter(base, queue);
}

}  // namespace hydrant::draft
