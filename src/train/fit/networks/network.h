// SPDX-License-Identifier: Apache-2.0
// The networks of draft heads for training: from a batch's positions to the states that lm heads read.
#pragma once

#include <ATen/ATen.h>

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "draft/heads/head_kind.h"
#include "model/weights.h"
#include "train/fit/batch_tensors.h"
#include "train/fit/parameters.h"

namespace hydrant::train {

// Of matrix products; sums are in f32 either way. Master weights, norms, softmax and loss are always f32.
enum class Precision : uint8_t { kF32, kBF16 };

// The frozen tensors of the base that heads read.
struct BaseTensors {
  at::Tensor embedding;  // [V, D] f32
  at::Tensor lm_head;    // [V, D] f32
};
// Throws FileError for a base with packed weights.
BaseTensors TakeBaseTensors(const model::ModelWeights& weights);

// What one forward pass is given beside its batch.
struct PassOptions {
  Precision precision = Precision::kF32;
  double dropout = 0;
  double noise_alpha = 0;  // NEFTune on token embeddings: uniform in +-alpha / sqrt(positions of a row * D)
  // EAGLE's noise on hidden states: uniform in +-text_noise / 2 * 512 / tokens of the text that a position belongs to.
  double text_noise = 0;
  bool is_training = false;  // else neither dropout nor noise
  at::Generator* random = nullptr;
};

// x [.., I] times weight [O, I] transposed, plus a bias where it is defined.
at::Tensor Product(const at::Tensor& x, const at::Tensor& weight, const at::Tensor& bias, Precision precision);
// a times b, as at::matmul takes them.
at::Tensor MatrixProduct(const at::Tensor& a, const at::Tensor& b, Precision precision);
at::Tensor RmsNorm(const at::Tensor& x, const at::Tensor& weight, double epsilon);
// Zeroes a share of x and scales the rest, where it is training.
at::Tensor Dropped(const at::Tensor& x, const PassOptions& options);
// Hidden states with PassOptions::noise_alpha and text_noise, where it is training.
at::Tensor WithNoise(const at::Tensor& hidden, const BatchTensors& batch, const PassOptions& options);

struct Layer {
  at::Tensor weight, bias;  // the bias may be undefined
};
enum class Start : uint8_t { kZeros, kUniform };
// A linear layer by its name in the file. The weight starts as zeros, or as PyTorch's own Linear draws it; a bias as
// that draws it either way.
Layer TakeLayer(Parameters& parameters, const std::string& name, Start start, at::Generator& random);
at::Tensor Through(const Layer& layer, const at::Tensor& x, Precision precision);

// One lm head, or the base's.
struct LmHead {
  at::Tensor weight;       // [V', D]; a leaf with a gradient where it is trained
  at::Tensor bias;         // [V'], or undefined
  at::Tensor tokens = {};  // [V'] i64, ascending: row j is the logit of tokens[j]; undefined: of j
};

class Network {
 public:
  virtual ~Network() = default;

  // State i [N, width of lm head i] at row n is what that lm head reads to predict token n + i + 2; i < depth. Heads
  // that are counted have no more than one for each.
  virtual std::vector<at::Tensor> States(const BatchTensors& batch, const PassOptions& options,
                                         int32_t depth) const = 0;
  virtual LmHead HeadAt(int32_t i) const = 0;
};

// `parameters` and `base` must outlive it. The values of `parameters` are set as their authors' code does, by `random`:
// lm heads start as the base's, residual blocks as nothing but their residual. `draft_vocab`: HeadShape's.
std::unique_ptr<Network> MakeNetwork(const draft::HeadsInfo& info, const std::vector<int32_t>& draft_vocab,
                                     const model::ModelConfig& base_config, const BaseTensors& base,
                                     Parameters& parameters, at::Generator& random);

}  // namespace hydrant::train
