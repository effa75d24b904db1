// SPDX-License-Identifier: Apache-2.0
#include "train/fit/llama_model.h"

#include <string>

#include "base/check.h"
#include "hydrant/error.h"
#include "model/decoder.h"
#include "model/model_tensors.h"

namespace hydrant::train {
namespace {

constexpr double kInitDeviation = 0.02;  // of the embedding and the lm head, as of LlamaLayer's matrices

std::string PrefixOf(size_t layer) { return "model.layers." + std::to_string(layer) + "."; }

ParameterRow RowOf(const checkpoint::TensorRow& row) {
  ParameterRow parameter{.name = row.name, .repeats = {}, .shape = {}};
  for (const checkpoint::Extent& extent : row.shape) parameter.shape.push_back(extent.value);
  return parameter;
}

void Set(Parameters& parameters, const std::string& name, const std::vector<float>& numbers) {
  if (numbers.empty()) return;
  const at::Tensor& leaf = parameters.Get(name);
  HYDRANT_CHECK(leaf.numel() == static_cast<int64_t>(numbers.size()));
  std::copy(numbers.begin(), numbers.end(), leaf.data_ptr<float>());
}

void Set(Parameters& parameters, const std::string& name, const model::Linear& linear) {
  if (linear.packed) {
    throw FileError(linear.file, "has packed weights, and models are trained on floats",
                    "name the folder that it was converted from");
  }
  Set(parameters, name + ".weight", ToFloats(linear.weight));
  Set(parameters, name + ".bias", linear.bias);
}

}  // namespace

std::vector<ParameterRow> LlamaModel::Rows(const model::ModelConfig& config) {
  std::vector<ParameterRow> rows = {RowOf(model::EmbeddingRow(config))};
  for (size_t layer = 0; layer < static_cast<size_t>(config.num_layers); ++layer) {
    for (const checkpoint::TensorRow& row : model::LayerRows(config, PrefixOf(layer))) {
      if (row.presence != checkpoint::Presence::kUnused) rows.push_back(RowOf(row));
    }
  }
  rows.push_back(RowOf(model::FinalNormRow(config)));
  if (!config.tied_embeddings) rows.push_back(RowOf(model::LmHeadRow(config)));
  return rows;
}

LlamaModel::LlamaModel(const model::ModelConfig& config, Parameters& parameters, at::Generator& random)
    : config_(config), parameters_(&parameters) {
  at::NoGradGuard no_grad;
  embedding_ = parameters.Get(model::EmbeddingRow(config).name);
  embedding_.normal_(0, kInitDeviation, random);
  for (size_t layer = 0; layer < static_cast<size_t>(config.num_layers); ++layer) {
    const std::string prefix = PrefixOf(layer);
    LayerNames names = UsualLayerNames(prefix);
    if (config.qk_norm) {
      names.q_norm = prefix + "self_attn.q_norm";
      names.k_norm = prefix + "self_attn.k_norm";
    }
    layers_.push_back(std::make_unique<LlamaLayer>(config, names, parameters, random));
  }
  final_norm_ = parameters.Get(model::FinalNormRow(config).name);
  final_norm_.fill_(1);
  lm_head_ = embedding_;
  if (config.tied_embeddings) return;
  lm_head_ = parameters.Get(model::LmHeadRow(config).name);
  lm_head_.normal_(0, kInitDeviation, random);
}

void LlamaModel::Take(const model::ModelWeights& weights) {
  Set(*parameters_, model::EmbeddingRow(config_).name, ToFloats(weights.embedding));
  for (size_t i = 0; i < weights.layers.size(); ++i) {
    const model::LayerWeights& layer = weights.layers[i];
    const LayerNames names = UsualLayerNames(PrefixOf(i));
    Set(*parameters_, names.input_norm + ".weight", layer.input_norm);
    Set(*parameters_, names.post_norm + ".weight", layer.post_attention_norm);
    Set(*parameters_, PrefixOf(i) + "self_attn.q_norm.weight", layer.q_norm);
    Set(*parameters_, PrefixOf(i) + "self_attn.k_norm.weight", layer.k_norm);
    Set(*parameters_, names.q, layer.q);
    Set(*parameters_, names.k, layer.k);
    Set(*parameters_, names.v, layer.v);
    Set(*parameters_, names.o, layer.o);
    Set(*parameters_, names.gate, layer.gate);
    Set(*parameters_, names.up, layer.up);
    Set(*parameters_, names.down, layer.down);
  }
  Set(*parameters_, model::FinalNormRow(config_).name, weights.final_norm);
  if (config_.tied_embeddings) return;
  if (weights.lm_head.packed) Set(*parameters_, "lm_head", weights.lm_head);  // throws
  Set(*parameters_, model::LmHeadRow(config_).name, ToFloats(weights.lm_head.weight));
}

std::vector<at::Tensor> LlamaModel::States(const BatchTensors& batch, std::span<const int32_t> wanted,
                                           Precision precision) const {
  std::vector<at::Tensor> states(wanted.size());
  const auto keep = [&](int32_t number, const at::Tensor& x) {
    for (size_t w = 0; w < wanted.size(); ++w) {
      if (wanted[w] == number) states[w] = x;
    }
  };
  at::Tensor x = embedding_.index_select(0, batch.tokens);
  keep(0, x);
  for (size_t layer = 0; layer < layers_.size(); ++layer) {
    x = layers_[layer]->Run(x, batch, precision);
    keep(static_cast<int32_t>(layer) + 1, x);
  }
  keep(model::kAfterFinalNorm, RmsNorm(x, final_norm_, config_.rms_norm_eps));
  return states;
}

void LlamaModel::CheckRows(const model::ModelConfig& config, int32_t row_tokens) {
  if (config.sliding_window == 0 || row_tokens <= config.sliding_window) return;
  throw UserError("RunOptions::row_tokens is " + std::to_string(row_tokens) +
                      ", and the base's attention has a window of " + std::to_string(config.sliding_window) +
                      " positions",
                  "choose a smaller number");
}

}  // namespace hydrant::train
