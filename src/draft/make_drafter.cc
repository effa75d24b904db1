// SPDX-License-Identifier: Apache-2.0
#include <utility>

#include "draft/base_copies.h"
#include "draft/draft_vocab.h"
#include "draft/drafter.h"
#include "draft/head_tensors.h"
#include "draft/hydra.h"
#include "draft/medusa.h"
#include "hydrant/error.h"

namespace hydrant::draft {
namespace {

const model::Linear& FirstBlock(const HydraWeights& weights) { return weights.heads.front().linear.front(); }

const model::Linear& FirstBlock(const MedusaWeights& weights) {
  const Head& head = weights.heads.front();
  return head.blocks.empty() ? head.lm_head : head.blocks.front();
}

Head& HeadOf(HydraHead& head) { return head.rest; }
Head& HeadOf(Head& head) { return head; }

template <typename Weights>
void CutVocabulary(Weights& weights, const std::vector<int32_t>& tokens) {
  if (tokens.empty()) return;
  if (!weights.token_map.empty()) {
    throw FileError(weights.info.weights_file, "these heads have a token map of their own", "leave out --draft-vocab");
  }
  LmHeadCutter cutter(tokens);
  for (auto& head : weights.heads) cutter.Cut(HeadOf(head).lm_head);
  weights.token_map = tokens;
  // A head that uses the base's lm head gets a smaller one of its own, in place of none.
  if (weights.info.own_lm_heads || weights.info.shared_lm_head) weights.bytes -= cutter.bytes_before();
  weights.bytes += cutter.bytes_after();
}

template <typename Weights>
Weights Packed(Weights weights, HeadPacking& packing) {
  CutVocabulary(weights, packing.draft_vocab);
  for (model::Linear* linear : LinearsOf(weights)) packing.packer->Add(*linear, packing.choice);
  packing.report = packing.packer->Run();
  for (model::Linear* linear : LinearsOf(weights)) packing.arranger->Arrange(*linear);
  for (auto& head : weights.heads) packing.arranger->Arrange(HeadOf(head).lm_head);  // also where it is the base's
  packing.format = FirstBlock(weights).format();
  packing.num_tokens = static_cast<int64_t>(weights.token_map.size());
  weights.bytes += packing.report.bytes_after - packing.report.bytes_freed;
  return weights;
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
  // A new kind of head is one line here, one pair of files, and its rows in head_tensors.
  if (file.info.sequentially_dependent) {
    return MakeHydra(Packed(LoadHydra(std::move(file), base), packing), base, queue);
  }
  return MakeIndependentHeads(Packed(LoadMedusa(std::move(file), base), packing), base, queue);
}

}  // namespace hydrant::draft
