// SPDX-License-Identifier: Apache-2.0
#include "model/contradictions.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstring>
#include <filesystem>

#include "base/json.h"
#include "base/mapped_file.h"
#include "checkpoint/safetensors_writer.h"
#include "hydrant/error.h"
#include "model/weights.h"
#include "tests/test_data.h"

namespace hydrant::model::contradictions_test {
namespace {

namespace fs = std::filesystem;
using base::Json;
using hydrant::test::SourceDir;
using hydrant::test::TempDir;
using ::testing::Contains;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

struct Extra {
  std::string name;
  std::vector<float> values;  // stored in bf16
  std::vector<int64_t> shape;
};

std::string Bf16(const std::vector<float>& values) {
  std::string bytes;
  for (const float value : values) {
    const uint16_t bits = FloatToBFloat16(value);
    bytes.append(reinterpret_cast<const char*>(&bits), 2);
  }
  return bytes;
}

// A committed model with other config keys, and more tensors.
class Changed {
 public:
  explicit Changed(const std::string& name) {
    fs::copy(SourceDir() + "/tests/golden/" + name, folder_.path(), fs::copy_options::recursive);
  }
  Changed& Set(const std::string& key, const Json& value) {
    Json config = base::ReadJsonFile(folder_.path() + "/config.json");
    config[key] = value;
    folder_.Write("config.json", config.dump());
    return *this;
  }
  Changed& Add(const Extra& extra) {
    const std::string file = folder_.path() + "/model.safetensors";
    std::vector<checkpoint::TensorEntry> entries;
    std::vector<std::string> data;
    {
      const auto source = checkpoint::OpenTensorFile(file);
      for (const auto& [name, tensor] : source->tensors()) {
        entries.push_back({name, tensor.view.dtype, tensor.view.shape});
        data.emplace_back(reinterpret_cast<const char*>(tensor.view.data), tensor.view.num_bytes());
      }
    }
    entries.push_back({extra.name, DType::kBF16, extra.shape});
    data.push_back(Bf16(extra.values));
    checkpoint::SafetensorsWriter writer(file + ".new", entries, {}, 64);
    for (const std::string& bytes : data) writer.Write(bytes.data(), bytes.size());
    writer.Finish();
    fs::rename(file + ".new", file);
    return *this;
  }
  ModelWeights Load() const { return LoadModelWeights(folder_.path()); }
  std::string Refusal() const {
    try {
      Load();
      return "";
    } catch (const FileError& e) {
      return e.what();
    }
  }

 private:
  TempDir folder_;
};

std::vector<float> Embedding(const Changed& model) { return ToFloats(model.Load().embedding); }

TEST(ContradictionsTest, AnotherLmHeadUnderATiedConfigIsUsedWithAWarning) {
  Changed model("hf/llama_tied");
  std::vector<float> lm_head = Embedding(model);
  const int64_t vocab = model.Load().config.vocab_size, hidden = model.Load().config.hidden_size;
  lm_head.back() += 1;
  model.Add({"lm_head.weight", lm_head, {vocab, hidden}});
  const ModelWeights weights = model.Load();
  EXPECT_FALSE(weights.config.tied_embeddings);
  EXPECT_NE(weights.lm_head.weight.data, weights.embedding.data);
  EXPECT_EQ(ToFloats(weights.lm_head.weight).back(), BFloat16ToFloat(FloatToBFloat16(lm_head.back())));
  EXPECT_THAT(weights.used_tensors, Contains("lm_head.weight"));
  EXPECT_THAT(weights.unused_tensors, IsEmpty());
  EXPECT_THAT(weights.warnings, ElementsAre(HasSubstr("'lm_head.weight' differs from 'model.embed_tokens.weight'")));
}

TEST(ContradictionsTest, ACopyOfTheEmbeddingStaysUnusedInSilence) {
  Changed model("hf/llama_bf16");  // untied
  const std::vector<float> embedding = Embedding(model);
  EXPECT_THAT(model.Load().warnings, IsEmpty());
  model.Set("tie_word_embeddings", true);
  EXPECT_THAT(model.Load().warnings, ElementsAre(HasSubstr("is used")));
  Changed tied("hf/llama_tied");
  const ModelWeights before = tied.Load();
  tied.Add({"lm_head.weight", ToFloats(before.embedding), before.embedding.shape});
  const ModelWeights weights = tied.Load();
  if (before.embedding.dtype != DType::kBF16) return;  // the copy is rounded, and no copy any more
  EXPECT_THAT(weights.warnings, IsEmpty());
  EXPECT_THAT(weights.unused_tensors, ElementsAre("lm_head.weight"));
  EXPECT_TRUE(weights.config.tied_embeddings);
}

TEST(ContradictionsTest, AnLmHeadOfAnotherShapeIsRefused) {
  Changed model("hf/llama_tied");
  model.Add({"lm_head.weight", {1, 2}, {1, 2}});
  EXPECT_THAT(model.Refusal(), HasSubstr("tensor 'lm_head.weight' is [1, 2], expected ["));
}

TEST(ContradictionsTest, RotaryTablesAreComparedWithTheConfig) {
  const std::string name = "model.layers.0.self_attn.rotary_emb.inv_freq";
  Changed model("hf/llama_bf16");
  const ModelConfig config = model.Load().config;
  const std::vector<float> table = InverseFrequencies(config.rope, config.head_dim);
  model.Add({name, table, {config.head_dim / 2}});
  EXPECT_THAT(model.Load().warnings, IsEmpty());  // rounded to bf16
  EXPECT_THAT(model.Load().unused_tensors, ElementsAre(name));
  const double theta = config.rope.theta;
  model.Set("rope_parameters", {{"rope_type", "default"}, {"rope_theta", theta * 1.1}});
  EXPECT_THAT(model.Load().warnings, ElementsAre(HasSubstr("differs from the frequencies of")));
  model.Set("rope_parameters", {{"rope_type", "linear"}, {"rope_theta", theta}, {"factor", 2}});
  EXPECT_THAT(model.Load().warnings, ElementsAre(HasSubstr("lacks the scaling of")));
  model.Set("rope_parameters", {{"rope_type", "default"}, {"rope_theta", theta}});
  model.Add({"model.layers.1.self_attn.rotary_emb.inv_freq", {1, 2}, {2}});
  EXPECT_THAT(model.Load().warnings, ElementsAre(HasSubstr("layers.1.self_attn.rotary_emb.inv_freq' differs")));
}

TEST(ContradictionsTest, BiasesThatTheConfigDeniesAreRefusedUnlessTheyAreZero) {
  const std::string name = "model.layers.1.self_attn.q_proj.bias";
  Changed model("hf/llama_bf16");
  const ModelConfig config = model.Load().config;
  const int64_t outputs = config.num_heads * config.head_dim;
  std::vector<float> bias(static_cast<size_t>(outputs), 0);
  {
    Changed zero("hf/llama_bf16");
    zero.Add({name, bias, {outputs}});
    EXPECT_THAT(zero.Load().unused_tensors, ElementsAre(name));
    EXPECT_THAT(zero.Load().warnings, IsEmpty());
  }
  bias[3] = 0.5F;
  model.Add({name, bias, {outputs}});
  EXPECT_THAT(model.Refusal(), HasSubstr("q_proj.bias' [" + std::to_string(outputs) + "] is not expected here: in "));
  EXPECT_THAT(model.Refusal(), HasSubstr("'attention_bias' is not true"));
  Changed mistral("hf/mistral_window");
  const ModelConfig of_mistral = mistral.Load().config;
  std::vector<float> ones(static_cast<size_t>(of_mistral.intermediate_size), 1);
  mistral.Add({"model.layers.0.mlp.up_proj.bias", ones, {of_mistral.intermediate_size}});
  EXPECT_THAT(mistral.Refusal(), HasSubstr("'model_type' is \"mistral\", which has no such biases"));
}

TEST(ContradictionsTest, NormsOfHeadsAreForTheirFamily) {
  Changed model("hf/llama_bf16");
  const int64_t head = model.Load().config.head_dim;
  const std::vector<float> ones(static_cast<size_t>(head), 1);
  model.Add({"model.layers.0.self_attn.q_norm.weight", ones, {head}});
  EXPECT_THAT(model.Refusal(), HasSubstr("'model_type' is \"llama\", whose heads have no norms"));
}

}  // namespace
}  // namespace hydrant::model::contradictions_test
