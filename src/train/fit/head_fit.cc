// SPDX-License-Identifier: Apache-2.0
#include "train/fit/head_fit.h"

#include <ATen/CPUGeneratorImpl.h>
#include <torch/csrc/autograd/autograd.h>

#include <algorithm>
#include <utility>

#include "draft/heads/redrafter_weights.h"
#include "hydrant/error.h"
#include "train/data/random.h"

namespace hydrant::train {
namespace {

// A generator for each use: what a step draws depends on no step before it, so that a resumed run goes on with the same
// draws.
at::Generator GeneratorFor(uint64_t seed, uint64_t use) {
  return at::detail::createCPUGenerator(MixBits(seed + MixBits(use)));
}

constexpr uint64_t kForStart = ~uint64_t{0};

// Rank 0 draws what a run of one process does. Checkpoints count up to 2^40 steps.
uint64_t UseOf(int64_t step, int rank) { return static_cast<uint64_t>(step) | static_cast<uint64_t>(rank) << 40; }

void AddSums(const HeadSums& from, HeadSums& to) {
  to.count += from.count;
  to.label_loss += from.label_loss;
  to.teacher_loss += from.teacher_loss;
  for (size_t k = 0; k < kTopRanks; ++k) {
    to.in_label[k] += from.in_label[k];
    to.in_teacher[k] += from.in_teacher[k];
  }
}

}  // namespace

HeadFit::HeadFit(FitOptions options, const model::ModelConfig& config, const BaseTensors& base)
    : options_(std::move(options)),
      base_(&base),
      trained_(RowsToTrain(options_.info, config, options_.shape), options_.recipe, options_.total_steps) {
  if (options_.info.kind == &draft::kRedrafterKind && options_.recipe.reconstruction_weight != 0) {
    throw UserError(
        "Recipe::reconstruction_weight is for heads whose states are as wide as the base's, and those of "
        "redrafter are not");
  }
  at::Generator random = GeneratorFor(options_.seed, kForStart);
  network_ = MakeNetwork(options_.info, options_.shape.draft_vocab, config, base, parameters(), random);
}

int32_t HeadFit::depth() const {
  if (!GoesTokenByToken(options_.shape.arch)) return options_.info.num_heads;
  return std::max(1, options_.recipe.num_passes);
}

std::vector<LmHead> HeadFit::LmHeads() const {
  std::vector<LmHead> heads;
  for (int32_t i = 0; i < depth(); ++i) heads.push_back(network_->HeadAt(i));
  return heads;
}

LossOptions HeadFit::LossOf(const std::vector<double>& counts, bool with_gradient, bool with_agreement) const {
  const Recipe& recipe = options_.recipe;
  return {.objective = {.label_weight = recipe.label_weight,
                        .teacher_weight = recipe.teacher_weight,
                        .head_decay = recipe.head_decay},
          .precision = options_.precision,
          .counts = counts,
          .with_gradient = with_gradient,
          .with_agreement = with_agreement};
}

void HeadFit::AddGradient(const BatchTensors& batch, const at::Tensor& final_hidden, int64_t step,
                          const std::vector<double>& counts, bool with_agreement) {
  at::Generator random = GeneratorFor(options_.seed, UseOf(step, options_.rank));
  const PassOptions pass{.precision = options_.precision,
                         .dropout = options_.recipe.dropout,
                         .noise_alpha = options_.recipe.noise_alpha,
                         .text_noise = options_.recipe.text_noise,
                         .is_training = true,
                         .random = &random};
  std::vector<at::Tensor> states = network_->States(batch, pass, depth());
  LossResult result =
      LmLoss(LmHeads(), states, batch, final_hidden, base_->lm_head, LossOf(counts, true, with_agreement));
  if (options_.recipe.reconstruction_weight != 0) {
    const at::Tensor distance = Reconstruction(states, batch, final_hidden, counts);
    result.loss += distance.item<double>();
    states.push_back(distance);
    result.state_gradients.push_back(at::ones_like(distance));
  }
  torch::autograd::backward(states, result.state_gradients);
  sums_.loss += result.loss;
  sums_.heads.resize(result.heads.size());
  for (size_t i = 0; i < result.heads.size(); ++i) AddSums(result.heads[i], sums_.heads[i]);
}

// Smooth L1 (mean over the hidden size) between state i at n and the base's own state at n + i + 1, which the same
// token follows.
at::Tensor HeadFit::Reconstruction(const std::vector<at::Tensor>& states, const BatchTensors& batch,
                                   const at::Tensor& final_hidden, const std::vector<double>& counts) const {
  at::Tensor sum = at::zeros({});
  for (size_t i = 0; i < states.size(); ++i) {
    const int64_t shift = static_cast<int64_t>(i) + 2;
    const at::Tensor places = batch.learned.logical_and(batch.position.ge(shift)).nonzero().squeeze(1);
    if (places.numel() == 0) continue;
    const at::Tensor found = states[i].index_select(0, places - shift);
    const at::Tensor expected = final_hidden.index_select(0, places - 1);
    const at::Tensor distance = at::smooth_l1_loss(found, expected, at::Reduction::Mean);
    const double share = static_cast<double>(places.numel()) / counts[i];
    sum = sum + distance * (options_.recipe.reconstruction_weight * share);
  }
  return sum;
}

void HeadFit::SumOver(parallel::Communicator& ranks) {
  if (ranks.size() == 1) return;
  sums_.heads.resize(static_cast<size_t>(depth()));  // a rank without rows has none
  const auto each = [&](const auto& take) {
    take(sums_.loss);
    for (HeadSums& head : sums_.heads) {
      for (double* sum : {&head.count, &head.label_loss, &head.teacher_loss}) take(*sum);
      for (double& sum : head.in_label) take(sum);
      for (double& sum : head.in_teacher) take(sum);
    }
  };
  std::vector<double> figures;
  each([&](double sum) { figures.push_back(sum); });
  ranks.TreeSum(std::span(figures));
  size_t next = 0;
  each([&](double& sum) { sum = figures[next++]; });
  trained_.SumOver(ranks);
}

StepFigures HeadFit::Step(int64_t step, std::optional<double> rate) {
  StepFigures figures{trained_.Step(step, rate), sums_.loss, std::move(sums_.heads)};
  sums_ = {};
  return figures;
}

LossResult HeadFit::Evaluate(const BatchTensors& batch, const at::Tensor& final_hidden) const {
  at::NoGradGuard no_grad;
  const std::vector<at::Tensor> states = network_->States(batch, {.precision = options_.precision}, depth());
  LossResult result = LmLoss(LmHeads(), states, batch, final_hidden, base_->lm_head, LossOf({}, false, true));
  if (options_.recipe.reconstruction_weight != 0) {
    result.loss += Reconstruction(states, batch, final_hidden, CountLabels(batch, depth())).item<double>();
  }
  return result;
}

at::Tensor HeadFit::Logits(const BatchTensors& batch, int32_t head) const {
  at::NoGradGuard no_grad;
  const std::vector<at::Tensor> states = network_->States(batch, {.precision = options_.precision}, head + 1);
  const LmHead lm_head = network_->HeadAt(head);
  return Product(states[static_cast<size_t>(head)], lm_head.weight, lm_head.bias, options_.precision);
}

}  // namespace hydrant::train
