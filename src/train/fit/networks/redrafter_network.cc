// SPDX-License-Identifier: Apache-2.0
#include "train/fit/networks/redrafter_network.h"

#include <string>

#include "draft/heads/redrafter_weights.h"

namespace hydrant::train {
namespace {

class RedrafterNetwork : public Network {
 public:
  RedrafterNetwork(const draft::HeadsInfo& info, const BaseTensors& base, Parameters& parameters, at::Generator& random)
      : embedding_(base.embedding) {
    at::NoGradGuard no_grad;
    const auto take = [&](std::string_view role, int32_t layer, Start start) {
      return TakeLayer(parameters, draft::NameOf(info, role, 0, layer), start, random);
    };
    token_ = take(draft::redrafter::kToken, 0, Start::kUniform);
    state_ = take(draft::redrafter::kState, 0, Start::kUniform);
    for (int32_t layer = 0; layer < info.num_layers; ++layer) {
      blocks_.push_back(take(draft::kBlock, layer, Start::kZeros));
    }
    lm_head_ = take(draft::kLmHead, info.num_layers, Start::kZeros);
    lm_head_.weight.zero_().narrow(1, 0, base.lm_head.size(1)).copy_(base.lm_head);
  }

  std::vector<at::Tensor> States(const BatchTensors& batch, const PassOptions& options, int32_t depth) const override {
    const at::Tensor hidden = WithNoise(batch.hidden.front(), batch, options);
    const at::Tensor embedded = Through(token_, embedding_.index_select(0, batch.tokens), options.precision);
    std::vector<at::Tensor> states;
    at::Tensor state;
    for (int32_t i = 0; i < depth; ++i) {
      const at::Tensor token = Shifted(embedded, int64_t{i} + 1);
      // The first state is made from zeros, of which the bias is left.
      state = at::silu(token + (i == 0 ? state_.bias : Through(state_, state, options.precision)));
      at::Tensor x = Dropped(at::cat({hidden, state}, 1), options);
      for (const Layer& block : blocks_) x = x + at::silu(Through(block, x, options.precision));
      states.push_back(x);
    }
    return states;
  }

  LmHead HeadAt(int32_t /*i*/) const override { return {.weight = lm_head_.weight, .bias = {}}; }

 private:
  at::Tensor embedding_;
  Layer token_, state_, lm_head_;
  std::vector<Layer> blocks_;
};

}  // namespace

std::unique_ptr<Network> MakeRedrafterNetwork(const draft::HeadsInfo& info, const BaseTensors& base,
                                              Parameters& parameters, at::Generator& random) {
  return std::make_unique<RedrafterNetwork>(info, base, parameters, random);
}

}  // namespace hydrant::train
