// SPDX-License-Identifier: Apache-2.0
#include "train/fit/networks/network.h"

#include <ATen/CPUGeneratorImpl.h>
#include <ATen/Parallel.h>

#include <algorithm>
#include <cmath>
#include <cstdint>

#include "draft/heads/eagle_weights.h"
#include "draft/heads/redrafter_weights.h"
#include "hydrant/error.h"
#include "train/data/random.h"
#include "train/fit/networks/eagle_network.h"
#include "train/fit/networks/redrafter_network.h"
#include "train/fit/networks/residual_heads.h"

namespace hydrant::train {
namespace {

at::Tensor FloatsOf(const TensorView& view) {
  const std::vector<float> floats = ToFloats(view);
  return at::from_blob(const_cast<float*>(floats.data()), view.shape, at::kFloat).clone();
}

// A factor for each number: 1 / kept for that share of them, 0 for the others. libtorch's bernoulli_ draws 64 bits for
// each, one after the other; a hash of their place makes 32 for each, and any part of them alone.
at::Tensor KeptFactors(at::IntArrayRef sizes, double kept, at::Generator& random) {
  at::Tensor factors = at::empty(sizes);
  auto* factor = factors.data_ptr<float>();
  const int64_t count = factors.numel();
  const uint64_t seed = at::check_generator<at::CPUGeneratorImpl>(random)->random64();
  const auto limit = static_cast<uint64_t>(std::llround(std::ldexp(kept, 32)));
  const auto value = static_cast<float>(1 / kept);
  at::parallel_for(0, (count + 1) / 2, 1 << 14, [&](int64_t begin, int64_t end) {
    Random draws(seed + static_cast<uint64_t>(begin) * Random::kStep);
    for (int64_t pair = begin; pair < end; ++pair) {
      const uint64_t bits = draws.Next();
      factor[2 * pair] = (bits >> 32) < limit ? value : 0.0F;
      if (2 * pair + 1 < count) factor[2 * pair + 1] = (bits & 0xFFFFFFFF) < limit ? value : 0.0F;
    }
  });
  return factors;
}

// Tokens of the text that a position belongs to, [N] f32.
at::Tensor TextLengths(const BatchTensors& batch) {
  const at::Tensor starts = batch.position.eq(0).nonzero().squeeze(1);
  const at::Tensor lengths = at::diff(at::cat({starts, at::full({1}, batch.size(), at::kLong)}));
  return lengths.repeat_interleave(lengths).to(at::kFloat);
}

}  // namespace

BaseTensors TakeBaseTensors(const model::ModelWeights& weights) {
  if (weights.lm_head.packed) {
    throw FileError(weights.file, "has packed weights, and heads are trained on floats",
                    "name the folder that it was converted from");
  }
  BaseTensors base;
  base.embedding = FloatsOf(weights.embedding);
  base.lm_head = weights.config.tied_embeddings ? base.embedding : FloatsOf(weights.lm_head.weight);
  return base;
}

at::Tensor Product(const at::Tensor& x, const at::Tensor& weight, const at::Tensor& bias, Precision precision) {
  const at::Tensor out = MatrixProduct(x, weight.t(), precision);
  return bias.defined() ? out + bias : out;
}

at::Tensor MatrixProduct(const at::Tensor& a, const at::Tensor& b, Precision precision) {
  if (precision == Precision::kF32) return at::matmul(a, b);
  return at::matmul(a.to(at::kBFloat16), b.to(at::kBFloat16)).to(at::kFloat);
}

at::Tensor RmsNorm(const at::Tensor& x, const at::Tensor& weight, double epsilon) {
  const at::Tensor mean_square = x.square().mean(-1, /*keepdim=*/true);
  return x * at::rsqrt(mean_square + epsilon) * weight;
}

at::Tensor Dropped(const at::Tensor& x, const PassOptions& options) {
  if (!options.is_training || options.dropout == 0) return x;
  return x * KeptFactors(x.sizes(), 1 - options.dropout, *options.random);
}

at::Tensor WithNoise(const at::Tensor& hidden, const BatchTensors& batch, const PassOptions& options) {
  if (!options.is_training) return hidden;
  at::Tensor noisy = hidden;
  const auto draw = [&](double bound) { return at::empty_like(hidden).uniform_(-bound, bound, *options.random); };
  if (options.noise_alpha != 0) {
    const double size = static_cast<double>(batch.rows.length) * static_cast<double>(hidden.size(1));
    noisy = noisy + draw(options.noise_alpha / std::sqrt(size));
  }
  if (options.text_noise != 0) {
    constexpr double kUsualTokens = 512;
    noisy = noisy + draw(options.text_noise / 2 * kUsualTokens) / TextLengths(batch).unsqueeze(1);
  }
  return noisy;
}

Layer TakeLayer(Parameters& parameters, const std::string& name, Start start, at::Generator& random) {
  Layer layer{.weight = parameters.Get(name + ".weight"), .bias = {}};
  const double bound = 1 / std::sqrt(static_cast<double>(layer.weight.size(1)));
  if (start == Start::kUniform) layer.weight.uniform_(-bound, bound, random);
  if (!parameters.Has(name + ".bias")) return layer;
  layer.bias = parameters.Get(name + ".bias");
  layer.bias.uniform_(-bound, bound, random);
  return layer;
}

at::Tensor Through(const Layer& layer, const at::Tensor& x, Precision precision) {
  return Product(x, layer.weight, layer.bias, precision);
}

std::unique_ptr<Network> MakeNetwork(const draft::HeadsInfo& info, const std::vector<int32_t>& draft_vocab,
                                     const model::ModelConfig& base_config, const BaseTensors& base,
                                     Parameters& parameters, at::Generator& random) {
  if (info.kind == &draft::kEagleKind) {
    return MakeEagleNetwork(info, draft_vocab, base_config, base, parameters, random);
  }
  if (info.kind == &draft::kRedrafterKind) return MakeRedrafterNetwork(info, base, parameters, random);
  return MakeResidualHeads(info, draft_vocab, base_config, base, parameters, random);
}

}  // namespace hydrant::train
