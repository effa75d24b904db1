// SPDX-License-Identifier: Apache-2.0
#include "convert/respelled_config.h"

#include <algorithm>

#include "base/check.h"
#include "base/json.h"

namespace hydrant::convert {
namespace {

using base::Json;

constexpr int64_t kMostDrafts = 63;  // nodes of the published trees: what the tools of TensorRT-LLM take as default

Json ReadOr(const std::string& file) { return file.empty() ? Json::object() : base::ReadJsonFile(file); }

// Takes over what `from` has of the keys.
void CopyKeys(std::initializer_list<const char*> keys, const Json& from, Json& to) {
  for (const char* key : keys) {
    if (const auto found = from.find(key); found != from.end() && !found->is_null()) to[key] = *found;
  }
}

const char* TorchName(DType dtype) {
  switch (dtype) {
    case DType::kF16: return "float16";
    case DType::kBF16: return "bfloat16";
    default: return "float32";
  }
}

// Of the heads' matrices; the token map aside, which is of integers.
const char* TypeOf(const RespelledHeads& heads) {
  const auto is_float = [](const RespelledTensor& tensor) { return tensor.view.dtype != DType::kI64; };
  const auto found = std::ranges::find_if(heads.tensors, is_float);
  return found == heads.tensors.end() ? "float32" : TorchName(found->view.dtype);
}

Json Medusa(const ConfigFacts& facts) {
  const draft::HeadsInfo& info = facts.heads->info;
  Json config = {{"medusa_num_heads", info.num_heads}, {"medusa_num_layers", info.num_layers}};
  if (!info.own_lm_heads && !info.shared_lm_head) config["version"] = "2";
  return config;
}

// A whole model's config with the heads' counts. The class names are those that the authors' code has.
Json MedusaModel(const ConfigFacts& facts) {
  Json config = ReadOr(facts.model_file);
  config.update(Medusa(facts));
  const std::string type = config.value("model_type", "");
  if (type == "llama") config["architectures"] = {"MedusaModelLlama"};
  if (type == "mistral") config["architectures"] = {"MedusaModelMistral"};
  return config;
}

// `max_paths` and `topk` are vLLM's own defaults: its drafter takes the best token of each head.
Json Vllm(const ConfigFacts& facts) {
  const draft::HeadsInfo& info = facts.heads->info;
  int64_t rows = facts.sizes->vocab_size;
  for (const RespelledTensor& tensor : facts.heads->tensors) {
    if (tensor.axis == checkpoint::ShardAxis::kVocabulary) rows = tensor.view.shape.front();
  }
  Json config = {{"architectures", {"MedusaModel"}},
                 {"model_type", "medusa"},
                 {"hidden_size", facts.sizes->hidden_size},
                 {"vocab_size", facts.sizes->vocab_size},
                 {"num_heads", info.num_heads},
                 {"num_hidden_layers", info.num_layers},
                 {"max_paths", 64},
                 {"topk", 10},
                 {"truncated_vocab_size", rows},
                 {"medusa_fc_bias", info.block_bias},
                 {"torch_dtype", TypeOf(*facts.heads)}};
  if (info.shared_lm_head) config["original_lm_head"] = true;
  return config;
}

// What a base's config says in the words of TensorRT-LLM's checkpoints.
void AddBase(const Json& model, Json& config) {
  CopyKeys({"num_hidden_layers", "num_attention_heads", "num_key_value_heads", "intermediate_size",
            "max_position_embeddings", "hidden_act", "rope_theta"},
           model, config);
  if (const auto epsilon = model.find("rms_norm_eps"); epsilon != model.end()) config["norm_epsilon"] = *epsilon;
  config["position_embedding_type"] = "rope_gpt_neox";
}

Json Ranks(const ConfigFacts& facts, const Json& source) {
  const draft::HeadsInfo& info = facts.heads->info;
  const bool is_medusa = info.name == "medusa";
  const std::string kind = is_medusa ? "medusa" : "hydra";
  Json config = {{"architecture", is_medusa ? "MedusaForCausalLM" : "HydraForCausalLM"},
                 {"dtype", TypeOf(*facts.heads)},
                 {"logits_dtype", "float32"},
                 {"hidden_size", facts.sizes->hidden_size},
                 {"vocab_size", facts.sizes->vocab_size},
                 {"quantization", {{"quant_algo", nullptr}, {"kv_cache_quant_algo", nullptr}}},
                 {"mapping", {{"world_size", facts.tp}, {"tp_size", facts.tp}, {"pp_size", 1}}},
                 {"max_draft_len", kMostDrafts},
                 {"num_" + kind + "_heads", info.num_heads},
                 {"num_" + kind + "_layers", info.num_layers}};
  if (!facts.model_file.empty()) AddBase(ReadOr(facts.model_file), config);
  CopyKeys({"max_draft_len"}, source, config);
  return config;
}

// What Hydra heads need to run and no tensor says.
void AddHydra(const draft::HeadsInfo& info, const Json& source, Json& config) {
  config["hydra_head_arch"] = info.layout;
  config["grounded_heads"] = info.sequentially_dependent;
  config["hidden_state_offset"] = info.hidden_layer_offset;
  CopyKeys({"hydra_ext"}, source, config);
}

}  // namespace

Json ConfigOf(const std::string& layout, const ConfigFacts& facts) {
  const draft::HeadsInfo& info = facts.heads->info;
  const Json source = ReadOr(facts.source_file);
  const bool is_hydra = info.name != "medusa";
  Json config;
  if (layout == draft::kRankSpelling) {
    config = Ranks(facts, source);
  } else if (is_hydra) {
    config = {{"hydra_num_heads", info.num_heads}, {"hydra_num_layers", info.num_layers}};
  } else if (layout == "vllm") {
    config = Vllm(facts);
  } else {
    config = layout == "medusa-b" ? MedusaModel(facts) : Medusa(facts);
  }
  if (is_hydra) AddHydra(info, source, config);
  if (!info.base_model.empty()) config["base_model_name_or_path"] = info.base_model;
  return config;
}

}  // namespace hydrant::convert
