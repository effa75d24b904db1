// SPDX-License-Identifier: Apache-2.0
#include "train/base_config.h"

#include <array>
#include <utility>

#include "base/json.h"
#include "hydrant/error.h"
#include "train/trained_tensor.h"

namespace hydrant::train {
namespace {

using base::Json;

// models/tale-14m/config.json.
Json EmbeddedSizes() {
  return {{"model_type", "llama"},          {"vocab_size", 4096},          {"hidden_size", 256},
          {"intermediate_size", 704},       {"num_hidden_layers", 16},     {"num_attention_heads", 4},
          {"max_position_embeddings", 512}, {"rms_norm_eps", 1e-5},        {"rope_theta", 10000.0},
          {"hidden_act", "silu"},           {"tie_word_embeddings", false}};
}

// Says where a published model came from, or how it was packed: not true of the new one.
constexpr std::array<const char*, 3> kOfAnother = {"_name_or_path", "transformers_version", "auto_map"};

std::string NameOf(const BaseShape& shape) {
  return shape.config.empty() ? std::string("config.json of the new model") : shape.config;
}

void RefuseOtherKinds(const Json& config, const std::string& name) {
  const base::JsonView view(config, name);
  if (!view.is_object()) view.Fail("an object");
  const base::JsonView type = view.At("model_type");
  if (type.String() != "llama") type.Fail("\"llama\"", "other architectures cannot be trained");
}

}  // namespace

Json ConfigOf(const BaseShape& shape) {
  Json config = shape.config.empty() ? EmbeddedSizes() : base::ReadJsonFile(shape.config);
  RefuseOtherKinds(config, NameOf(shape));
  const auto set = [&config](const char* key, const std::optional<int64_t>& value) {
    if (value) config[key] = *value;
  };
  set("vocab_size", shape.vocab_size);
  set("hidden_size", shape.hidden_size);
  set("intermediate_size", shape.intermediate_size);
  set("num_hidden_layers", shape.num_layers);
  set("num_attention_heads", shape.num_heads);
  set("num_key_value_heads", shape.num_kv_heads);
  set("max_position_embeddings", shape.max_positions);
  for (const char* key : kOfAnother) config.erase(key);
  config["architectures"] = {"LlamaForCausalLM"};
  const model::ModelConfig sizes = SizesOf(config, shape);
  config["num_key_value_heads"] = sizes.num_kv_heads;
  return config;
}

model::ModelConfig SizesOf(const Json& config, const BaseShape& shape) {
  return model::ModelConfigOf(base::JsonView(config, NameOf(shape)));
}

void FitToTokenizer(Json& config, const BaseShape& shape, const tokenizer::Tokenizer& tokenizer, DType dtype) {
  const int64_t tokens = tokenizer.vocab_size();
  if (shape.config.empty() && !shape.vocab_size) config["vocab_size"] = tokens;
  if (config["vocab_size"].get<int64_t>() < tokens) {
    throw FileError(NameOf(shape),
                    "'vocab_size' is " + base::DumpJson(config["vocab_size"]) + ", and the tokenizer has " +
                        std::to_string(tokens) + " tokens",
                    "choose " + std::to_string(tokens) + " or more");
  }
  const auto set = [&config](const char* key, int32_t id) { config[key] = id < 0 ? Json() : Json(id); };
  set("bos_token_id", tokenizer.bos_id());
  set("eos_token_id", tokenizer.eos_id());
  config.erase("dtype");  // transformers 5 writes this one, and reads both
  config["torch_dtype"] = TorchTypeName(dtype);
}

Json GenerationConfigOf(const Json& config) {
  return {{"bos_token_id", config["bos_token_id"]},
          {"eos_token_id", config["eos_token_id"]},
          {"max_length", SizesOf(config, {}).max_positions}};
}

}  // namespace hydrant::train
