// SPDX-License-Identifier: Apache-2.0
#include "draft/heads/mlp_speculator/mlp_speculator_weights.h"

#include <algorithm>
#include <array>
#include <cstring>
#include <string>
#include <utility>

#include "base/json.h"
#include "draft/heads/mlp_speculator/mlp_speculator.h"
#include "hydrant/error.h"

namespace hydrant::draft {
namespace {

using checkpoint::ShardAxis;

constexpr std::string_view kEmbedding = "embedding", kProjection = "projection", kNorm = "norm";
constexpr const char* kType = "mlp_speculator";
constexpr const char* kArchitecture = "MLPSpeculatorPreTrainedModel";
constexpr int64_t kMostStages = 64, kMostWidth = 1 << 20;

struct Names {
  const char *embedding, *projection, *norm, *head, *shared_head;
};

constexpr std::array<HeadTensor, 5> Rows(const Names& names) {
  return {HeadTensor{.role = kEmbedding,
                     .name = names.embedding,
                     .form = Form::kTable,
                     .outputs = Size::kVocabulary,
                     .inputs = Size::kStateSize,
                     .shard = ShardAxis::kVocabulary},
          HeadTensor{.role = kProjection,
                     .name = names.projection,
                     .outputs = Size::kStateSize,
                     .inputs = Size::kStateInputs,
                     .shard = ShardAxis::kOutputs},
          HeadTensor{.role = kNorm,
                     .name = names.norm,
                     .form = Form::kVector,
                     .outputs = Size::kStateSize,
                     .bias = Bias::kRequired},
          HeadTensor{.role = kLmHead,
                     .name = names.head,
                     .outputs = Size::kDraftRows,
                     .inputs = Size::kStateSize,
                     .shard = ShardAxis::kVocabulary},
          // Of tied stages.
          HeadTensor{.role = kSharedLmHead,
                     .name = names.shared_head,
                     .outputs = Size::kDraftRows,
                     .inputs = Size::kStateSize,
                     .shard = ShardAxis::kVocabulary}};
}

// As the Hugging Face wrapper of the authors' network saves it, and as their trainer does.
constexpr auto kReleased =
    Rows({"speculator.emb.#", "speculator.proj.#", "speculator.ln.#", "speculator.head.#", "speculator.head.0"});
constexpr auto kTrainers = Rows({"emb.#", "proj.#", "ln.#", "head.#", "head.0"});

constexpr HeadLayout kLayouts[] = {{.name = "speculator.*", .tensors = kReleased},
                                   {.name = "fms-extras", .tensors = kTrainers}};

// The roles whose tensors tied stages share.
constexpr std::array kRoles = {kEmbedding, kProjection, kNorm, kLmHead};

bool IsText(const base::JsonView& value, std::string_view text) { return value.is_string() && value.String() == text; }

bool Named(const base::JsonView* config) {
  if (config == nullptr || !config->is_object()) return false;
  if (config->Has("model_type") && IsText(config->At("model_type"), kType)) return true;
  if (!config->Has("architectures")) return false;
  const base::JsonView names = config->At("architectures");
  if (!names.is_array()) return IsText(names, kArchitecture);  // some trainers write the name alone
  for (size_t i = 0; i < names.Size(); ++i) {
    if (IsText(names.At(i), kArchitecture)) return true;
  }
  return false;
}

// Stages that have a tensor of this role.
int32_t CountStages(const checkpoint::TensorSource& tensors, const HeadLayout& layout, std::string_view role) {
  const std::string pattern = std::string(layout.Find(role)->name) + ".weight";
  int32_t count = 0;
  std::vector<int32_t> numbers;
  for (const auto& [name, tensor] : tensors.tensors()) {
    if (Match(name, pattern, numbers)) count = std::max(count, numbers.front() + 1);
  }
  return count;
}

int32_t CountStages(const checkpoint::TensorSource& tensors, const HeadLayout& layout) {
  int32_t count = 0;
  for (const std::string_view role : kRoles) count = std::max(count, CountStages(tensors, layout, role));
  return count;
}

// By its tensors; null: no MLP speculator.
const HeadLayout* LayoutOf(const checkpoint::TensorSource& tensors) {
  for (const HeadLayout& layout : kLayouts) {
    if (std::ranges::all_of(kRoles, [&](std::string_view role) { return CountStages(tensors, layout, role) > 0; })) {
      return &layout;
    }
  }
  return nullptr;
}

// Of a damaged file: the one with most names.
const HeadLayout* NearestLayout(const checkpoint::TensorSource& tensors) {
  return CountStages(tensors, kLayouts[1]) > CountStages(tensors, kLayouts[0]) ? &kLayouts[1] : &kLayouts[0];
}

bool SameTensor(const checkpoint::StoredTensor& a, const checkpoint::StoredTensor& b) {
  if (a.storage_id == b.storage_id) return true;
  if (a.packed || b.packed || a.view.dtype != b.view.dtype || a.view.shape != b.view.shape) return false;
  return std::memcmp(a.view.data, b.view.data, a.view.num_bytes()) == 0;
}

// Tied stages may be stored once or under every name. What repeats another tensor is not read.
void CollectRepeats(const checkpoint::TensorSource& tensors, HeadsInfo& info) {
  for (const std::string_view role : kRoles) {
    const int32_t first = role == kProjection ? 1 : 0;
    for (int32_t stage = first + 1; stage < info.num_heads; ++stage) {
      for (const char* suffix : {".weight", ".bias"}) {
        const std::string name = NameOf(info, role, stage, 0) + suffix;
        const std::string original = NameOf(info, role, first, 0) + suffix;
        const checkpoint::StoredTensor *repeat = tensors.Find(name), *stored = tensors.Find(original);
        if (repeat == nullptr || stored == nullptr) continue;  // without the first one the loader says so
        if (!SameTensor(*repeat, *stored)) {
          throw FileError(repeat->file, "tensor '" + name + "' differs from '" + original +
                                            "', expected the same numbers (" + info.config_file +
                                            " says \"tie_weights\": true)");
        }
        info.repeats.push_back(name);
      }
    }
  }
}

void CheckStages(const base::JsonView& config, int32_t stored, const HeadsInfo& info) {
  const bool is_tied = info.shared_lm_head;
  if (is_tied && info.num_heads < 2) {
    config.At("n_predict").Fail("at least 2", "a single stage has nothing to be tied to (\"tie_weights\": true)");
  }
  if (is_tied ? stored <= info.num_heads : stored == info.num_heads) return;
  config.At("n_predict")
      .Fail(std::to_string(stored) + ", the stages that " + info.weights_file + " holds",
            stored < info.num_heads ? "stages that share their weights need \"tie_weights\": true" : "");
}

void ReadConfig(const base::JsonView& config, const checkpoint::TensorSource& tensors, HeadsInfo& info) {
  const auto bool_of = [&config](const char* key) { return config.Has(key) && config.At(key).Bool(); };
  const auto size_of = [&config](const char* key, int64_t most) {
    return config.Has(key) ? config.At(key).Int(0, most) : 0;
  };
  model::ModelConfig sizes;
  sizes.file = info.config_file;
  sizes.hidden_size = size_of("emb_dim", kMostWidth);
  sizes.vocab_size = size_of("vocab_size", INT32_MAX);
  sizes.intermediate_size = size_of("inner_dim", kMostWidth);
  info.layer = std::make_shared<const model::ModelConfig>(sizes);
  info.num_heads = static_cast<int32_t>(config.At("n_predict").Int(1, kMostStages));
  info.scale_input = bool_of("scale_input");
  info.shared_lm_head = bool_of("tie_weights");
  info.own_lm_heads = !info.shared_lm_head;
  CheckStages(config, CountStages(tensors, *info.rows), info);
  if (info.shared_lm_head) CollectRepeats(tensors, info);
  const int64_t state_size = sizes.intermediate_size > 0 ? sizes.intermediate_size : sizes.hidden_size;
  info.facts = {{"emb_dim", sizes.hidden_size},
                {"inner_dim", state_size},
                {"vocab_size", sizes.vocab_size},
                {"scale_input", info.scale_input},
                {"tie_weights", info.shared_lm_head}};
}

bool Resolve(const checkpoint::TensorSource& tensors, const base::JsonView* config, HeadsInfo& info) {
  info.rows = LayoutOf(tensors);
  if (info.rows == nullptr && Named(config)) info.rows = NearestLayout(tensors);
  if (info.rows == nullptr) return false;
  info.layout = info.rows->name;
  info.name = kType;
  info.num_layers = 1;
  info.sequentially_dependent = info.grows_trees = true;
  info.block_bias = false;
  info.num_heads = CountStages(tensors, *info.rows);
  if (config != nullptr) ReadConfig(*config, tensors, info);
  return true;
}

void CheckSize(const HeadsInfo& info, const char* key, int64_t found, const char* name, int64_t expected,
               const model::ModelConfig& base) {
  if (found == 0 || found == expected) return;
  throw FileError(info.config_file, std::string("'") + key + "' is " + std::to_string(found) +
                                        ", expected the base's " + name + " " + std::to_string(expected) + " (" +
                                        base.file + ")");
}

std::unique_ptr<HeadWeights> Make(const HeadsFile& file, const model::ModelConfig& base) {
  const HeadsInfo& info = file.info;
  if (info.layer == nullptr) {
    throw FileError(info.weights_file, "holds an MLP speculator, but there is no config.json beside it",
                    "put the config.json that was published with the speculator into the same folder");
  }
  CheckSize(info, "emb_dim", info.layer->hidden_size, "hidden_size", base.hidden_size, base);
  CheckSize(info, "vocab_size", info.layer->vocab_size, "vocab_size", base.vocab_size, base);
  auto weights = std::make_unique<MlpSpeculatorWeights>(info);
  if (weights->config.intermediate_size == 0) weights->config.intermediate_size = base.hidden_size;
  return weights;
}

// The sizes of ibm-ai-platform/llama3-8b-accelerator: "3_2b" in fms-extras.
HeadsInfo AsPublished() {
  model::ModelConfig sizes;
  sizes.intermediate_size = 3072;
  HeadsInfo info;
  info.kind = &kMlpSpeculatorKind;
  info.rows = &kLayouts[0];
  info.layout = info.rows->name;
  info.name = kType;
  info.num_heads = 4;
  info.num_layers = 1;
  info.sequentially_dependent = true;
  info.layer = std::make_shared<const model::ModelConfig>(sizes);
  return info;
}

constexpr PublishedHeads kPublished[] = {{kType, AsPublished}};

}  // namespace

constinit const HeadKind kMlpSpeculatorKind = {.name = kType,
                                               .config_key = nullptr,
                                               .layout_word = "layout",
                                               .layouts = kLayouts,
                                               .resolve = Resolve,
                                               .check_config = nullptr,
                                               .make = Make,
                                               .published = kPublished};

MlpSpeculatorWeights::MlpSpeculatorWeights(const HeadsInfo& heads_info) : config(*heads_info.layer) {
  info = heads_info;
  const size_t stages = info.shared_lm_head ? 1 : static_cast<size_t>(info.num_heads);
  embeddings.resize(stages);
  norms.resize(stages);
  heads.resize(stages);
  projections.resize(info.shared_lm_head ? 2 : stages);
}

std::vector<HeadPlace> MlpSpeculatorWeights::Places() {
  const auto place_of = [this](std::string_view role, size_t stage) {
    return HeadPlace{.role = role, .head = static_cast<int32_t>(stage), .layer_config = &config};
  };
  std::vector<HeadPlace> places;
  for (size_t s = 0; s < projections.size(); ++s) {
    places.push_back(place_of(kProjection, s));
    places.back().linear = &projections[s];
    if (s >= heads.size()) continue;
    places.push_back(place_of(kEmbedding, s));
    places.back().table = &embeddings[s];
    places.push_back(place_of(kNorm, s));
    places.back().vector = &norms[s].scale;
    places.back().vector_bias = &norms[s].shift;
    places.push_back(place_of(info.shared_lm_head ? kSharedLmHead : kLmHead, s));
    places.back().linear = &heads[s].lm_head;
  }
  return places;
}

MlpSpeculatorWeights::Stage MlpSpeculatorWeights::StageAt(int32_t depth) const {
  const size_t stage = std::min(static_cast<size_t>(depth), heads.size() - 1);
  const size_t projection = std::min(static_cast<size_t>(depth), projections.size() - 1);
  return {.embedding = &embeddings[stage],
          .projection = &projections[projection],
          .norm = &norms[stage],
          .head = &heads[stage]};
}

std::unique_ptr<Drafter> MlpSpeculatorWeights::IntoDrafter(const model::ModelWeights& base, kernels::Queue* queue) {
  return MakeMlpSpeculator(std::move(*this), base, queue);
}

}  // namespace hydrant::draft
