// SPDX-License-Identifier: Apache-2.0
#include "model/weights.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>

#include "base/json.h"
#include "base/mapped_file.h"
#include "hydrant/error.h"
#include "tests/test_data.h"

namespace hydrant::model::weights_test {
namespace {

namespace fs = std::filesystem;
using base::Json;
using hydrant::test::SharedDir;
using hydrant::test::SourceDir;
using hydrant::test::TempDir;
using ::testing::Contains;
using ::testing::Each;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::SizeIs;

std::string Committed(const std::string& name) { return SourceDir() + "/tests/golden/" + name; }

std::string Refusal(const std::string& folder) {
  try {
    LoadModelWeights(folder);
    return "";
  } catch (const FileError& e) {
    return e.what();
  }
}

// A copy of a committed model whose config.json has one key changed.
std::string RefusalWith(const std::string& name, const std::string& key, const Json& value) {
  const TempDir folder;
  fs::copy(Committed(name), folder.path(), fs::copy_options::recursive);
  Json config = base::ReadJsonFile(folder.path() + "/config.json");
  config[key] = value;
  folder.Write("config.json", config.dump());
  return Refusal(folder.path());
}

TEST(WeightsTest, LoadsAQwen2ModelWithTiedEmbeddings) {
  const ModelWeights weights = LoadModelWeights(Committed("hf/qwen2_bias"));
  EXPECT_THAT(weights.embedding.shape, ElementsAre(384, 64));
  EXPECT_EQ(weights.lm_head.weight.data, weights.embedding.data);
  ASSERT_THAT(weights.layers, SizeIs(2));
  const LayerWeights& layer = weights.layers[1];
  EXPECT_THAT(layer.q.weight.shape, ElementsAre(64, 64));
  EXPECT_THAT(layer.k.weight.shape, ElementsAre(32, 64));
  EXPECT_THAT(layer.q.bias, SizeIs(64));
  EXPECT_THAT(layer.v.bias, SizeIs(32));
  EXPECT_THAT(layer.o.bias, IsEmpty());
  EXPECT_THAT(layer.q_norm, IsEmpty());
  EXPECT_THAT(layer.down.weight.shape, ElementsAre(64, 112));
  EXPECT_THAT(weights.final_norm, SizeIs(64));
  EXPECT_THAT(weights.unused_tensors, IsEmpty());
}

TEST(WeightsTest, AcceptsAndReportsRedundantTensors) {
  const ModelWeights weights = LoadModelWeights(Committed("hf/llama_bin"));
  EXPECT_THAT(weights.unused_tensors, ElementsAre("lm_head.weight", "model.layers.0.self_attn.rotary_emb.inv_freq",
                                                  "model.layers.1.self_attn.rotary_emb.inv_freq"));
  EXPECT_EQ(weights.embedding.dtype, DType::kF16);
  EXPECT_EQ(weights.lm_head.weight.data, weights.embedding.data);
}

TEST(WeightsTest, CountsTheBytesInUse) {
  const ModelWeights weights = LoadModelWeights(Committed("base_mha"));
  const int64_t layer = 4 * 64 * 64 + 3 * 64 * 172 + 2 * 64;
  EXPECT_EQ(weights.bytes, static_cast<uint64_t>(4 * (2 * 512 * 64 + 64 + 4 * layer)));
}

TEST(WeightsTest, ExtendedRowsOfALayerAreNamedOnce) {
  const ModelConfig config = ReadModelConfig(Committed("hf/qwen2_bias"));
  const std::vector<checkpoint::TensorRow> rows = LayerRows(config, "p.");
  EXPECT_THAT(rows, SizeIs(9 + 3 + 1));  // two norms, seven matrices, three biases, one unused
  std::set<std::string> names;
  for (const checkpoint::TensorRow& row : rows) names.insert(row.name);
  EXPECT_EQ(names.size(), rows.size());
  EXPECT_THAT(names, Contains("p.self_attn.v_proj.bias"));
}

TEST(WeightsTest, AMismatchNamesBothFiles) {
  const std::string refusal = RefusalWith("hf/qwen2_bias", "intermediate_size", 128);
  EXPECT_THAT(refusal,
              HasSubstr("model.safetensors: tensor 'model.layers.0.mlp.gate_proj.weight' is [112, 64], expected "
                        "[128, 64] (intermediate_size of "));
  EXPECT_THAT(refusal, HasSubstr("/config.json)"));
  EXPECT_THAT(RefusalWith("hf/qwen2_bias", "num_hidden_layers", 1),
              HasSubstr("tensor 'model.layers.1.input_layernorm.weight' [64] is not expected here (and "));
  EXPECT_THAT(RefusalWith("hf/qwen2_bias", "num_hidden_layers", 3),
              HasSubstr("tensor 'model.layers.2.input_layernorm.weight' is missing"));
  EXPECT_THAT(RefusalWith("hf/qwen2_bias", "vocab_size", 385), HasSubstr("(vocab_size of "));
  EXPECT_THAT(RefusalWith("hf/qwen2_bias", "num_key_value_heads", 4), HasSubstr("num_key_value_heads * head_dim of "));
}

TEST(WeightsTest, AnUntiedModelNeedsItsLmHead) {
  EXPECT_THAT(RefusalWith("hf/llama_tied", "tie_word_embeddings", false),
              HasSubstr("tensor 'lm_head.weight' is missing"));
}

TEST(WeightsTest, BiasesThatTheConfigDoesNotAnnounceAreExtra) {
  EXPECT_THAT(RefusalWith("hf/qwen2_bias", "model_type", "llama"),
              HasSubstr("k_proj.bias' [32] is not expected here (and 5 more): in "));
  EXPECT_THAT(RefusalWith("hf/llama_tied", "model_type", "qwen2"), HasSubstr("q_proj.bias' is missing"));
}

TEST(WeightsTest, TruncatedWeightsAreRefused) {
  const TempDir folder;
  fs::copy(Committed("hf/llama_bf16"), folder.path(), fs::copy_options::recursive);
  const std::string content = base::ReadTextFile(folder.path() + "/model.safetensors");
  for (const size_t length : {size_t{0}, size_t{7}, size_t{8}, size_t{100}, content.size() / 2, content.size() - 1}) {
    folder.Write("model.safetensors", content.substr(0, length));
    EXPECT_THAT(Refusal(folder.path()), HasSubstr("model.safetensors: ")) << length;
  }
}

TEST(WeightsTest, LoadsEveryReferenceModel) {
  HYDRANT_NEED_SHARED();
  size_t loaded = 0;
  for (const auto& entry : fs::directory_iterator(SharedDir() + "/golden/hf")) {
    if (!entry.is_directory()) continue;
    const Json expected = base::ReadJsonFile(entry.path().string() + "/case.json");
    const std::string refusal = Refusal(entry.path().string());
    if (!expected.value("expect_error", false)) {
      EXPECT_EQ(refusal, "") << entry.path();
      ++loaded;
      continue;
    }
    for (const Json& word : expected.at("error_should_name")) EXPECT_THAT(refusal, HasSubstr(word.get<std::string>()));
  }
  EXPECT_EQ(loaded, 21U);
}

// A whole model with Medusa heads is a base model when --draft does not name it.
TEST(WeightsTest, HeadsInAWholeModelAreSkipped) {
  HYDRANT_NEED_SHARED();
  for (const char* name : {"b_k4_l1_full", "b_k3_l2_full_bin", "b_k3_l2_full_deduped"}) {
    const ModelWeights weights = LoadModelWeights(SharedDir() + "/golden/medusa/" + name);
    EXPECT_THAT(weights.unused_tensors, Each(HasSubstr("medusa_head."))) << name;
    EXPECT_FALSE(weights.unused_tensors.empty());
    EXPECT_THAT(weights.layers, SizeIs(4));
  }
}

TEST(WeightsTest, AHeadsFolderIsNoBaseModel) {
  HYDRANT_NEED_SHARED();
  EXPECT_NE(Refusal(SharedDir() + "/golden/medusa/d_k4_l1_vllm"), "");
  EXPECT_NE(Refusal(SharedDir() + "/golden/hydra/mlp_k4_l1"), "");
}

TEST(WeightsTest, LoadsTheEmbeddedModel) {
  HYDRANT_NEED_SHARED();
  const ModelWeights weights = LoadModelWeights(SharedDir() + "/models/tale-14m");
  EXPECT_EQ(weights.embedding.dtype, DType::kBF16);
  EXPECT_THAT(weights.layers, SizeIs(16));
}

}  // namespace
}  // namespace hydrant::model::weights_test
