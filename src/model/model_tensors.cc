// SPDX-License-Identifier: Apache-2.0
#include "model/model_tensors.h"

#include <utility>

namespace hydrant::model {
namespace {

using checkpoint::Extent;
using checkpoint::Presence;
using checkpoint::ShardAxis;
using checkpoint::TensorRow;

TensorRow Row(std::string name, std::vector<Extent> shape, ShardAxis shard) {
  TensorRow row;
  row.name = std::move(name);
  row.shape = std::move(shape);
  row.shard = shard;
  return row;
}

TensorRow Unused(std::string name) {
  TensorRow row;
  row.name = std::move(name);
  row.presence = Presence::kUnused;
  return row;
}

// A bias follows the outputs of its matrix; where the inputs are split, every rank would add it, so one adds it whole.
LinearRows LinearRowsOf(const std::string& name, const Extent& outputs, const Extent& inputs, ShardAxis shard,
                        bool bias) {
  LinearRows rows;
  rows.weight = Row(name + ".weight", {outputs, inputs}, shard);
  rows.has_bias = bias;
  const ShardAxis bias_shard = shard == ShardAxis::kInputs ? ShardAxis::kReplicated : shard;
  if (bias) rows.bias = Row(name + ".bias", {outputs}, bias_shard);
  return rows;
}

Extent Vocabulary(const ModelConfig& config) { return {config.vocab_size, "vocab_size"}; }
Extent Hidden(const ModelConfig& config) { return {config.hidden_size, "hidden_size"}; }

}  // namespace

TensorRow EmbeddingRow(const ModelConfig& config) {
  TensorRow row = Row("model.embed_tokens.weight", {Vocabulary(config), Hidden(config)}, ShardAxis::kVocabulary);
  // Some writers keep the other name of a tied pair.
  if (config.tied_embeddings) row.tied_to = "lm_head.weight";
  return row;
}

TensorRow FinalNormRow(const ModelConfig& config) {
  return Row("model.norm.weight", {Hidden(config)}, ShardAxis::kReplicated);
}

TensorRow LmHeadRow(const ModelConfig& config) {
  if (config.tied_embeddings) return Unused("lm_head.weight");
  TensorRow row = Row("lm_head.weight", {Vocabulary(config), Hidden(config)}, ShardAxis::kVocabulary);
  row.hint = "a model without lm_head.weight has \"tie_word_embeddings\": true in its config.json";
  return row;
}

LayerRowSet DecoderLayerRows(const ModelConfig& config, const std::string& prefix) {
  const Extent hidden = Hidden(config);
  const Extent intermediate = {config.intermediate_size, "intermediate_size"};
  const Extent queries = {config.num_heads * config.head_dim, "num_attention_heads * head_dim"};
  const Extent keys = {config.num_kv_heads * config.head_dim, "num_key_value_heads * head_dim"};
  const Extent head = {config.head_dim, "head_dim"};
  const std::string attention = prefix + "self_attn.";
  const std::string mlp = prefix + "mlp.";

  LayerRowSet rows;
  rows.input_norm = Row(prefix + "input_layernorm.weight", {hidden}, ShardAxis::kReplicated);
  rows.q = LinearRowsOf(attention + "q_proj", queries, hidden, ShardAxis::kOutputs, config.qkv_bias);
  rows.k = LinearRowsOf(attention + "k_proj", keys, hidden, ShardAxis::kOutputs, config.qkv_bias);
  rows.v = LinearRowsOf(attention + "v_proj", keys, hidden, ShardAxis::kOutputs, config.qkv_bias);
  rows.o = LinearRowsOf(attention + "o_proj", hidden, queries, ShardAxis::kInputs, config.o_bias);
  rows.q_norm = Row(attention + "q_norm.weight", {head}, ShardAxis::kReplicated);
  rows.k_norm = Row(attention + "k_norm.weight", {head}, ShardAxis::kReplicated);
  rows.rotary = Unused(attention + "rotary_emb.inv_freq");
  rows.post_attention_norm = Row(prefix + "post_attention_layernorm.weight", {hidden}, ShardAxis::kReplicated);
  rows.gate = LinearRowsOf(mlp + "gate_proj", intermediate, hidden, ShardAxis::kOutputs, config.mlp_bias);
  rows.up = LinearRowsOf(mlp + "up_proj", intermediate, hidden, ShardAxis::kOutputs, config.mlp_bias);
  rows.down = LinearRowsOf(mlp + "down_proj", hidden, intermediate, ShardAxis::kInputs, config.mlp_bias);
  return rows;
}

bool IsRotaryBuffer(std::string_view name) { return name.ends_with("rotary_emb.inv_freq"); }

}  // namespace hydrant::model
