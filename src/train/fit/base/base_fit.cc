// SPDX-License-Identifier: Apache-2.0
#include "train/fit/base/base_fit.h"

#include <ATen/CPUGeneratorImpl.h>
#include <torch/csrc/autograd/autograd.h>

#include <array>
#include <span>

#include "model/decoder.h"

namespace hydrant::train {

BaseFit::BaseFit(const BaseFitOptions& options)
    : options_(options),
      parameters_(LlamaModel::Rows(options.config)),
      optimizer_({.beta1 = options.recipe.beta1,
                  .beta2 = options.recipe.beta2,
                  .epsilon = options.recipe.epsilon,
                  .weight_decay = options.recipe.weight_decay},
                 parameters_.size()),
      schedule_({.peak = options.recipe.peak_rate,
                 .warmup_steps = options.recipe.warmup_steps,
                 .total_steps = options.total_steps,
                 .final_factor = options.recipe.final_factor}) {
  at::Generator random = at::detail::createCPUGenerator(options.seed);
  model_ = std::make_unique<LlamaModel>(options.config, parameters_, random);
}

at::Tensor BaseFit::States(const BatchTensors& batch) const {
  constexpr std::array<int32_t, 1> kWanted = {model::kAfterFinalNorm};
  return model_->States(batch, kWanted, options_.precision).front();
}

LossResult BaseFit::LossOf(const at::Tensor& states, const BatchTensors& batch, const LossOptions& options) const {
  return LmLoss({model_->lm_head()}, {states}, batch, {}, {}, options);
}

void BaseFit::AddGradient(const BatchTensors& batch, double labels) {
  const at::Tensor states = States(batch);
  LossResult result =
      LossOf(states, batch, {.precision = options_.precision, .counts = {labels}, .first_shift = kFirstShift});
  torch::autograd::backward({states}, result.state_gradients);
  loss_ += result.heads.front().label_loss;
  labels_ += result.heads.front().count;
}

void BaseFit::SumOver(parallel::Communicator& ranks) {
  if (ranks.size() == 1) return;
  ranks.TreeSum(std::span(parameters_.gradients().data_ptr<float>(), static_cast<size_t>(parameters_.size())));
  std::array<double, 2> figures = {loss_, labels_};
  ranks.TreeSum(std::span<double>(figures));
  loss_ = figures[0];
  labels_ = figures[1];
  // libtorch adds squares in an order that depends on the number of threads and on the CPU, so one rank's norm is
  // taken.
  norm_ = GradientNorm(parameters_);
  ranks.Broadcast(parallel::BytesOf(std::span(&*norm_, 1)), 0);
}

BaseFigures BaseFit::Step(int64_t step) {
  const BaseFigures figures{.loss = labels_ > 0 ? loss_ / labels_ : 0,
                            .labels = labels_,
                            .rate = schedule_.At(step),
                            .gradient_norm = norm_ ? *norm_ : GradientNorm(parameters_)};
  ClipGradients(parameters_, figures.gradient_norm, options_.recipe.clip);
  optimizer_.Step(parameters_, figures.rate, step + 1);
  norm_.reset();
  loss_ = labels_ = 0;
  return figures;
}

BaseFigures BaseFit::Evaluate(const BatchTensors& batch) const {
  at::NoGradGuard no_grad;
  const LossResult result = LossOf(
      States(batch), batch, {.precision = options_.precision, .with_gradient = false, .first_shift = kFirstShift});
  const HeadSums& sums = result.heads.front();
  return {.loss = sums.count > 0 ? sums.label_loss / sums.count : 0, .labels = sums.count};
}

at::Tensor BaseFit::Logits(const BatchTensors& batch) const {
  at::NoGradGuard no_grad;
  return Product(States(batch), model_->lm_head().weight, {}, options_.precision);
}

std::vector<TrainedTensor> BaseFit::Tensors() const {
  std::vector<TrainedTensor> tensors;
  const float* data = parameters_.values().data_ptr<float>();
  for (const ParameterRow& row : parameters_.rows()) {
    tensors.push_back({.name = row.name, .repeats = {}, .shape = row.shape, .data = data});
    data += row.num_elements();
  }
  return tensors;
}

}  // namespace hydrant::train
