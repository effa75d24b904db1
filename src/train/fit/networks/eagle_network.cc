// SPDX-License-Identifier: Apache-2.0
#include "train/fit/networks/eagle_network.h"

#include <string>
#include <utility>

#include "draft/heads/eagle_weights.h"
#include "train/fit/networks/llama_layer.h"

namespace hydrant::train {
namespace {

class EagleNetwork : public Network {
 public:
  EagleNetwork(const draft::HeadsInfo& info, const std::vector<int32_t>& draft_vocab,
               const model::ModelConfig& base_config, const BaseTensors& base, Parameters& parameters,
               at::Generator& random)
      : base_(&base),
        is_third_(info.rows->Find(draft::eagle::kHiddenNorm) != nullptr),
        epsilon_(base_config.rms_norm_eps),
        layer_(*info.layer, NamesOf(info), parameters, random) {
    at::NoGradGuard no_grad;
    const auto name = [&info](std::string_view role) { return draft::NameOf(info, role, 0, 0); };
    fc_ = TakeLayer(parameters, name(draft::kEagleFc), Start::kUniform, random);
    if (!is_third_) return;
    for (const auto& [role, target] :
         {std::pair{draft::eagle::kInputNorm, &input_norm_}, std::pair{draft::eagle::kHiddenNorm, &hidden_norm_},
          std::pair{draft::eagle::kNorm, &norm_}}) {
      *target = parameters.Get(name(role) + ".weight");
      target->fill_(1);
    }
    lm_head_ = TakeLayer(parameters, name(draft::kSharedLmHead), Start::kZeros, random);
    if (draft_vocab.empty()) {
      lm_head_.weight.copy_(base.lm_head);
      return;
    }
    tokens_ = at::tensor(draft_vocab, at::kLong);
    lm_head_.weight.copy_(base.lm_head.index_select(0, tokens_));
  }

  std::vector<at::Tensor> States(const BatchTensors& batch, const PassOptions& options, int32_t depth) const override {
    std::vector<at::Tensor> states;
    LlamaLayer::Past past;
    at::Tensor x = is_third_ ? Through(fc_, WithNoise(at::cat(batch.hidden, 1), batch, options), options.precision)
                             : WithNoise(batch.hidden.front(), batch, options);
    for (int32_t i = 0; i < depth; ++i) {
      const at::Tensor embedded = base_->embedding.index_select(0, Shifted(batch.tokens, int64_t{i} + 1));
      if (is_third_) {
        const at::Tensor wide =
            at::cat({RmsNorm(embedded, input_norm_, epsilon_), RmsNorm(x, hidden_norm_, epsilon_)}, 1);
        x = layer_.Run(x, wide, batch, i, past, options.precision);
        states.push_back(RmsNorm(x, norm_, epsilon_));
      } else {
        const at::Tensor joined = Through(fc_, at::cat({embedded, x}, 1), options.precision);
        x = layer_.Run(joined, joined, batch, i, past, options.precision);
        states.push_back(x);
      }
    }
    return states;
  }

  LmHead HeadAt(int32_t /*i*/) const override {
    if (is_third_) return {.weight = lm_head_.weight, .bias = {}, .tokens = tokens_};
    return {.weight = base_->lm_head, .bias = {}};
  }

 private:
  static LayerNames NamesOf(const draft::HeadsInfo& info) {
    const auto name = [&info](std::string_view role) { return draft::NameOf(info, role, 0, 0); };
    using namespace draft::eagle;
    // EAGLE-1 has no norm before the layer; EAGLE-3's are of what the layer reads, not of the layer.
    return {.input_norm = "",
            .post_norm = name(kPostNorm),
            .q = name(kQuery),
            .k = name(kKey),
            .v = name(kValue),
            .o = name(kOutput),
            .gate = name(kGate),
            .up = name(kUp),
            .down = name(kDown)};
  }

  const BaseTensors* base_;
  bool is_third_;
  double epsilon_;
  LlamaLayer layer_;
  Layer fc_, lm_head_;
  at::Tensor input_norm_, hidden_norm_, norm_;
  at::Tensor tokens_;  // LmHead::tokens
};

}  // namespace

std::unique_ptr<Network> MakeEagleNetwork(const draft::HeadsInfo& info, const std::vector<int32_t>& draft_vocab,
                                          const model::ModelConfig& base_config, const BaseTensors& base,
                                          Parameters& parameters, at::Generator& random) {
  return std::make_unique<EagleNetwork>(info, draft_vocab, base_config, base, parameters, random);
}

}  // namespace hydrant::train
