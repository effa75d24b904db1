// SPDX-License-Identifier: Apache-2.0
#include "model/model_config.h"

#include <array>
#include <cmath>
#include <filesystem>
#include <numbers>
#include <optional>
#include <string_view>
#include <utility>

#include "base/json.h"
#include "base/mapped_file.h"
#include "base/paths.h"
#include "base/placeholder.h"
#include "hydrant/error.h"

namespace hydrant::model {
namespace {

using base::Json;
using base::JsonView;

// Far above any released model, and low enough that products of two extents and a layer count fit 64 bits.
constexpr int64_t kMaxExtent = int64_t{1} << 24;
constexpr int64_t kMaxLayers = 4096;
constexpr int64_t kMaxPositions = int64_t{1} << 30;
constexpr size_t kMaxConfigBytes = size_t{4} << 20;

constexpr std::array<std::pair<std::string_view, Family>, 4> kFamilies = {
    {{"llama", Family::kLlama}, {"mistral", Family::kMistral}, {"qwen2", Family::kQwen2}, {"qwen3", Family::kQwen3}}};

Json ReadSmallJson(const std::string& path) { return base::ParseJson(base::ReadTextFile(path, kMaxConfigBytes), path); }

bool BoolOr(const JsonView& config, std::string_view key, bool fallback) {
  return config.Has(key) ? config.At(key).Bool() : fallback;
}

double NumberOr(const JsonView& config, std::string_view key, double fallback) {
  return config.Has(key) ? config.At(key).Number() : fallback;
}

double Positive(const JsonView& value, double max) {
  const double number = value.Number();
  if (!(number > 0) || number > max) value.Fail("a number above 0, at most " + Json(max).dump());
  return number;
}

Family ReadFamily(const JsonView& config) {
  if (config.is_object() && !config.Has("model_type")) {
    throw FileError(
        config.file(), "'model_type' is missing",
        "a folder of draft heads is named with EngineOptions::draft; EngineOptions::model takes the base model");
  }
  const JsonView type = config.At("model_type");
  const std::string name = type.String();
  for (const auto& [spelling, family] : kFamilies) {
    if (spelling == name) return family;
  }
  type.Fail("\"llama\", \"mistral\", \"qwen2\" or \"qwen3\"",
            name == "medusa" ? "this folder holds draft heads: name it with EngineOptions::draft" : "");
}

void RefuseQuantization(const JsonView& config) {
  if (!config.Has("quantization_config")) return;
  const JsonView quantization = config.At("quantization_config");
  const std::string hint = "use the f32, f16 or bf16 release of the model";
  if (quantization.Has("quant_method")) quantization.At("quant_method").Fail("no quantization_config", hint);
  quantization.Fail("no quantization_config", hint);
}

// What transformers' configuration classes take where the key is absent.
int64_t DefaultMaxPositions(Family family) {
  switch (family) {
    case Family::kLlama: return 2048;
    case Family::kMistral: return 4096 * 32;
    case Family::kQwen2:
    case Family::kQwen3: return 32768;
  }
  return 2048;
}

void ReadSizes(const JsonView& config, ModelConfig* result) {
  result->vocab_size = config.At("vocab_size").Int(1, kMaxExtent);
  result->hidden_size = config.At("hidden_size").Int(1, kMaxExtent);
  result->intermediate_size = config.At("intermediate_size").Int(1, kMaxExtent);
  result->num_layers = config.At("num_hidden_layers").Int(1, kMaxLayers);
  result->num_heads = config.At("num_attention_heads").Int(1, kMaxExtent);
  result->max_positions = config.raw().contains("max_position_embeddings")
                              ? config.At("max_position_embeddings").Int(1, kMaxPositions)
                              : DefaultMaxPositions(result->family);

  // Configs of the first Llama releases have no such key: every query head has its own key head.
  const bool has_kv_heads = config.Has("num_key_value_heads");
  if (!has_kv_heads && result->family != Family::kLlama) config.At("num_key_value_heads");
  result->num_kv_heads = has_kv_heads ? config.At("num_key_value_heads").Int(1, kMaxExtent) : result->num_heads;
  if (result->num_heads % result->num_kv_heads != 0) {
    config.At("num_key_value_heads").Fail("a divisor of num_attention_heads " + std::to_string(result->num_heads));
  }

  if (config.Has("head_dim")) {
    result->head_dim = config.At("head_dim").Int(2, kMaxExtent);
  } else {
    // transformers' default for Qwen3 is 128, not hidden_size / heads; its releases write the key.
    if (result->family == Family::kQwen3) config.At("head_dim").Fail("an even integer");
    if (result->hidden_size % result->num_heads != 0) {
      config.At("num_attention_heads").Fail("a divisor of hidden_size " + std::to_string(result->hidden_size));
    }
    result->head_dim = result->hidden_size / result->num_heads;
  }
  const std::string key = config.Has("head_dim") ? "head_dim" : "num_attention_heads";
  if (result->head_dim % 2 != 0) config.At(key).Fail("an even head_dim (rope turns pairs)");
  if (result->head_dim > kMaxExtent / result->num_heads) {
    config.At(key).Fail("num_attention_heads * head_dim of at most " + std::to_string(kMaxExtent));
  }
}

void ReadLlama3Rope(const JsonView& scaling, RopeConfig* rope) {
  rope->factor = Positive(scaling.At("factor"), 1e6);
  rope->low_freq_factor = Positive(scaling.At("low_freq_factor"), 1e6);
  rope->high_freq_factor = Positive(scaling.At("high_freq_factor"), 1e6);
  rope->original_max_positions = scaling.At("original_max_position_embeddings").Int(1, kMaxPositions);
  if (rope->high_freq_factor <= rope->low_freq_factor) {
    scaling.At("high_freq_factor").Fail("more than low_freq_factor " + Json(rope->low_freq_factor).dump());
  }
}

// `type` is the value that names the scaling.
void ReadRopeType(const JsonView& scaling, const JsonView& type, RopeConfig* rope) {
  const std::string name = type.String();
  if (name == "default") {
    rope->type = RopeType::kDefault;
  } else if (name == "linear") {
    rope->type = RopeType::kLinear;
    rope->factor = Positive(scaling.At("factor"), 1e6);
  } else if (name == "llama3") {
    rope->type = RopeType::kLlama3;
    ReadLlama3Rope(scaling, rope);
  } else {
    type.Fail("\"default\", \"linear\" or \"llama3\"", "this kind of rope scaling is not implemented");
  }
}

void RefusePartialRotary(const JsonView& config) {
  if (NumberOr(config, "partial_rotary_factor", 1.0) != 1.0) config.At("partial_rotary_factor").Fail("1");
}

// transformers 4: rope_theta beside rope_scaling {"type" or "rope_type"}; 5: both inside rope_parameters.
RopeConfig ReadRope(const JsonView& config) {
  RopeConfig rope;
  if (config.Has("rope_theta")) rope.theta = Positive(config.At("rope_theta"), 1e15);
  RefusePartialRotary(config);
  const bool new_spelling = config.Has("rope_parameters");
  if (new_spelling && config.Has("rope_scaling")) {
    config.At("rope_scaling").Fail("null beside 'rope_parameters'", "keep the one that the model was trained with");
  }
  if (!new_spelling && !config.Has("rope_scaling")) return rope;

  const JsonView scaling = config.At(new_spelling ? "rope_parameters" : "rope_scaling");
  if (!scaling.is_object()) scaling.Fail("an object or null");
  RefusePartialRotary(scaling);
  if (scaling.Has("rope_theta")) rope.theta = Positive(scaling.At("rope_theta"), 1e15);
  const bool has_new = scaling.Has("rope_type");
  const bool has_old = scaling.Has("type");
  if (has_new && has_old && scaling.At("rope_type").String() != scaling.At("type").String()) {
    scaling.At("type").Fail("the same as rope_type " + base::DumpJson(scaling.At("rope_type").raw()));
  }
  if (has_new || has_old) {
    ReadRopeType(scaling, scaling.At(has_new ? "rope_type" : "type"), &rope);
  } else if (!new_spelling || !scaling.Has("rope_theta")) {
    scaling.Fail("an object with 'rope_type'");  // also what gives every layer type parameters of its own
  }
  return rope;
}

// Layers that attend through the window, by `layer_types` where the config lists them; nothing when it does not.
std::optional<int64_t> SlidingLayers(const JsonView& config, int64_t num_layers) {
  if (!config.Has("layer_types")) return std::nullopt;
  const JsonView types = config.At("layer_types");
  if (types.Size() != static_cast<size_t>(num_layers)) {
    types.Fail("one entry for each of the " + std::to_string(num_layers) + " layers (num_hidden_layers)");
  }
  int64_t sliding = 0;
  for (size_t i = 0; i < types.Size(); ++i) {
    const JsonView type = types.At(i);
    const std::string name = type.String();
    if (name == "sliding_attention") {
      ++sliding;
    } else if (name != "full_attention") {
      type.Fail("\"full_attention\" or \"sliding_attention\"");
    }
  }
  return sliding;
}

// Window of every layer, 0 = none. Llama configs have none, whatever stands in them (as in transformers).
int32_t ReadSlidingWindow(const JsonView& config, const ModelConfig& model) {
  const bool qwen = model.family == Family::kQwen2 || model.family == Family::kQwen3;
  if (model.family == Family::kLlama || (qwen && !BoolOr(config, "use_sliding_window", false))) return 0;
  const bool is_null = config.raw().contains("sliding_window") && !config.Has("sliding_window");
  if (is_null) return 0;
  // transformers' default for Mistral and Qwen; a config without the key means it.
  const auto window =
      static_cast<int32_t>(config.Has("sliding_window") ? config.At("sliding_window").Int(1, kMaxPositions) : 4096);

  int64_t sliding = model.num_layers;
  if (const std::optional<int64_t> listed = SlidingLayers(config, model.num_layers)) {
    sliding = *listed;
  } else if (qwen) {
    const int64_t full =
        config.Has("max_window_layers") ? config.At("max_window_layers").Int(0, kMaxExtent) : int64_t{28};
    sliding = full >= model.num_layers ? 0 : model.num_layers - full;
  }
  if (sliding != 0 && sliding != model.num_layers) {
    config.At(config.Has("layer_types") ? "layer_types" : "use_sliding_window")
        .Fail("the same attention in all layers", "a window in some layers only is not implemented");
  }
  return sliding == 0 ? 0 : window;
}

void ReadBiases(const JsonView& config, ModelConfig* result) {
  switch (result->family) {
    case Family::kLlama:
    case Family::kQwen3:
      result->qkv_bias = result->o_bias = BoolOr(config, "attention_bias", false);
      result->qk_norm = result->family == Family::kQwen3;
      break;
    case Family::kQwen2: result->qkv_bias = true; break;  // no key says so
    case Family::kMistral: break;
  }
  if (result->family == Family::kLlama) result->mlp_bias = BoolOr(config, "mlp_bias", false);
}

// A token id or a list of ids; -1 and null mean none.
std::vector<int32_t> TokenIds(const JsonView& config, std::string_view key, int64_t vocab_size) {
  std::vector<int32_t> ids;
  if (!config.Has(key)) return ids;
  const JsonView value = config.At(key);
  const auto add = [&](const JsonView& id) {
    const int64_t number = id.Int(-1, vocab_size - 1);
    if (number >= 0) ids.push_back(static_cast<int32_t>(number));
  };
  if (value.is_array()) {
    for (size_t i = 0; i < value.Size(); ++i) add(value.At(i));
  } else {
    add(value);
  }
  return ids;
}

void ReadTokenIds(const JsonView& config, std::vector<int32_t>* eos, ModelConfig* result) {
  *eos = TokenIds(config, "eos_token_id", result->vocab_size);
  const std::vector<int32_t> bos = TokenIds(config, "bos_token_id", result->vocab_size);
  if (!bos.empty()) result->bos_token_id = bos.front();
}

}  // namespace

const char* NameOf(Family family) {
  switch (family) {
    case Family::kLlama: return "llama";
    case Family::kMistral: return "mistral";
    case Family::kQwen2: return "qwen2";
    case Family::kQwen3: return "qwen3";
  }
  return "?";
}

ModelConfig ReadModelConfig(const std::string& folder) {
  const std::filesystem::path path(folder);
  if (!base::IsFolder(path)) {
    if (base::IsThere(path)) throw FileError(folder, "is a file, expected a model folder");
    throw FileError(folder, "no such folder", base::MissingPathHint(folder));
  }
  const std::string file = (path / "config.json").string();
  const Json json = ReadSmallJson(file);
  ModelConfig result = ModelConfigOf(JsonView(json, file));
  const std::string generation_file = (path / "generation_config.json").string();
  if (base::IsThere(generation_file)) {
    const Json generation = ReadSmallJson(generation_file);
    if (!generation.is_object()) JsonView(generation, generation_file).Fail("an object");
    ReadTokenIds(JsonView(generation, generation_file), &result.generation_eos_token_ids, &result);
  }
  return result;
}

ModelConfig ModelConfigOf(const JsonView& config) {
  ModelConfig result;
  result.file = config.file();
  result.family = ReadFamily(config);
  if (config.Has("_name_or_path")) result.name_or_path = config.At("_name_or_path").String();
  RefuseQuantization(config);
  ReadSizes(config, &result);
  if (config.Has("hidden_act") && config.At("hidden_act").String() != "silu") config.At("hidden_act").Fail("\"silu\"");
  if (config.Has("rms_norm_eps")) result.rms_norm_eps = static_cast<float>(Positive(config.At("rms_norm_eps"), 1.0));
  result.rope = ReadRope(config);
  result.sliding_window = ReadSlidingWindow(config, result);
  result.tied_embeddings = BoolOr(config, "tie_word_embeddings", false);
  ReadBiases(config, &result);
  ReadTokenIds(config, &result.config_eos_token_ids, &result);
  return result;
}

int64_t VocabSizeOf(const std::string& folder) {
  const std::string file = (std::filesystem::path(folder) / "config.json").string();
  if (!base::IsThere(file)) return 0;
  const Json json = ReadSmallJson(file);
  const JsonView config(json, file);
  return config.is_object() && config.Has("vocab_size") ? config.At("vocab_size").Int(1, kMaxExtent) : 0;
}

// In f32 and in transformers' order of operations (modeling_rope_utils), since rope angles are f32 there as well.
std::vector<float> InverseFrequencies(const RopeConfig& rope, int64_t head_dim) {
  const auto factor = static_cast<float>(rope.factor);
  const auto low = static_cast<float>(rope.low_freq_factor);
  const auto high = static_cast<float>(rope.high_freq_factor);
  const auto original = static_cast<float>(rope.original_max_positions);
  std::vector<float> frequencies;  // [Dh / 2]
  for (int64_t i = 0; i < head_dim; i += 2) {
    const float exponent = static_cast<float>(i) / static_cast<float>(head_dim);
    float frequency = 1.0F / std::pow(static_cast<float>(rope.theta), exponent);
    if (rope.type == RopeType::kLinear) frequency /= factor;
    if (rope.type == RopeType::kLlama3) {
      const float wavelength = 2 * std::numbers::pi_v<float> / frequency;
      if (wavelength > original / low) {
        frequency /= factor;
      } else if (wavelength >= original / high) {
        const float smooth = (original / wavelength - low) / (high - low);
        frequency = (1 - smooth) * frequency / factor + smooth * frequency;
      }
    }
    frequencies.push_back(frequency);
  }
  return frequencies;
}

}  // namespace hydrant::model
