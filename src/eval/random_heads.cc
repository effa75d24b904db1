// SPDX-License-Identifier: Apache-2.0
#include "eval/random_heads.h"

#include <array>
#include <string>
#include <utility>
#include <vector>

#include "base/check.h"
#include "draft/hydra.h"
#include "draft/medusa.h"

namespace hydrant::eval {
namespace {

constexpr std::array<std::string_view, 3> kKinds = {"medusa", "hydra", "hydra++"};
constexpr uint64_t kSeed = 2;

// What a drafter is made of, by their order in the step; and what they come to.
class HeadFiller {
 public:
  // Lm heads of the first `draft_vocab` tokens; 0: of all.
  HeadFiller(const model::ModelConfig& config, quant::WeightFormat format, int64_t draft_vocab)
      : config_(config), format_(format), random_(kSeed) {
    for (int32_t token = 0; token < std::min(draft_vocab, config.vocab_size); ++token) token_map_.push_back(token);
  }

  void Square(model::Linear& linear, bool bias) {
    random_.Add(config_.hidden_size, config_.hidden_size, format_, &linear);
    if (bias) linear.bias.assign(static_cast<size_t>(config_.hidden_size), 0.01F);
    linears_.push_back(&linear);
  }
  void LmHead(model::Linear& linear, bool bias) {
    const int64_t outputs = token_map_.empty() ? config_.vocab_size : static_cast<int64_t>(token_map_.size());
    random_.Add(outputs, config_.hidden_size, format_, &linear);
    if (bias) linear.bias.assign(static_cast<size_t>(outputs), 0.01F);
    linears_.push_back(&linear);
  }
  void Layer(const model::ModelConfig& config, model::LayerWeights& layer) {
    random_.AddLayer(config, format_, &layer);
    layers_.push_back(&layer);
  }
  // For the kernels of `queue`.
  bool Build(const kernels::Queue& queue, const FillProgress& on_progress) { return random_.Build(queue, on_progress); }
  const std::vector<int32_t>& token_map() const { return token_map_; }
  uint64_t bytes() const {
    uint64_t bytes = 0;
    for (const model::Linear* linear : linears_) bytes += linear->bytes();
    for (const model::LayerWeights* layer : layers_) bytes += static_cast<uint64_t>(BytesRead(*layer));
    return bytes;
  }

 private:
  const model::ModelConfig& config_;
  quant::WeightFormat format_;
  RandomWeights random_;
  std::vector<int32_t> token_map_;
  std::vector<model::Linear*> linears_;
  std::vector<model::LayerWeights*> layers_;
};

// Blocks 2..L of released heads are one (docs/formats.md).
void TieBlocks(draft::Head& head, int32_t count) {
  if (count > 0) head.blocks.resize(static_cast<size_t>(count), head.blocks.front());
}

using Drafters = std::vector<std::unique_ptr<draft::Drafter>>;

Drafters MakeMedusa(const draft::HeadsInfo& info, const model::ModelWeights& base, HeadFiller& filler,
                    std::span<kernels::Queue* const> queues, const FillProgress& on_progress) {
  std::vector<draft::Head> heads(static_cast<size_t>(info.num_heads));
  for (draft::Head& head : heads) {
    head.blocks.resize(static_cast<size_t>(info.num_layers));
    for (model::Linear& block : head.blocks) filler.Square(block, true);
    filler.LmHead(head.lm_head, false);
  }
  Drafters drafters;
  if (!filler.Build(*queues.front(), on_progress)) return drafters;
  for (kernels::Queue* queue : queues) {
    draft::MedusaWeights weights;
    weights.info = info;
    weights.heads = heads;
    weights.token_map = filler.token_map();
    weights.bytes = filler.bytes();
    drafters.push_back(draft::MakeIndependentHeads(std::move(weights), base, queue));
  }
  return drafters;
}

draft::PrefixWeights NewPrefix(const draft::HeadsInfo& info, const model::ModelConfig& base) {
  draft::PrefixWeights prefix;
  prefix.config = base;
  prefix.config.num_kv_heads = base.num_heads;
  prefix.config.rope = {};
  prefix.config.rope.theta = info.rope_theta;
  prefix.norm.assign(static_cast<size_t>(base.hidden_size), 1.0F);
  return prefix;
}

Drafters MakeHydraHeads(const draft::HeadsInfo& info, const model::ModelWeights& base, HeadFiller& filler,
                        std::span<kernels::Queue* const> queues, const FillProgress& on_progress) {
  const bool has_prefix = info.kind == draft::HeadKind::kHydraPrefixMlp;
  draft::PrefixWeights prefix = NewPrefix(info, base.config);
  if (has_prefix) filler.Layer(prefix.config, prefix.layer);
  std::vector<draft::HydraHead> heads(static_cast<size_t>(info.num_heads));
  for (size_t h = 0; h < heads.size(); ++h) {
    for (auto* slices : {&heads[h].linear, &heads[h].residual}) {
      slices->resize(h + 2);
      for (size_t s = 0; s < slices->size(); ++s) filler.Square((*slices)[s], s == 0);
    }
    heads[h].rest.blocks.resize(info.num_layers > 1 ? 1 : 0);
    for (model::Linear& block : heads[h].rest.blocks) filler.Square(block, true);
    filler.LmHead(heads[h].rest.lm_head, true);
  }
  Drafters drafters;
  if (!filler.Build(*queues.front(), on_progress)) return drafters;
  const uint64_t bytes = filler.bytes();
  for (draft::HydraHead& head : heads) TieBlocks(head.rest, info.num_layers - 1);
  for (kernels::Queue* queue : queues) {
    draft::HydraWeights weights;
    weights.info = info;
    weights.heads = heads;
    weights.token_map = filler.token_map();
    if (has_prefix) weights.prefix = std::make_unique<draft::PrefixWeights>(prefix);
    weights.bytes = bytes;
    drafters.push_back(draft::MakeHydra(std::move(weights), base, queue));
  }
  return drafters;
}

}  // namespace

std::span<const std::string_view> HeadKindNames() { return kKinds; }

draft::HeadsInfo HeadKindInfo(std::string_view name) {
  draft::HeadsInfo info;
  info.name = std::string(name);
  info.num_heads = 4;
  info.num_layers = 1;
  if (name == "medusa") return info;
  HYDRANT_CHECK(name == "hydra" || name == "hydra++");
  info.kind = draft::HeadKind::kHydraMlp;
  info.sequentially_dependent = true;
  info.lm_head_bias = true;
  if (name == "hydra++") {
    info.kind = draft::HeadKind::kHydraPrefixMlp;
    info.num_layers = 4;
    info.tied_blocks = true;
  }
  return info;
}

std::vector<std::unique_ptr<draft::Drafter>> MakeRandomHeads(const draft::HeadsInfo& info,
                                                             const model::ModelWeights& base,
                                                             quant::WeightFormat format, int64_t draft_vocab,
                                                             std::span<kernels::Queue* const> queues,
                                                             const FillProgress& on_progress) {
  HeadFiller filler(base.config, format, draft_vocab);
  if (info.kind == draft::HeadKind::kMedusa) return MakeMedusa(info, base, filler, queues, on_progress);
  return MakeHydraHeads(info, base, filler, queues, on_progress);
}

}  // namespace hydrant::eval
