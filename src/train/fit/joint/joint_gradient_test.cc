// SPDX-License-Identifier: Apache-2.0
#include "train/fit/joint/joint_gradient.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <memory>
#include <string>
#include <vector>

#include "load/loaded_model.h"
#include "model/decoder.h"
#include "tests/test_data.h"
#include "train/base_states.h"
#include "train/fit/base/base_fit.h"

namespace hydrant::train::joint_gradient_test {
namespace {

constexpr double kWeight = 0.7;
constexpr int32_t kHeads = 2;

std::vector<int32_t> SomeTokens(int32_t count, int32_t seed) {
  std::vector<int32_t> tokens;
  for (int32_t i = 0; i < count; ++i) tokens.push_back((seed * 131 + i * i * 37 + 11 * i) % 509);
  return tokens;
}

// A base and Medusa heads that read its last but one hidden states, on two texts.
struct Joint {
  Joint() {
    EngineOptions options;
    options.model = test::SourceDir() + "/tests/golden/base_mha";
    options.load_tokenizer = false;
    options.threads = 1;
    loaded = load::LoadModel(options);
    const model::ModelConfig& config = loaded->weights.config;
    base = std::make_unique<BaseFit>(BaseFitOptions{.config = config});
    base->Take(loaded->weights);
    tensors = base->tensors();
    const HeadShape shape{.arch = "medusa", .num_heads = kHeads};
    draft::HeadsInfo info = DescribeHeads(shape, config);
    info.hidden_layer_offset = 1;
    heads = std::make_unique<HeadFit>(FitOptions{.info = info, .shape = shape, .recipe = {}}, config, tensors);
    at::manual_seed(3);
    heads->parameters().values().add_(at::randn({heads->parameters().size()}), 0.05);
    wanted = WantedLayers(info, config);
    wanted.push_back(model::kAfterFinalNorm);
    const std::vector<uint8_t> learned(17, 1);
    const std::vector<SegmentTokens> segments = {{texts[0], learned}, {texts[1], std::span(learned).first(9)}};
    batch = MakeBatchTensors(segments, std::vector<int32_t>{1, 1}, {});
  }

  void AddGradient(const BaseTeacher& teacher, double weight) {
    const HeadsPlace place{.counts = CountLabels(batch, kHeads)};
    const auto others = [&](const std::vector<at::Tensor>& states) {
      return AddHeadsGradient(*heads, states, batch, place, weight);
    };
    base->AddGradient(batch, CountLabels(batch, 1, BaseFit::kFirstShift).front(),
                      {.teacher = teacher, .wanted = wanted, .others = others});
  }

  double Loss() {
    std::vector<at::Tensor> states = base->States(batch, wanted);
    BatchTensors seen = batch;
    seen.hidden = {states.front()};
    return base->Evaluate(batch).loss + kWeight * heads->Evaluate(seen, states.back()).loss;
  }

  const std::vector<std::vector<int32_t>> texts = {SomeTokens(17, 1), SomeTokens(9, 2)};
  std::unique_ptr<load::LoadedModel> loaded;
  std::unique_ptr<BaseFit> base;
  BaseTensors tensors;
  std::unique_ptr<HeadFit> heads;
  std::vector<int32_t> wanted;
  BatchTensors batch;
};

// The slope of both losses together along each tensor of the base, by differences.
TEST(JointGradient, IsTheSlopeOfTheBasesLossAndTheWeightedLossOfTheHeads) {
  Joint joint;
  joint.AddGradient({}, kWeight);
  at::NoGradGuard no_grad;
  for (const ParameterRow& row : joint.base->parameters().rows()) {
    at::Tensor value = joint.base->parameters().Get(row.name).detach();
    const at::Tensor gradient = joint.base->parameters().Get(row.name).grad().clone(), kept = value.clone();
    const double norm = gradient.norm().item<double>(), step = std::min(0.02, 0.005 / norm);
    ASSERT_GT(norm, 1e-6) << row.name;
    value.add_(gradient, step / norm);
    const double above = joint.Loss();
    value.copy_(kept).sub_(gradient, step / norm);
    const double below = joint.Loss();
    value.copy_(kept);
    EXPECT_NEAR((above - below) / (2 * step) / norm, 1, 0.02) << row.name << ", norm " << norm;
  }
}

// Against what it was itself, a base has nothing to learn.
TEST(JointGradient, SelfDistillationBeginsWithoutAGradient) {
  Joint joint;
  joint.AddGradient({}, 0);
  const double of_text = GradientNorm(joint.base->parameters());
  joint.base->parameters().gradients().zero_();
  BaseStates states(*joint.loaded, {model::kAfterFinalNorm}, 64);
  std::vector<Matrix> hidden;
  states.Compute(std::vector<std::span<const int32_t>>(joint.texts.begin(), joint.texts.end()), hidden);
  const BaseTensors before = TakeBaseTensors(joint.loaded->weights);
  joint.AddGradient({.hidden = TensorOf(hidden.front()), .lm_head = before.lm_head}, 0);
  EXPECT_LT(GradientNorm(joint.base->parameters()), 1e-3 * of_text);
  joint.base->parameters().values().mul_(1.1);
  joint.AddGradient({.hidden = TensorOf(hidden.front()), .lm_head = before.lm_head}, 0);
  EXPECT_GT(GradientNorm(joint.base->parameters()), 0.01 * of_text);
}

}  // namespace
}  // namespace hydrant::train::joint_gradient_test
