// SPDX-License-Identifier: Apache-2.0
#include "train/fit/networks/residual_heads.h"

#include <string>
#include <utility>
#include <vector>

#include "draft/heads/hydra_weights.h"
#include "train/fit/networks/llama_layer.h"

namespace hydrant::train {
namespace {

struct Head {
  Layer first_linear, first_residual;  // undefined: the first block is like the others
  std::vector<Layer> blocks;
  Layer lm_head;
};

class ResidualHeads : public Network {
 public:
  ResidualHeads(const draft::HeadsInfo& info, const std::vector<int32_t>& draft_vocab,
                const model::ModelConfig& base_config, const BaseTensors& base, Parameters& parameters,
                at::Generator& random)
      : embedding_(base.embedding), epsilon_(base_config.rms_norm_eps) {
    at::NoGradGuard no_grad;
    at::Tensor start = base.lm_head;
    if (!draft_vocab.empty()) {
      tokens_ = at::tensor(draft_vocab, at::kLong);
      start = base.lm_head.index_select(0, tokens_);
    }
    for (int32_t h = 0; h < info.num_heads; ++h) heads_.push_back(TakeHead(info, h, start, parameters, random));
    if (info.rows->Find(draft::kPrefixLayer) == nullptr) return;
    prefix_norm_ = parameters.Get(draft::NameOf(info, draft::kPrefixNorm, 0, 0) + ".weight");
    prefix_norm_.fill_(1);
    prefix_ = std::make_unique<LlamaLayer>(PrefixConfig(info, base_config),
                                           UsualLayerNames(draft::NameOf(info, draft::kPrefixLayer, 0, 0)), parameters,
                                           random);
  }

  std::vector<at::Tensor> States(const BatchTensors& batch, const PassOptions& options, int32_t depth) const override {
    at::Tensor seen = WithNoise(batch.hidden.front(), batch, options);
    if (prefix_) seen = RmsNorm(prefix_->Run(seen, batch, options.precision), prefix_norm_, epsilon_);
    std::vector<at::Tensor> states, inputs{seen};
    at::Tensor embedded;
    for (size_t h = 0; h < static_cast<size_t>(depth); ++h) {
      const Head& head = heads_[h];
      at::Tensor x = seen;
      if (head.first_linear.weight.defined()) {
        if (h == 0) embedded = embedding_.index_select(0, batch.tokens);
        inputs.push_back(Shifted(embedded, static_cast<int64_t>(h) + 1));
        const at::Tensor joined = Dropped(at::cat(inputs, 1), options);
        x = Through(head.first_residual, joined, options.precision) +
            at::silu(Through(head.first_linear, joined, options.precision));
      }
      for (const Layer& block : head.blocks) {
        x = Dropped(x, options);
        x = x + at::silu(Through(block, x, options.precision));
      }
      states.push_back(Dropped(x, options));
    }
    return states;
  }

  LmHead HeadAt(int32_t i) const override {
    const Layer& layer = heads_[static_cast<size_t>(i)].lm_head;
    return {.weight = layer.weight, .bias = layer.bias, .tokens = tokens_};
  }

 private:
  static Head TakeHead(const draft::HeadsInfo& info, int32_t number, const at::Tensor& lm_head, Parameters& parameters,
                       at::Generator& random) {
    const auto take = [&](std::string_view role, int32_t layer, Start start) {
      return TakeLayer(parameters, draft::NameOf(info, role, number, layer), start, random);
    };
    Head head;
    int32_t first = 0;
    if (info.rows->Find(draft::kFirstLinear) != nullptr) {
      head.first_linear = take(draft::kFirstLinear, 0, Start::kZeros);
      head.first_residual = take(draft::kFirstResidual, 0, Start::kUniform);
      first = 1;
    }
    for (int32_t layer = first; layer < info.num_layers; ++layer) {
      head.blocks.push_back(take(draft::kBlock, layer, Start::kZeros));
    }
    const std::string_view role = info.shared_lm_head ? draft::kSharedLmHead : draft::kLmHead;
    head.lm_head = take(role, info.num_layers, Start::kZeros);
    head.lm_head.weight.copy_(lm_head);
    return head;
  }

  // As the loader reads the layer back: hydra_weights.cc has its rules.
  static model::ModelConfig PrefixConfig(const draft::HeadsInfo& info, const model::ModelConfig& base_config) {
    draft::HeadsFile file;
    file.info = info;
    const std::unique_ptr<draft::HeadWeights> weights = info.kind->make(file, base_config);
    return static_cast<const draft::HydraWeights&>(*weights).prefix->config;
  }

  at::Tensor embedding_, prefix_norm_;
  double epsilon_;
  at::Tensor tokens_;  // LmHead::tokens
  std::vector<Head> heads_;
  std::unique_ptr<LlamaLayer> prefix_;
};

}  // namespace

std::unique_ptr<Network> MakeResidualHeads(const draft::HeadsInfo& info, const std::vector<int32_t>& draft_vocab,
                                           const model::ModelConfig& base_config, const BaseTensors& base,
                                           Parameters& parameters, at::Generator& random) {
  return std::make_unique<ResidualHeads>(info, draft_vocab, base_config, base, parameters, random);
}

}  // namespace hydrant::train
