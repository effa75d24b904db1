// SPDX-License-Identifier: Apache-2.0
#include "draft/heads/eagle_weights.h"

#include <algorithm>
#include <array>
#include <optional>
#include <string>
#include <utility>

#include "base/json.h"
#include "draft/heads/eagle.h"
#include "hydrant/error.h"
#include "model/decoder.h"

namespace hydrant::draft {
namespace {

using checkpoint::ShardAxis;

using namespace eagle;  // roles
constexpr const char* kIdsKey = "eagle_aux_hidden_state_layer_ids";
constexpr const char* kReadingKey = "eagle_aux_hidden_state_layer_ids_are";  // ours: settles what the numbers mean

constexpr HeadTensor Matrix(std::string_view role, const char* name, Size outputs, Size inputs, ShardAxis shard,
                            Bias bias = Bias::kOptional) {
  return {.role = role, .name = name, .outputs = outputs, .inputs = inputs, .bias = bias, .shard = shard};
}

constexpr HeadTensor Norm(std::string_view role, const char* name) {
  return {.role = role, .name = name, .form = Form::kVector, .outputs = Size::kHiddenSize};
}

constexpr HeadTensor Unused(const char* name) { return {.role = "unused", .name = name, .form = Form::kUnused}; }

// What a file calls the decoder layer. `rotary`: a table that some exports keep.
struct LayerNames {
  const char *q, *k, *v, *o, *gate, *up, *down, *input_norm, *hidden_norm, *post_norm, *rotary;
};

// The authors', and of EAGLE-3 that of the speculators library.
constexpr LayerNames kLayers = {"layers.0.self_attn.q_proj",
                                "layers.0.self_attn.k_proj",
                                "layers.0.self_attn.v_proj",
                                "layers.0.self_attn.o_proj",
                                "layers.0.mlp.gate_proj",
                                "layers.0.mlp.up_proj",
                                "layers.0.mlp.down_proj",
                                "layers.0.input_layernorm",
                                "layers.0.hidden_norm",
                                "layers.0.post_attention_layernorm",
                                "layers.0.self_attn.rotary_emb.inv_freq"};
// The authors' of EAGLE-3.
constexpr LayerNames kMidlayer = {"midlayer.self_attn.q_proj",
                                  "midlayer.self_attn.k_proj",
                                  "midlayer.self_attn.v_proj",
                                  "midlayer.self_attn.o_proj",
                                  "midlayer.mlp.gate_proj",
                                  "midlayer.mlp.up_proj",
                                  "midlayer.mlp.down_proj",
                                  "midlayer.input_layernorm",
                                  "midlayer.hidden_norm",
                                  "midlayer.post_attention_layernorm",
                                  "midlayer.self_attn.rotary_emb.inv_freq"};
// Of EAGLE-1 in the speculators library.
constexpr LayerNames kTransformer = {"transformer.self_attn.q_proj",
                                     "transformer.self_attn.k_proj",
                                     "transformer.self_attn.v_proj",
                                     "transformer.self_attn.o_proj",
                                     "transformer.mlp.gate_proj",
                                     "transformer.mlp.up_proj",
                                     "transformer.mlp.down_proj",
                                     "transformer.input_layernorm",
                                     "transformer.hidden_norm",
                                     "transformer.post_attention_layernorm",
                                     "transformer.self_attn.rotary_emb.inv_freq"};

constexpr std::array<HeadTensor, 10> FirstRows(const char* fc, const LayerNames& names) {
  return {Matrix(kEagleFc, fc, Size::kHiddenSize, Size::kTwoHidden, ShardAxis::kOutputs),
          Matrix(kQuery, names.q, Size::kQueryRows, Size::kHiddenSize, ShardAxis::kOutputs),
          Matrix(kKey, names.k, Size::kKeyRows, Size::kHiddenSize, ShardAxis::kOutputs),
          Matrix(kValue, names.v, Size::kKeyRows, Size::kHiddenSize, ShardAxis::kOutputs),
          Matrix(kOutput, names.o, Size::kHiddenSize, Size::kQueryRows, ShardAxis::kInputs),
          Matrix(kGate, names.gate, Size::kInnerSize, Size::kHiddenSize, ShardAxis::kOutputs),
          Matrix(kUp, names.up, Size::kInnerSize, Size::kHiddenSize, ShardAxis::kOutputs),
          Matrix(kDown, names.down, Size::kHiddenSize, Size::kInnerSize, ShardAxis::kInputs),
          Norm(kPostNorm, names.post_norm),
          Unused(names.rotary)};
}

constexpr std::array<HeadTensor, 16> ThirdRows(const LayerNames& names) {
  return {Matrix(kEagleFc, "fc", Size::kHiddenSize, Size::kThreeHidden, ShardAxis::kOutputs),
          Matrix(kQuery, names.q, Size::kQueryRows, Size::kTwoHidden, ShardAxis::kOutputs),
          Matrix(kKey, names.k, Size::kKeyRows, Size::kTwoHidden, ShardAxis::kOutputs),
          Matrix(kValue, names.v, Size::kKeyRows, Size::kTwoHidden, ShardAxis::kOutputs),
          Matrix(kOutput, names.o, Size::kHiddenSize, Size::kQueryRows, ShardAxis::kInputs),
          Matrix(kGate, names.gate, Size::kInnerSize, Size::kHiddenSize, ShardAxis::kOutputs),
          Matrix(kUp, names.up, Size::kInnerSize, Size::kHiddenSize, ShardAxis::kOutputs),
          Matrix(kDown, names.down, Size::kHiddenSize, Size::kInnerSize, ShardAxis::kInputs),
          Norm(kInputNorm, names.input_norm),
          Norm(kHiddenNorm, names.hidden_norm),
          Norm(kPostNorm, names.post_norm),
          Norm(kNorm, "norm"),
          Matrix(kSharedLmHead, "lm_head", Size::kDraftRows, Size::kHiddenSize, ShardAxis::kVocabulary, Bias::kNone),
          {.role = kTokenMap, .name = "d2t", .form = Form::kTokenOffsets},
          Unused("t2d"),
          Unused(names.rotary)};
}

constexpr auto kFirst = FirstRows("fc", kLayers), kFirstTransformer = FirstRows("fusion_fc", kTransformer);
constexpr auto kThird = ThirdRows(kMidlayer), kThirdLayers = ThirdRows(kLayers);

constexpr HeadLayout kLayouts[] = {
    {.name = "eagle", .tensors = kFirst, .may_lack_lm_heads = true},
    {.name = "eagle, speculators", .tensors = kFirstTransformer, .may_lack_lm_heads = true},
    {.name = "eagle3", .tensors = kThird},
    {.name = "eagle3, speculators", .tensors = kThirdLayers}};
constexpr const HeadLayout &kFirstLayout = kLayouts[0], &kFirstTransformerLayout = kLayouts[1],
                           &kThirdLayout = kLayouts[2], &kThirdLayersLayout = kLayouts[3];

// By its tensors; null: no EAGLE heads.
const HeadLayout* LayoutOf(const checkpoint::TensorSource& tensors) {
  bool has_midlayer = false, has_layer = false;
  for (const auto& [name, tensor] : tensors.tensors()) {
    has_midlayer = has_midlayer || name.starts_with("midlayer.");
    has_layer = has_layer || name.starts_with("layers.0.");
  }
  if (has_midlayer) return &kThirdLayout;
  if (tensors.Find("fusion_fc.weight") != nullptr) return &kFirstTransformerLayout;
  const bool is_third = tensors.Find("layers.0.hidden_norm.weight") != nullptr || tensors.Find("d2t") != nullptr;
  if (has_layer && is_third) return &kThirdLayersLayout;
  return has_layer && tensors.Find("fc.weight") != nullptr ? &kFirstLayout : nullptr;
}

bool IsThird(const HeadsInfo& info) { return info.rows == &kThirdLayout || info.rows == &kThirdLayersLayout; }

// The list stands in the config itself, or in its 'eagle_config'.
std::optional<base::JsonView> IdsIn(const base::JsonView& config) {
  if (config.Has(kIdsKey)) return config.At(kIdsKey);
  if (config.Has("eagle_config") && config.At("eagle_config").Has(kIdsKey))
    return config.At("eagle_config").At(kIdsKey);
  return std::nullopt;
}

void ReadConfig(const base::JsonView& config, HeadsInfo& info) {
  const bool nested = config.Has("transformer_layer_config");  // the speculators library's
  const base::JsonView layer = nested ? config.At("transformer_layer_config") : config;
  if (nested && (!layer.is_object() || !layer.Has("model_type"))) {
    layer.Fail("an object with the layer's config, its 'model_type' and sizes");
  }
  info.layer = std::make_shared<const model::ModelConfig>(model::ModelConfigOf(layer));
  if (info.layer->num_layers != 1) layer.At("num_hidden_layers").Fail("1, as EAGLE heads have one layer");
  if (info.layer->qk_norm) layer.At("model_type").Fail("a layer without norms of queries and keys");
  if (const auto ids = IdsIn(config)) info.hidden_layers = ids->IntList(-1, 4096);
  if (config.Has("norm_before_residual")) info.norm_before_residual = config.At("norm_before_residual").Bool();
  if (config.Has("norm_before_fc") && config.At("norm_before_fc").Bool()) {
    config.At("norm_before_fc").Fail("false", "heads that norm the hidden states before 'fc' are not run");
  }
  if (config.Has("layernorms") && config.At("layernorms").Bool()) {
    config.At("layernorms").Fail("false", "EAGLE heads with more norms than the authors' (HASS) are not run");
  }
  // speculators' files are vLLM's, which counts inputs.
  if (nested) info.hidden_layer_reading = LayerReading::kInputs;
  if (config.Has(kReadingKey)) {
    const std::string reading = config.At(kReadingKey).String();
    if (reading != "inputs" && reading != "outputs") config.At(kReadingKey).Fail("\"inputs\" or \"outputs\"");
    info.hidden_layer_reading = reading == "inputs" ? LayerReading::kInputs : LayerReading::kOutputs;
  }
}

// A number of tokens in the config, and a tensor that has a row for each.
void CheckRows(const checkpoint::TensorSource& tensors, const base::JsonView& config, const char* key,
               const char* name) {
  const checkpoint::StoredTensor* stored = tensors.Find(name);
  if (stored == nullptr || stored->shape().empty() || !config.Has(key)) return;
  const int64_t rows = stored->shape().front();
  if (config.At(key).Int(1, INT32_MAX) == rows) return;
  config.At(key).Fail(std::to_string(rows) + ", the rows of tensor '" + name + "' in " + stored->file);
}

void CheckVocabulary(const checkpoint::TensorSource& tensors, const base::JsonView& config, const HeadsInfo& info) {
  const bool nested = config.Has("transformer_layer_config");
  const base::JsonView layer = nested ? config.At("transformer_layer_config") : config;
  CheckRows(tensors, layer, "vocab_size", "embed_tokens.weight");
  if (!IsThird(info)) return;
  CheckRows(tensors, layer, "vocab_size", info.has_token_map ? "t2d" : "lm_head.weight");
  for (const char* name : {"d2t", "lm_head.weight"}) CheckRows(tensors, config, "draft_vocab_size", name);
}

// The speculators library says whether there is one.
void CheckFusionBias(const checkpoint::TensorSource& tensors, const base::JsonView& config) {
  if (!config.Has("fusion_bias")) return;
  const bool is_there = tensors.Find("fusion_fc.bias") != nullptr || tensors.Find("fc.bias") != nullptr;
  if (config.At("fusion_bias").Bool() == is_there) return;
  config.At("fusion_bias")
      .Fail(is_there ? "true, since the file has such a bias" : "false, since the file has no such bias");
}

std::string Listed(const std::vector<int64_t>& numbers) {
  std::string text;
  for (const int64_t number : numbers) text += (text.empty() ? "" : ", ") + std::to_string(number);
  return "[" + text + "]";
}

// For `inspect`: which hidden states they read.
void DescribeLayers(HeadsInfo& info) {
  const bool by_rule = info.hidden_layers.empty();
  info.facts.emplace_back("hidden_layers",
                          by_rule ? std::string("2, L / 2 and L - 3 of a base of L") : Listed(info.hidden_layers));
  const bool are_inputs = by_rule || info.hidden_layer_reading == LayerReading::kInputs;
  const bool are_outputs = !by_rule && info.hidden_layer_reading == LayerReading::kOutputs;
  info.facts.emplace_back("hidden_states", std::string(are_inputs    ? "that enter those layers"
                                                       : are_outputs ? "that leave those layers"
                                                                     : "that enter or leave them, by the base's size"));
}

bool Resolve(const checkpoint::TensorSource& tensors, const base::JsonView* config, HeadsInfo& info) {
  info.rows = LayoutOf(tensors);
  if (info.rows == nullptr) return false;
  info.layout = info.rows->name;
  info.name = IsThird(info) ? "eagle3" : "eagle";
  info.num_heads = info.num_layers = 1;
  info.sequentially_dependent = info.grows_trees = true;
  info.own_lm_heads = false;
  info.shared_lm_head = IsThird(info);  // EAGLE-1 uses the base's
  info.block_bias = false;              // biases are there or not
  info.has_token_map = IsThird(info) && tensors.Find("d2t") != nullptr;
  if (config == nullptr) return true;
  ReadConfig(*config, info);
  CheckVocabulary(tensors, *config, info);
  CheckFusionBias(tensors, *config);
  if (IsThird(info)) DescribeLayers(info);
  return true;
}

// Which hidden states EAGLE-3 reads: those that enter three layers. The authors take layers 2, L / 2 and L - 3. Files
// that list layers count inputs (vLLM) or outputs (SGLang, SpecForge: one less); where the numbers themselves do not
// tell, nobody can.
std::vector<int32_t> HiddenLayers(const HeadsInfo& info, const model::ModelConfig& base) {
  const int64_t layers = base.num_layers;
  if (layers == 0) return {};  // of the base only sizes are known: nobody drafts
  const std::vector<int64_t> rule = {2, layers / 2, layers - 3}, rule_outputs = {1, layers / 2 - 1, layers - 4};
  std::vector<int64_t> ids = info.hidden_layers;
  if (ids.empty()) {
    if (layers >= 7) return {rule.begin(), rule.end()};
    throw FileError(info.config_file, "has no '" + std::string(kIdsKey) + "', and the base (" + base.file + ") has " +
                                          std::to_string(layers) + " layers, fewer than EAGLE-3's own rule needs (7)");
  }
  if (ids.size() != 3) {
    throw FileError(info.config_file, "'" + std::string(kIdsKey) + "' is " + Listed(ids) + ", expected 3 layers");
  }
  const auto [least, most] = std::ranges::minmax(ids);
  const bool can_be_inputs = least >= 0 && most < layers, can_be_outputs = least >= -1 && most + 1 < layers;
  bool are_inputs = info.hidden_layer_reading == LayerReading::kInputs;
  bool are_outputs = info.hidden_layer_reading == LayerReading::kOutputs;
  if (info.hidden_layer_reading == LayerReading::kUnsaid) {
    are_inputs = can_be_inputs && (ids == rule || (ids != rule_outputs && !can_be_outputs));
    are_outputs = can_be_outputs && (ids == rule_outputs || (ids != rule && !can_be_inputs));
  }
  const bool is_impossible = are_inputs    ? !can_be_inputs
                             : are_outputs ? !can_be_outputs
                                           : !can_be_inputs && !can_be_outputs;
  if (is_impossible) {
    throw FileError(info.config_file, "'" + std::string(kIdsKey) + "' is " + Listed(ids) + ", but the base (" +
                                          base.file + ") has " + std::to_string(layers) + " layers");
  }
  if (are_inputs == are_outputs) {
    throw FileError(info.config_file,
                    "'" + std::string(kIdsKey) + "' is " + Listed(ids) + " for a base of " + std::to_string(layers) +
                        " layers, which may count what enters the layers (vLLM) or what leaves them (SGLang)",
                    "add \"" + std::string(kReadingKey) + "\": \"inputs\" or \"outputs\" to the file");
  }
  std::vector<int32_t> hidden;
  for (const int64_t id : ids) hidden.push_back(static_cast<int32_t>(are_inputs ? id : id + 1));
  return hidden;
}

// One decoder layer of the base's own sizes, as all released ones are.
HeadsInfo Published(const HeadLayout& rows, const char* name) {
  HeadsInfo info;
  info.kind = &kEagleKind;
  info.rows = &rows;
  info.name = name;
  info.num_heads = info.num_layers = 1;
  info.sequentially_dependent = true;
  info.own_lm_heads = false;
  info.shared_lm_head = IsThird(info);
  return info;
}

HeadsInfo FirstAsPublished() { return Published(kFirstLayout, "eagle"); }
HeadsInfo ThirdAsPublished() { return Published(kThirdLayout, "eagle3"); }

constexpr PublishedHeads kPublished[] = {{"eagle", FirstAsPublished}, {"eagle3", ThirdAsPublished}};

model::ModelConfig LayerOf(const model::ModelConfig& base) {
  model::ModelConfig layer = base;
  layer.num_layers = 1;
  return layer;
}

std::unique_ptr<HeadWeights> Make(const HeadsFile& file, const model::ModelConfig& base) {
  HeadsInfo info = file.info;
  if (info.layer == nullptr && info.weights_file.empty()) {
    info.layer = std::make_shared<const model::ModelConfig>(LayerOf(base));
    // Small bases have too few layers for the authors' rule.
    if (base.num_layers < 7) info.hidden_layers = {0, base.num_layers / 2, base.num_layers - 1};
    info.hidden_layer_reading = LayerReading::kInputs;
  }
  if (info.layer == nullptr) {
    throw FileError(info.weights_file, "holds EAGLE heads, but there is no config.json beside it",
                    "put the config.json that was published with the heads into the same folder");
  }
  if (info.layer->hidden_size != base.hidden_size) {
    throw FileError(info.layer->file, "'hidden_size' is " + std::to_string(info.layer->hidden_size) +
                                          ", expected the base's " + std::to_string(base.hidden_size) + " (" +
                                          base.file + ")");
  }
  auto weights = std::make_unique<EagleWeights>(info);
  weights->is_third = IsThird(info);
  weights->norm_before_residual = info.norm_before_residual;
  weights->config = *info.layer;
  weights->hidden_layers = weights->is_third ? HiddenLayers(info, base) : std::vector<int32_t>{model::kAfterFinalNorm};
  return weights;
}

}  // namespace

constinit const HeadKind kEagleKind = {.name = "eagle",
                                       .config_key = nullptr,
                                       .layout_word = "layout",
                                       .layouts = kLayouts,
                                       .resolve = Resolve,
                                       .check_config = nullptr,
                                       .make = Make,
                                       .published = kPublished};

std::vector<HeadPlace> EagleWeights::Places() {
  std::vector<HeadPlace> places;
  const auto linear = [&](std::string_view role, model::Linear& target) {
    places.push_back({.role = role, .head = 0, .linear = &target, .layer_config = &config});
  };
  const auto vector = [&](std::string_view role, std::vector<float>& target) {
    places.push_back({.role = role, .head = 0, .vector = &target});
  };
  linear(kEagleFc, fc);
  if (info.rows->Find(kEagleLayer) != nullptr) {
    places.push_back({.role = kEagleLayer, .head = 0, .decoder_layer = &layer, .layer_config = &config});
    linear(kLmHead, head.lm_head);
    return places;
  }
  if (is_third) {
    vector(kInputNorm, layer.input_norm);
    vector(kHiddenNorm, hidden_norm);
  }
  linear(kQuery, layer.q);
  linear(kKey, layer.k);
  linear(kValue, layer.v);
  linear(kOutput, layer.o);
  vector(kPostNorm, layer.post_attention_norm);
  linear(kGate, layer.gate);
  linear(kUp, layer.up);
  linear(kDown, layer.down);
  if (is_third) vector(kNorm, norm);
  linear(is_third ? kSharedLmHead : kLmHead, head.lm_head);
  return places;
}

std::unique_ptr<Drafter> EagleWeights::IntoDrafter(const model::ModelWeights& base, kernels::Queue* queue) {
  return MakeEagle(std::move(*this), base, queue);
}

}  // namespace hydrant::draft
