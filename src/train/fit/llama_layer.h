// SPDX-License-Identifier: Apache-2.0
// One decoder layer of the Llama architecture with its gradient: Hydra++'s prefix layer, EAGLE's layer.
#pragma once

#include <ATen/ATen.h>

#include <string>

#include "model/model_config.h"
#include "train/fit/network.h"

namespace hydrant::train {

class LlamaLayer {
 public:
  // `prefix`: what its tensors' names begin with. `parameters` must outlive it. Matrices start as normal draws of the
  // standard deviation 0.02 (Hugging Face's initializer_range), norms as ones.
  LlamaLayer(const model::ModelConfig& config, const std::string& prefix, Parameters& parameters,
             at::Generator& random);

  // x [N, D] by positions, to the layer's output [N, D].
  at::Tensor Run(const at::Tensor& x, const BatchTensors& batch, Precision precision) const;

 private:
  at::Tensor Attend(const at::Tensor& x, const BatchTensors& batch, Precision precision) const;

  model::ModelConfig config_;
  at::Tensor input_norm_, post_norm_, q_, k_, v_, o_, gate_, up_, down_;
  at::Tensor inv_freq_;  // [Dh / 2]
};

}  // namespace hydrant::train
