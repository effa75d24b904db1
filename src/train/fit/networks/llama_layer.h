// SPDX-License-Identifier: Apache-2.0
// One decoder layer of the Llama architecture with its gradient: Hydra++'s prefix layer, EAGLE's layer.
#pragma once

#include <ATen/ATen.h>

#include <string>
#include <vector>

#include "model/model_config.h"
#include "train/fit/networks/network.h"

namespace hydrant::train {

// What a file calls the layer's tensors, without ".weight". Empty: the layer has no such norm.
struct LayerNames {
  std::string input_norm, post_norm, q, k, v, o, gate, up, down;
  std::string q_norm = {}, k_norm = {};
};
// As models in Hugging Face's layout have them behind `prefix` ("model.layers.3.").
LayerNames UsualLayerNames(const std::string& prefix);

class LlamaLayer {
 public:
  // `parameters` must outlive it. Matrices start as normal draws of the standard deviation 0.02 (Hugging Face's
  // initializer_range), norms as ones, biases as zeros. A matrix has a bias where `parameters` have one.
  LlamaLayer(const model::ModelConfig& config, const LayerNames& names, Parameters& parameters, at::Generator& random);

  // Keys and values of every position, as rows: [num_rows, heads, length, Dh].
  struct Keys {
    at::Tensor k, v;
  };

  // What a position attends to: the positions before it and itself by `first`, then its own rows of later passes. That
  // is what drafting sees that has gone `own.size()` tokens below a position: keys of the text, then of its path.
  struct Past {
    Keys first;
    std::vector<Keys> own;
  };

  // A pass over every position `ahead` places below it, which sees `past` and itself, and adds itself to it. q, k and v
  // read `attended`; the layer's output is added to `residual` [N, D].
  at::Tensor Run(const at::Tensor& residual, const at::Tensor& attended, const BatchTensors& batch, int64_t ahead,
                 Past& past, Precision precision) const;
  // The same at the positions themselves, over the layer's normed input.
  at::Tensor Run(const at::Tensor& x, const BatchTensors& batch, Precision precision) const;

 private:
  at::Tensor Mix(const at::Tensor& q, const Past& past, const RowLayout& rows, Precision precision) const;

  model::ModelConfig config_;
  at::Tensor input_norm_, post_norm_, q_norm_, k_norm_;
  Layer q_, k_, v_, o_, gate_, up_, down_;
  at::Tensor inv_freq_;  // [Dh / 2]
};

}  // namespace hydrant::train
