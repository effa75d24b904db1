// SPDX-License-Identifier: Apache-2.0
#include "draft/heads/hydra_weights.h"

#include <array>
#include <set>
#include <string>
#include <utility>

#include "base/json.h"
#include "draft/heads/cross_attn_weights.h"
#include "draft/heads/eagle_weights.h"
#include "draft/heads/hydra.h"
#include "draft/heads/medusa_weights.h"
#include "hydrant/error.h"
#include "model/contradictions.h"

namespace hydrant::draft {
namespace {

using checkpoint::ShardAxis;

constexpr int32_t kMostLayers = 64;

constexpr HeadTensor Block(const char* name, const char* note = "") {
  return {.role = kBlock,
          .name = name,
          .outputs = Size::kHiddenSize,
          .inputs = Size::kHiddenSize,
          .bias = Bias::kRequired,
          .shard = ShardAxis::kOutputs,
          .note = note};
}

constexpr HeadTensor FirstBlock(std::string_view role, const char* name) {
  return {.role = role,
          .name = name,
          .outputs = Size::kHiddenSize,
          .inputs = Size::kFirstInputs,
          .bias = Bias::kRequired,
          .shard = ShardAxis::kOutputs};
}

constexpr HeadTensor LmHead(const char* name) {
  return {.role = kLmHead,
          .name = name,
          .outputs = Size::kDraftRows,
          .inputs = Size::kHiddenSize,
          .bias = Bias::kRequired,
          .shard = ShardAxis::kVocabulary};
}

constexpr HeadTensor PrefixLayer(const char* name) {
  return {.role = kPrefixLayer, .name = name, .form = Form::kDecoderLayer};
}

constexpr HeadTensor PrefixNorm(const char* name) {
  return {.role = kPrefixNorm, .name = name, .form = Form::kVector, .outputs = Size::kHiddenSize};
}

constexpr HeadTensor Unused(const char* name) { return {.role = "unused", .name = name, .form = Form::kUnused}; }

constexpr const char* kSeesHiddenAlone = "ungrounded heads see the hidden state alone";

// As the authors write them.
constexpr const char *kBlockName = "hydra_mlp.#.#.linear", *kResidualName = "hydra_mlp.#.#.res_connection";
constexpr HeadTensor kMlp[] = {FirstBlock(kFirstLinear, kBlockName), FirstBlock(kFirstResidual, kResidualName),
                               Block(kBlockName), LmHead("hydra_lm_head.#")};
constexpr HeadTensor kUngrounded[] = {Block(kBlockName, kSeesHiddenAlone), LmHead("hydra_lm_head.#")};
constexpr HeadTensor kPrefixMlp[] = {FirstBlock(kFirstLinear, kBlockName),
                                     FirstBlock(kFirstResidual, kResidualName),
                                     Block(kBlockName),
                                     LmHead("hydra_lm_head.#.1"),
                                     PrefixLayer("prefix_embeding_layer.layers.0."),
                                     PrefixNorm("prefix_embeding_layer.norm"),
                                     Unused("prefix_embeding_layer.embed_tokens.weight"),
                                     Unused("prefix_embeding_layer.layers.0.self_attn.rotary_emb.inv_freq")};

// One module for every depth, on the base's lm head, whose copy is in the file.
constexpr HeadTensor kEagleAttn[] = {{.role = kEagleFc,
                                      .name = "fc",
                                      .outputs = Size::kHiddenSize,
                                      .inputs = Size::kTwoHidden,
                                      .bias = Bias::kRequired,
                                      .shard = ShardAxis::kOutputs,
                                      .note = "the embedding, then the hidden state"},
                                     {.role = kEagleLayer, .name = "attn.", .form = Form::kDecoderLayer}};

constexpr HeadTensor LayerMatrix(std::string_view role, const char* name, Size outputs, Size inputs, ShardAxis shard) {
  return {.role = role, .name = name, .outputs = outputs, .inputs = inputs, .shard = shard};
}

constexpr HeadTensor LayerNorm(std::string_view role, const char* name) {
  return {.role = role, .name = name, .form = Form::kVector, .outputs = Size::kHiddenSize};
}

constexpr HeadTensor kCrossAttn[] = {
    LayerMatrix(kCrossQuery, "cross_attn.q_proj", Size::kQueryRows, Size::kHiddenSize, ShardAxis::kOutputs),
    LayerMatrix(kCrossKey, "cross_attn.k_proj", Size::kKeyRows, Size::kHiddenSize, ShardAxis::kOutputs),
    LayerMatrix(kCrossValue, "cross_attn.v_proj", Size::kKeyRows, Size::kHiddenSize, ShardAxis::kOutputs),
    LayerMatrix(kCrossOutput, "cross_attn.o_proj", Size::kHiddenSize, Size::kQueryRows, ShardAxis::kInputs),
    LayerMatrix(kCrossGate, "mlp.gate_proj", Size::kInnerSize, Size::kHiddenSize, ShardAxis::kOutputs),
    LayerMatrix(kCrossUp, "mlp.up_proj", Size::kInnerSize, Size::kHiddenSize, ShardAxis::kOutputs),
    LayerMatrix(kCrossDown, "mlp.down_proj", Size::kHiddenSize, Size::kInnerSize, ShardAxis::kInputs),
    LayerNorm(kCrossInputNorm, "input_layernorm"),
    LayerNorm(kCrossPostNorm, "post_attention_layernorm"),
    Unused("cross_attn.rotary_emb.inv_freq")};

// As the port of Hydra++ to TensorRT-LLM names them (docs/formats.md); it has no heads without a prefix layer, whose
// names are ours after its own.
constexpr const char* kRankBlock = "hydra_heads.#.hydra_mlps.#.linear";
constexpr HeadTensor kRankFirst = FirstBlock(kFirstLinear, "hydra_heads.#.hydra_mlp.linear");
constexpr HeadTensor kRankResidual = FirstBlock(kFirstResidual, "hydra_heads.#.hydra_mlp.res_connection");
constexpr HeadTensor kRankLmHead = LmHead("hydra_heads.#.hydra_lm_head");
constexpr HeadTensor kRankMlp[] = {kRankFirst, kRankResidual, Block(kRankBlock), kRankLmHead};
constexpr HeadTensor kRankUngrounded[] = {Block(kRankBlock, kSeesHiddenAlone), kRankLmHead};
constexpr HeadTensor kRankPrefixMlp[] = {kRankFirst,
                                         kRankResidual,
                                         Block(kRankBlock),
                                         kRankLmHead,
                                         PrefixLayer("prefix_embedding_layer.layer."),
                                         PrefixNorm("prefix_embedding_layer.norm")};

// Dropout takes the even places of prefix-mlp's Sequential. In rank files the first block has a name of its own, and
// those after it are counted from 0.
constexpr HeadLayout kLayouts[] = {
    {.name = "mlp", .tensors = kMlp, .spelling = "hydra"},
    {.name = "prefix-mlp", .tensors = kPrefixMlp, .first_place = 1, .place_step = 2, .spelling = "hydra"},
    {.name = "mlp", .tensors = kUngrounded, .spelling = "hydra"},
    {.name = "mlp", .tensors = kRankMlp, .first_place = -1, .is_alone = false, .spelling = kRankSpelling},
    {.name = "prefix-mlp", .tensors = kRankPrefixMlp, .first_place = -1, .is_alone = false, .spelling = kRankSpelling},
    {.name = "mlp", .tensors = kRankUngrounded, .is_alone = false, .spelling = kRankSpelling},
    {.name = "eagle-attn", .tensors = kEagleAttn, .spelling = "hydra", .may_lack_lm_heads = true},
    {.name = "cross-attn", .tensors = kCrossAttn, .spelling = "hydra", .may_lack_lm_heads = true}};
constexpr const HeadLayout &kMlpLayout = kLayouts[0], &kPrefixLayout = kLayouts[1], &kUngroundedLayout = kLayouts[2],
                           &kEagleLayout = kLayouts[6], &kCrossLayout = kLayouts[7];

// Their keys count no heads: one module drafts every depth.
bool IsOneModule(const HeadLayout& layout) { return &layout == &kEagleLayout || &layout == &kCrossLayout; }

bool HasPrefixLayer(const HeadLayout& layout) { return layout.Find(kPrefixLayer) != nullptr; }

// What the names of the heads' only attention begin with; empty: they have none.
std::string AttentionName(const HeadsInfo& info) {
  for (const std::string_view role : {kPrefixLayer, kEagleLayer}) {
    if (info.rows->Find(role) != nullptr) return NameOf(info, role, 0, 0) + "self_attn.";
  }
  return info.rows == &kCrossLayout ? "cross_attn." : "";
}

bool HasAny(const checkpoint::TensorSource& tensors, std::string_view begin) {
  const auto first = tensors.tensors().lower_bound(begin);
  return first != tensors.tensors().end() && first->first.starts_with(begin);
}

bool AreRanks(const checkpoint::TensorSource& tensors) { return HasAny(tensors, "hydra_heads."); }

// Of grounded heads, in the authors' spelling.
const HeadLayout& LayoutOf(const base::JsonView& config) {
  const base::JsonView arch = config.At("hydra_head_arch");
  const std::string name = arch.String();
  for (const HeadLayout* layout : {&kMlpLayout, &kPrefixLayout, &kEagleLayout, &kCrossLayout}) {
    if (name == layout->name) return *layout;
  }
  arch.Fail("\"mlp\", \"prefix-mlp\", \"eagle-attn\" or \"cross-attn\"",
            "this version does not know heads of this architecture");
}

void CheckConfig(const base::JsonView& config) { static_cast<void>(LayoutOf(config)); }

// Layers by the keys. A safetensors file without the tied names (and without metadata that says so) holds the input
// block and one more; then the config's count stands, since released trainers repeat that one block (docs/formats.md).
int32_t LayersOf(const HeadLayout& layout, const HeadCounts& counts, const base::JsonView& config, HeadsInfo& info) {
  const int32_t by_keys = (counts.max_place - layout.first_place) / layout.place_step + 1;
  const bool drops_tied_names = info.weights_file.ends_with(".safetensors");
  if (config.Has("hydra_num_layers")) {
    const auto stated = static_cast<int32_t>(config.At("hydra_num_layers").Int(1, kMostLayers));
    if (drops_tied_names && by_keys == 2 && stated > 2) return stated;
    WarnIfDifferent(config, "hydra_num_layers", by_keys, info);
  }
  return by_keys;
}

void ReadExtension(const base::JsonView& config, HeadsInfo& info) {
  if (!config.Has("hydra_ext")) return;
  const base::JsonView ext = config.At("hydra_ext");
  if (!ext.is_object()) ext.Fail("an object");
  // Options that change the mathematics belong to an architecture of their own; prefix-mlp takes these two.
  const std::set<std::string, std::less<>> neutral{"version", "base_bits", "template_hash", "vocab_hash"};
  for (const auto& [key, value] : ext.raw().items()) {
    if (key == "rope_theta") {
      info.rope_theta = ext.At(key).Number();
      if (info.rope_theta < 1) ext.At(key).Fail("a number of at least 1");
    } else if (key == "num_key_value_heads") {
      info.num_kv_heads = ext.At(key).Int(1, 1 << 20);
    } else if (!neutral.contains(key)) {
      ext.At(key).Fail(
          "to be absent (this version runs published Hydra++ heads with 'rope_theta' and "
          "'num_key_value_heads' only)");
    }
  }
}

// What the config says, or whether the first head's input block has a residual connection.
bool IsGrounded(const checkpoint::TensorSource& tensors, const base::JsonView& config, const HeadsInfo& info) {
  const bool grounded = config.Has("grounded_heads")
                            ? config.At("grounded_heads").Bool()
                            : tensors.Find(NameOf(info, kFirstResidual, 0, 0) + ".weight") != nullptr;
  if (HasPrefixLayer(*info.rows) && !grounded) {
    config.At("grounded_heads")
        .Fail("true (ungrounded prefix-mlp heads are not supported by their authors' code either)");
  }
  return grounded;
}

// Warns where the stored rotary table of the heads' layer is not that of its rope base. The table's length gives the
// head size, since the heads' config does not.
void WarnOfRotaryTable(const checkpoint::TensorSource& tensors, HeadsInfo& info) {
  const std::string prefix = AttentionName(info);
  const auto* table = tensors.Find(prefix + "rotary_emb.inv_freq");
  if (table == nullptr) return;
  const model::RopeConfig rope{.theta = info.rope_theta};
  const std::string says = "rope base " + base::DumpJson(info.rope_theta) + " ('hydra_ext.rope_theta', else 10000)";
  const std::string text = model::RotaryWarning(tensors, prefix, rope, 2 * table->view.num_elements(), says);
  if (!text.empty()) info.warnings.push_back(text);
}

// What the config names; rank files of another tool say by their tensors whether they hold a prefix layer.
const HeadLayout& LayoutOf(const checkpoint::TensorSource& tensors, const base::JsonView& config) {
  if (config.Has("hydra_head_arch") || !AreRanks(tensors)) return LayoutOf(config);
  return HasAny(tensors, "prefix_embedding_layer.") ? kPrefixLayout : kMlpLayout;
}

// The authors build such a module once and with one layer, whatever the config counts; other counts are those of
// another trainer, whose drafts would be others.
void FillOneModule(const HeadLayout& layout, const base::JsonView& config, HeadsInfo& info) {
  const std::string heads = std::string(layout.name) + " heads";
  for (const char* key : {"hydra_num_heads", "hydra_num_layers"}) {
    if (!config.Has(key) || config.At(key).Int(0, 1 << 20) == 1) continue;
    config.At(key).Fail("1 (" + heads + " are one module of one layer, which drafts every depth)");
  }
  if (config.Has("grounded_heads") && !config.At("grounded_heads").Bool()) {
    config.At("grounded_heads").Fail("true (" + heads + " have no ungrounded form)");
  }
  info.rows = &layout;
  info.name = "hydra-" + std::string(layout.name);
  info.grows_trees = true;
  info.num_heads = info.num_layers = 1;
  info.sequentially_dependent = true;
  info.own_lm_heads = false;
}

void FillLayout(const checkpoint::TensorSource& tensors, const base::JsonView& config, HeadsInfo& info) {
  const HeadLayout& layout = LayoutOf(tensors, config);
  info.layout = layout.name;
  if (IsOneModule(layout)) return FillOneModule(layout, config, info);
  const char* spelling = AreRanks(tensors) ? kRankSpelling : layout.spelling;
  info.rows = Respelled(kHydraKind, layout, spelling);
  info.name = HasPrefixLayer(layout) ? "hydra++" : "hydra";
  info.sequentially_dependent = IsGrounded(tensors, config, info);
  if (!info.sequentially_dependent) info.rows = Respelled(kHydraKind, kUngroundedLayout, spelling);
}

void CountLayers(const checkpoint::TensorSource& tensors, const base::JsonView& config, HeadsInfo& info) {
  const HeadCounts counts = CountHeads(tensors, *info.rows);
  info.num_heads = counts.heads;
  if (counts.heads == 0 || counts.max_place < info.rows->first_place) {
    throw FileError(info.weights_file, "holds no tensor '" + NameOf(info, kBlock, 0, 0) + ".weight', which " +
                                           info.config_file + " ('hydra_head_arch': \"" + info.rows->name +
                                           "\") calls for");
  }
  info.num_layers = LayersOf(*info.rows, counts, config, info);
  info.lm_head_bias = true;
  for (const char* key : {"hydra_num_heads", "num_hydra_heads"}) WarnIfDifferent(config, key, info.num_heads, info);
  WarnIfDifferent(config, "num_hydra_layers", info.num_layers, info);
}

void FillInfo(const checkpoint::TensorSource& tensors, const base::JsonView& config, HeadsInfo& info) {
  FillLayout(tensors, config, info);
  if (!IsOneModule(*info.rows)) CountLayers(tensors, config, info);
  if (config.Has("hidden_state_offset")) info.hidden_layer_offset = config.At("hidden_state_offset").Int(0, 4096);
  ReadExtension(config, info);
  WarnOfRotaryTable(tensors, info);
  if (HasPrefixLayer(*info.rows)) info.facts.emplace_back("prefix_rope_theta", info.rope_theta);
  if (IsOneModule(*info.rows)) info.facts.emplace_back("rope_theta", info.rope_theta);
}

bool Resolve(const checkpoint::TensorSource& tensors, const base::JsonView* config, HeadsInfo& info) {
  const bool has_arch = config != nullptr && config->Has("hydra_head_arch");
  // Without the key, too, a name of the authors' says whose heads they are.
  const bool has_name =
      HasAny(tensors, "hydra_mlp.") || HasAny(tensors, "attn.self_attn.") || HasAny(tensors, "cross_attn.");
  if (!has_name && !AreRanks(tensors) && !has_arch) return false;
  if (config == nullptr || (!has_arch && !AreRanks(tensors))) {
    throw FileError(info.weights_file,
                    "holds Hydra heads, but there is no config.json with 'hydra_head_arch' beside it",
                    "put the config.json that was published with the heads into the same folder");
  }
  FillInfo(tensors, *config, info);
  return true;
}

// A Llama layer of the base's sizes without biases or norms of heads; rope base 10000 and no rope scaling as published,
// whatever the base model uses (docs/formats.md). Published files have as many key heads as query heads; a file trained
// on a grouped-query base may have the base's number: config.json may say so ('hydra_ext.num_key_value_heads'), else
// the key projection decides.
model::ModelConfig LayerConfig(const HeadsFile& file, const model::ModelConfig& base) {
  model::ModelConfig config = base;
  config.qkv_bias = config.o_bias = config.mlp_bias = config.qk_norm = false;
  config.sliding_window = 0;
  config.rope = {};
  config.rope.theta = file.info.rope_theta;
  config.num_kv_heads = base.num_heads;
  const auto* k = file.tensors == nullptr ? nullptr : file.tensors->Find(AttentionName(file.info) + "k_proj.weight");
  if (k != nullptr && !k->shape().empty() && k->shape()[0] == base.num_kv_heads * base.head_dim) {
    config.num_kv_heads = base.num_kv_heads;
  }
  if (file.info.num_kv_heads > 0) config.num_kv_heads = file.info.num_kv_heads;
  if (config.num_kv_heads > 0 && base.num_heads % config.num_kv_heads != 0) {
    throw FileError(file.info.config_file,
                    "'hydra_ext.num_key_value_heads' is " + std::to_string(file.info.num_kv_heads) +
                        ", expected a divisor of the base's " + std::to_string(base.num_heads) + " heads");
  }
  return config;
}

std::unique_ptr<HeadWeights> Make(const HeadsFile& file, const model::ModelConfig& base) {
  if (!file.info.sequentially_dependent) return std::make_unique<MedusaWeights>(file.info);
  if (file.info.rows == &kEagleLayout) {
    auto weights = std::make_unique<EagleWeights>(file.info);
    weights->config = LayerConfig(file, base);
    weights->hidden_layers = {WantedLayer(file.info, base)};
    return weights;
  }
  if (file.info.rows == &kCrossLayout) {
    auto weights = std::make_unique<CrossAttnWeights>(file.info);
    weights->config = LayerConfig(file, base);
    return weights;
  }
  auto weights = std::make_unique<HydraWeights>(file.info);
  if (HasPrefixLayer(*file.info.rows)) {
    weights->prefix = std::make_unique<PrefixWeights>();
    weights->prefix->config = LayerConfig(file, base);
  }
  return weights;
}

HeadsInfo PublishedHydra() {
  HeadsInfo info;
  info.kind = &kHydraKind;
  info.rows = &kMlpLayout;
  info.name = "hydra";
  info.num_heads = 4;
  info.num_layers = 1;
  info.sequentially_dependent = info.lm_head_bias = true;
  return info;
}

HeadsInfo PublishedHydraPlusPlus() {
  HeadsInfo info = PublishedHydra();
  info.rows = &kPrefixLayout;
  info.name = "hydra++";
  info.num_layers = 4;
  info.tied_blocks = true;
  return info;
}

constexpr PublishedHeads kPublished[] = {{"hydra", PublishedHydra}, {"hydra++", PublishedHydraPlusPlus}};

}  // namespace

constinit const HeadKind kHydraKind = {.name = "hydra",
                                       .config_key = "hydra_head_arch",
                                       .layout_word = "architecture",
                                       .layouts = kLayouts,
                                       .resolve = Resolve,
                                       .check_config = CheckConfig,
                                       .make = Make,
                                       .published = kPublished};

HydraWeights::HydraWeights(const HeadsInfo& heads_info) : heads(static_cast<size_t>(heads_info.num_heads)) {
  info = heads_info;
  for (size_t h = 0; h < heads.size(); ++h) {
    heads[h].linear.resize(h + 2);
    heads[h].residual.resize(h + 2);
    heads[h].rest.blocks.resize(static_cast<size_t>(info.num_layers - 1));
  }
}

std::vector<HeadPlace> HydraWeights::Places() {
  std::vector<HeadPlace> places;
  for (size_t h = 0; h < heads.size(); ++h) {
    const auto number = static_cast<int32_t>(h);
    places.push_back({.role = kFirstLinear, .head = number, .slices = &heads[h].linear});
    places.push_back({.role = kFirstResidual, .head = number, .slices = &heads[h].residual});
    AddPlaces(heads[h].rest, info, number, 1, places);
  }
  if (!prefix) return places;
  places.push_back({.role = kPrefixLayer, .decoder_layer = &prefix->layer, .layer_config = &prefix->config});
  places.push_back({.role = kPrefixNorm, .vector = &prefix->norm});
  return places;
}

std::unique_ptr<Drafter> HydraWeights::IntoDrafter(const model::ModelWeights& base, kernels::Queue* queue) {
  return MakeHydra(std::move(*this), base, queue);
}

}  // namespace hydrant::draft
