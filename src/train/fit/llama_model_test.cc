// SPDX-License-Identifier: Apache-2.0
#include "train/fit/llama_model.h"

#include <ATen/CPUGeneratorImpl.h>
#include <gtest/gtest.h>
#include <torch/csrc/autograd/autograd.h>

#include <filesystem>
#include <memory>
#include <string>
#include <vector>

#include "checkpoint/safetensors_writer.h"
#include "hydrant/error.h"
#include "load/loaded_model.h"
#include "model/decoder.h"
#include "tests/test_data.h"
#include "train/base_states.h"
#include "train/fit/lm_loss.h"

namespace hydrant::train::llama_model_test {
namespace {

std::unique_ptr<load::LoadedModel> Load(const std::string& folder) {
  EngineOptions options;
  options.model = folder;
  options.load_tokenizer = false;
  options.threads = 1;
  return load::LoadModel(options);
}

std::vector<int32_t> SomeTokens(int32_t count, int32_t seed) {
  std::vector<int32_t> tokens;
  for (int32_t i = 0; i < count; ++i) tokens.push_back((seed * 131 + i * i * 37 + 11 * i) % 380);
  return tokens;
}

// Two rows: one text, and two texts that must not see each other.
BatchTensors MakeBatch(const std::vector<std::vector<int32_t>>& texts, const std::vector<uint8_t>& learned) {
  std::vector<SegmentTokens> segments;
  for (const auto& text : texts) segments.push_back({text, std::span(learned).first(text.size())});
  const std::vector<int32_t> rows = {1, 2};
  return MakeBatchTensors(segments, rows, {});
}

void ExpectDecodersStates(const std::string& folder) {
  const std::unique_ptr<load::LoadedModel> loaded = Load(folder);
  const model::ModelConfig& config = loaded->weights.config;
  Parameters parameters(LlamaModel::Rows(config));
  at::Generator random = at::detail::createCPUGenerator(5);
  LlamaModel model(config, parameters, random);
  {
    at::NoGradGuard no_grad;
    model.Take(loaded->weights);
  }
  const std::vector<std::vector<int32_t>> texts = {SomeTokens(11, 1), SomeTokens(4, 2), SomeTokens(6, 3)};
  const std::vector<std::span<const int32_t>> spans(texts.begin(), texts.end());
  const std::vector<int32_t> wanted = {0, 1, static_cast<int32_t>(config.num_layers), model::kAfterFinalNorm};
  BaseStates states(*loaded, wanted, 64);
  std::vector<Matrix> expected;
  states.Compute(spans, expected);
  const std::vector<at::Tensor> found =
      model.States(MakeBatch(texts, std::vector<uint8_t>(16, 1)), wanted, Precision::kF32);
  for (size_t w = 0; w < wanted.size(); ++w) {
    const double distance = (found[w] - TensorOf(expected[w])).abs().max().item<double>();
    EXPECT_LT(distance, 1e-4) << folder << ", state " << wanted[w];
  }
}

TEST(LlamaModel, StatesAreTheDecoders) {
  const std::string golden = test::SourceDir() + "/tests/golden/";
  for (const char* name : {"base_mha", "hf/llama_bf16", "hf/llama_tied", "hf/mistral_window", "hf/qwen2_bias"}) {
    ExpectDecodersStates(golden + name);
  }
}

constexpr const char* kQwen3 =
    R"({"model_type": "qwen3", "architectures": ["Qwen3ForCausalLM"], "vocab_size": 384, "hidden_size": 32,
  "intermediate_size": 48, "num_hidden_layers": 3, "num_attention_heads": 4, "num_key_value_heads": 2, "head_dim": 12,
  "max_position_embeddings": 64, "rms_norm_eps": 1e-6, "rope_theta": 10000.0, "hidden_act": "silu",
  "tie_word_embeddings": false})";

// A model of random weights with norms of queries and keys.
TEST(LlamaModel, StatesAreTheDecodersWithQkNorm) {
  const test::TempDir dir;
  dir.Write("config.json", kQwen3);
  const model::ModelConfig config = model::ReadModelConfig(dir.path());
  Parameters parameters(LlamaModel::Rows(config));
  at::Generator random = at::detail::createCPUGenerator(5);
  const LlamaModel model(config, parameters, random);
  at::manual_seed(3);
  parameters.values().add_(at::randn({parameters.size()}), 0.1);
  std::vector<checkpoint::TensorEntry> entries;
  for (const ParameterRow& row : parameters.rows()) entries.push_back({row.name, DType::kF32, row.shape});
  checkpoint::SafetensorsWriter writer(dir.path() + "/model.safetensors", entries, {});
  for (const ParameterRow& row : parameters.rows()) {
    writer.Write(parameters.Get(row.name).data_ptr(), static_cast<size_t>(row.num_elements()) * sizeof(float));
  }
  writer.Finish();
  ExpectDecodersStates(dir.path());
}

// The slope of the loss along each tensor's gradient, by differences.
TEST(LlamaModel, GradientsAreTheSlopesOfTheLoss) {
  const std::unique_ptr<load::LoadedModel> loaded = Load(test::SourceDir() + "/tests/golden/hf/qwen2_bias");
  const model::ModelConfig& config = loaded->weights.config;
  Parameters parameters(LlamaModel::Rows(config));
  at::Generator random = at::detail::createCPUGenerator(5);
  LlamaModel model(config, parameters, random);
  {
    at::NoGradGuard no_grad;
    model.Take(loaded->weights);
    parameters.values().add_(at::randn({parameters.size()}), 0.02);
  }
  std::vector<uint8_t> learned(16, 1);
  learned[3] = 0;
  const std::vector<std::vector<int32_t>> texts = {SomeTokens(11, 1), SomeTokens(4, 2), SomeTokens(6, 3)};
  const BatchTensors batch = MakeBatch(texts, learned);
  const std::vector<int32_t> wanted = {model::kAfterFinalNorm};
  const auto loss = [&](bool with_gradient) {
    const std::vector<at::Tensor> states = model.States(batch, wanted, Precision::kF32);
    LossResult result =
        LmLoss({model.lm_head()}, states, batch, {}, {}, {.with_gradient = with_gradient, .first_shift = 1});
    if (with_gradient) torch::autograd::backward(states, result.state_gradients);
    EXPECT_EQ(result.heads.front().count, 15);  // 21 tokens; of each text the first and the fourth are not learned
    return result.loss;
  };
  loss(true);
  const at::Tensor gradients = parameters.gradients().clone();
  at::NoGradGuard no_grad;
  for (const ParameterRow& row : parameters.rows()) {
    at::Tensor value = parameters.Get(row.name).detach();
    const at::Tensor gradient = parameters.Get(row.name).grad().clone(), kept = value.clone();
    const double norm = gradient.norm().item<double>(), step = std::min(0.02, 0.003 / norm);
    // A key's bias moves all scores of a query alike, but for the rotation.
    if (norm < 1e-5) continue;
    value.add_(gradient, step / norm);
    const double above = loss(false);
    value.copy_(kept).sub_(gradient, step / norm);
    const double below = loss(false);
    value.copy_(kept);
    EXPECT_NEAR((above - below) / (2 * step) / norm, 1, 0.02) << row.name << ", norm " << norm;
  }
}

TEST(LlamaModel, RefusesRowsLongerThanItsWindow) {
  const model::ModelConfig config = model::ReadModelConfig(test::SourceDir() + "/tests/golden/hf/mistral_window");
  EXPECT_NO_THROW(LlamaModel::CheckRows(config, 12));
  EXPECT_THROW(LlamaModel::CheckRows(config, 13), UserError);
}

}  // namespace
}  // namespace hydrant::train::llama_model_test
