// SPDX-License-Identifier: Apache-2.0
#include "draft/heads/redrafter_weights.h"

#include <algorithm>
#include <array>
#include <string>
#include <utility>

#include "base/json.h"
#include "draft/heads/redrafter.h"
#include "hydrant/error.h"

namespace hydrant::draft {
namespace {

using checkpoint::ShardAxis;

using namespace redrafter;  // roles
constexpr int64_t kMostLayers = 64, kMostColumns = int64_t{1} << 24;

constexpr HeadTensor Matrix(std::string_view role, const char* name, Size outputs, Size inputs, Bias bias) {
  return {.role = role,
          .name = name,
          .outputs = outputs,
          .inputs = inputs,
          .bias = bias,
          .shard = role == kLmHead ? ShardAxis::kVocabulary : ShardAxis::kOutputs};
}

// Apple's code calls the stack "lm_head" and its input "input_proj"; the converter of TensorRT-LLM takes each of them
// under other names too. The port to MLX may save a norm that it does not use.
constexpr std::array<HeadTensor, 6> Rows(const char* block, const char* lm_head, const char* projection) {
  return {Matrix(kToken, "rnn_w", Size::kHiddenSize, Size::kHiddenSize, Bias::kNone),
          Matrix(kState, "rnn_u", Size::kHiddenSize, Size::kHiddenSize, Bias::kRequired),
          Matrix(kProjection, projection, Size::kExit, Size::kTwoHidden, Bias::kRequired),
          Matrix(kBlock, block, Size::kExit, Size::kExit, Bias::kRequired),
          Matrix(kLmHead, lm_head, Size::kDraftRows, Size::kExit, Bias::kNone),
          {.role = "unused", .name = "emb_norm.weight", .form = Form::kUnused}};
}

constexpr const char *kProj = "input_proj", *kProjs = "input_projs";
constexpr auto kApple = Rows("lm_head.%.linear", "lm_head.%", kProj);
constexpr auto kAppleProjs = Rows("lm_head.%.linear", "lm_head.%", kProjs);
constexpr auto kHeads = Rows("lm_heads.%.linear", "lm_heads.%", kProj);
constexpr auto kHeadsProjs = Rows("lm_heads.%.linear", "lm_heads.%", kProjs);
constexpr auto kNumbered = Rows("0.%.linear", "0.%", kProj);
constexpr auto kNumberedProjs = Rows("0.%.linear", "0.%", kProjs);

// Two for each name of the stack: by the name of its input.
constexpr HeadLayout kLayouts[] = {
    {.name = "lm_head", .tensors = kApple},  {.name = "lm_head", .tensors = kAppleProjs},
    {.name = "lm_heads", .tensors = kHeads}, {.name = "lm_heads", .tensors = kHeadsProjs},
    {.name = "0", .tensors = kNumbered},     {.name = "0", .tensors = kNumberedProjs}};

// What the names of a file say of its stack.
struct Stack {
  const HeadLayout* layout = nullptr;
  int32_t num_blocks = 0;
};

Stack StackOf(const checkpoint::TensorSource& tensors) {
  const bool projs = tensors.Find("input_projs.weight") != nullptr;
  std::vector<int32_t> numbers;
  for (size_t i = projs ? 1 : 0; i < std::size(kLayouts); i += 2) {
    const std::string block = std::string(kLayouts[i].Find(kBlock)->name) + ".weight";
    const std::string lm_head = std::string(kLayouts[i].Find(kLmHead)->name) + ".weight";
    Stack stack;
    for (const auto& [name, tensor] : tensors.tensors()) {
      const bool is_block = Match(name, block, numbers);
      if (!is_block && !Match(name, lm_head, numbers)) continue;
      stack.layout = &kLayouts[i];
      if (is_block) stack.num_blocks = std::max(stack.num_blocks, numbers.front() + 1);
    }
    if (stack.layout != nullptr) return stack;
  }
  return {.layout = &kLayouts[projs ? 1 : 0]};
}

bool IsRedrafter(const checkpoint::TensorSource& tensors, const base::JsonView* config) {
  if (config != nullptr && config->Has("exit_dim") && config->Has("num_draft_layers")) return true;
  // Without a config: by names that no other kind has.
  std::vector<int32_t> numbers;
  return std::ranges::any_of(tensors.tensors(), [&](const auto& entry) {
    const std::string& name = entry.first;
    return name.starts_with("rnn_u.") || name.starts_with("rnn_w.") ||
           Match(name, "lm_head.#.linear.weight", numbers) || Match(name, "lm_heads.#.linear.weight", numbers);
  });
}

// DrafterConfig. 'num_lookback_tokens' is for training alone.
void ReadConfig(const base::JsonView& config, HeadsInfo& info) {
  info.exit_size = config.At("exit_dim").Int(1, kMostColumns);
  info.num_layers = static_cast<int32_t>(config.At("num_draft_layers").Int(0, kMostLayers));
  info.is_recurrent = config.At("rnn").Bool();
  info.vocab_size = config.At("vocab_size").Int(1, kMostColumns);
  info.hidden_size = config.At("hidden_size").Int(1, kMostColumns);
}

bool Resolve(const checkpoint::TensorSource& tensors, const base::JsonView* config, HeadsInfo& info) {
  if (!IsRedrafter(tensors, config)) return false;
  const Stack stack = StackOf(tensors);
  info.rows = stack.layout;
  info.layout = info.rows->name;
  info.name = "redrafter";
  info.num_heads = 1;
  info.num_layers = stack.num_blocks;
  info.sequentially_dependent = info.grows_trees = true;
  if (config != nullptr) ReadConfig(*config, info);
  if (info.num_layers != stack.num_blocks) {
    throw FileError(info.config_file, "'num_draft_layers' is " + std::to_string(info.num_layers) + ", expected " +
                                          std::to_string(stack.num_blocks) + ", the layers that " + info.weights_file +
                                          " holds");
  }
  if (config == nullptr) return true;
  info.facts.emplace_back("exit_dim", info.exit_size);
  info.facts.emplace_back("rnn", info.is_recurrent);
  return true;
}

void CheckSize(const HeadsInfo& info, const char* key, int64_t found, int64_t expected, const std::string& base) {
  if (found == expected) return;
  throw FileError(info.config_file, "'" + std::string(key) + "' is " + std::to_string(found) +
                                        ", expected the base's " + std::to_string(expected) + " (" + base + ")");
}

std::unique_ptr<HeadWeights> Make(const HeadsFile& file, const model::ModelConfig& base) {
  const HeadsInfo& info = file.info;
  if (file.tensors != nullptr) {
    if (info.config_file.empty()) {
      throw FileError(info.weights_file, "holds ReDrafter heads, but there is no config.json beside it",
                      "put the config.json that was published with the heads into the same folder");
    }
    CheckSize(info, "hidden_size", info.hidden_size, base.hidden_size, base.file);
    CheckSize(info, "vocab_size", info.vocab_size, base.vocab_size, base.file);
  }
  return std::make_unique<RedrafterWeights>(info, base.hidden_size);
}

// As Apple trained it for Vicuna 7B.
HeadsInfo Published() {
  HeadsInfo info;
  info.kind = &kRedrafterKind;
  info.rows = &kLayouts[0];
  info.name = "redrafter";
  info.num_heads = 1;
  info.num_layers = 2;
  info.sequentially_dependent = true;
  return info;
}

constexpr PublishedHeads kPublished[] = {{"redrafter", Published}};

}  // namespace

constinit const HeadKind kRedrafterKind = {.name = "redrafter",
                                           .config_key = nullptr,
                                           .layout_word = "layout",
                                           .layouts = kLayouts,
                                           .resolve = Resolve,
                                           .check_config = nullptr,
                                           .make = Make,
                                           .published = kPublished};

RedrafterWeights::RedrafterWeights(const HeadsInfo& heads, int64_t hidden_size)
    : exit_size(heads.exit_size > 0 ? heads.exit_size : 2 * hidden_size), has_projection(exit_size != 2 * hidden_size) {
  info = heads;
  head.blocks.resize(static_cast<size_t>(info.num_layers));
}

std::vector<HeadPlace> RedrafterWeights::Places() {
  std::vector<HeadPlace> places;
  const auto add = [&](std::string_view role, int32_t layer, model::Linear& linear) {
    places.push_back({.role = role, .head = 0, .layer = layer, .linear = &linear});
  };
  if (info.is_recurrent) {
    add(kToken, 0, token);
    add(kState, 0, state);
  }
  if (has_projection) add(kProjection, 0, projection);
  for (size_t b = 0; b < head.blocks.size(); ++b) add(kBlock, static_cast<int32_t>(b), head.blocks[b]);
  add(kLmHead, info.num_layers, head.lm_head);
  return places;
}

std::unique_ptr<Drafter> RedrafterWeights::IntoDrafter(const model::ModelWeights& base, kernels::Queue* queue) {
  return MakeRedrafter(std::move(*this), base, queue);
}

}  // namespace hydrant::draft
