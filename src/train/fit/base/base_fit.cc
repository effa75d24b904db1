// SPDX-License-Identifier: Apache-2.0
#include "train/fit/base/base_fit.h"

#include <ATen/CPUGeneratorImpl.h>
#include <torch/csrc/autograd/autograd.h>

#include <array>
#include <span>

#include "model/decoder.h"

namespace hydrant::train {
namespace {

constexpr std::array<int32_t, 1> kFinalState = {model::kAfterFinalNorm};

}  // namespace

BaseFit::BaseFit(const BaseFitOptions& options)
    : options_(options), trained_(LlamaModel::Rows(options.config), options.recipe, options.total_steps) {
  at::Generator random = at::detail::createCPUGenerator(options.seed);
  model_ = std::make_unique<LlamaModel>(options.config, parameters(), random);
}

void BaseFit::Take(const model::ModelWeights& weights) {
  at::NoGradGuard no_grad;
  model_->Take(weights);
}

BaseTensors BaseFit::tensors() const {
  const BaseTensors leaves = model_->tensors();
  return {.embedding = leaves.embedding.detach(), .lm_head = leaves.lm_head.detach()};
}

at::Tensor BaseFit::FinalState(const BatchTensors& batch) const {
  return model_->States(batch, kFinalState, options_.precision).front();
}

std::vector<at::Tensor> BaseFit::States(const BatchTensors& batch, std::span<const int32_t> wanted) const {
  at::NoGradGuard no_grad;
  return model_->States(batch, wanted, options_.precision);
}

void BaseFit::AddGradient(const BatchTensors& batch, double labels, const BaseExtras& extras) {
  const std::span<const int32_t> wanted = extras.wanted.empty() ? std::span(kFinalState) : std::span(extras.wanted);
  const std::vector<at::Tensor> states = model_->States(batch, wanted, options_.precision);
  std::vector<at::Tensor> gradients;
  if (extras.others) gradients = extras.others(states);
  const bool has_teacher = extras.teacher.hidden.defined();
  LossResult result =
      LmLoss({model_->lm_head()}, {states.back()}, batch, extras.teacher.hidden, extras.teacher.lm_head,
             {.objective = {.label_weight = has_teacher ? 0.0 : 1, .teacher_weight = has_teacher ? 1.0 : 0},
              .precision = options_.precision,
              .counts = {labels},
              .first_shift = kFirstShift});
  gradients.push_back(std::move(result.state_gradients.front()));
  torch::autograd::backward(states, gradients);
  const HeadSums& sums = result.heads.front();
  loss_ += has_teacher ? sums.teacher_loss : sums.label_loss;
  labels_ += sums.count;
}

void BaseFit::SumOver(parallel::Communicator& ranks) {
  if (ranks.size() == 1) return;
  std::array<double, 2> figures = {loss_, labels_};
  ranks.TreeSum(std::span<double>(figures));
  loss_ = figures[0];
  labels_ = figures[1];
  trained_.SumOver(ranks);
}

BaseFigures BaseFit::Step(int64_t step) {
  const BaseFigures figures{trained_.Step(step), labels_ > 0 ? loss_ / labels_ : 0, labels_};
  loss_ = labels_ = 0;
  return figures;
}

BaseFigures BaseFit::Evaluate(const BatchTensors& batch) const {
  at::NoGradGuard no_grad;
  const LossResult result =
      LmLoss({model_->lm_head()}, {FinalState(batch)}, batch, {}, {},
             {.precision = options_.precision, .with_gradient = false, .first_shift = kFirstShift});
  const HeadSums& sums = result.heads.front();
  return {{}, sums.count > 0 ? sums.label_loss / sums.count : 0, sums.count};
}

at::Tensor BaseFit::Logits(const BatchTensors& batch) const {
  at::NoGradGuard no_grad;
  return Product(FinalState(batch), model_->lm_head().weight, {}, options_.precision);
}

}  // namespace hydrant::train
