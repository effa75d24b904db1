// SPDX-License-Identifier: Apache-2.0
#include "draft/prefix_weights.h"

#include <string>

#include "hydrant/error.h"

namespace hydrant::draft {
namespace {

constexpr const char* kPrefix = "prefix_embeding_layer.";  // the released spelling

// A Llama layer of the base's sizes without biases or norms of heads. Published files have as many key heads as query
// heads; a file trained on a grouped-query base may have the base's number: config.json may say so
// ('hydra_ext.num_key_value_heads'), else the key projection decides.
model::ModelConfig LayerConfig(const checkpoint::TensorSource& tensors, const HeadsInfo& info,
                               const model::ModelConfig& base) {
  model::ModelConfig config = base;
  config.qkv_bias = config.o_bias = config.mlp_bias = config.qk_norm = false;
  config.sliding_window = 0;
  config.rope = {};
  config.rope.theta = info.rope_theta;
  config.num_kv_heads = base.num_heads;
  const auto* k = tensors.Find(std::string(kPrefix) + "layers.0.self_attn.k_proj.weight");
  if (k != nullptr && !k->shape().empty() && k->shape()[0] == base.num_kv_heads * base.head_dim) {
    config.num_kv_heads = base.num_kv_heads;
  }
  if (info.num_kv_heads > 0) config.num_kv_heads = info.num_kv_heads;
  if (base.num_heads % config.num_kv_heads != 0) {
    throw FileError(info.config_file, "'hydra_ext.num_key_value_heads' is " + std::to_string(info.num_kv_heads) +
                                          ", expected a divisor of the base's " + std::to_string(base.num_heads) +
                                          " heads");
  }
  return config;
}

std::vector<float> TakeFinalNorm(checkpoint::TableLoader& loader, const model::ModelConfig& base) {
  checkpoint::TensorRow row;
  row.name = std::string(kPrefix) + "norm.weight";
  row.shape = {{base.hidden_size, "hidden_size"}};
  return ToFloats(loader.Take(row));
}

}  // namespace

PrefixWeights TakePrefixLayer(checkpoint::TableLoader& loader, const HeadsInfo& info, const model::ModelConfig& base) {
  PrefixWeights weights;
  weights.config = LayerConfig(loader.source(), info, base);
  weights.layer = model::TakeLayer(loader, weights.config, std::string(kPrefix) + "layers.0.");
  weights.norm = TakeFinalNorm(loader, base);
  loader.Ignore(std::string(kPrefix) + "embed_tokens.weight");
  loader.Ignore(std::string(kPrefix) + "layers.0.self_attn.rotary_emb.inv_freq");
  return weights;
}

}  // namespace hydrant::draft
