// SPDX-License-Identifier: Apache-2.0
#include "train/write_base.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>

#include "base/json.h"
#include "load/loaded_model.h"
#include "model/model_tensors.h"
#include "tests/test_data.h"
#include "train/base_config.h"

namespace hydrant::train::write_base_test {
namespace {

// A model's tensors with numbers that tell them apart.
struct Numbers {
  explicit Numbers(const model::ModelConfig& config) {
    Add(model::EmbeddingRow(config));
    for (int64_t layer = 0; layer < config.num_layers; ++layer) {
      for (const auto& row : model::LayerRows(config, "model.layers." + std::to_string(layer) + ".")) {
        if (row.presence != checkpoint::Presence::kUnused) Add(row);
      }
    }
    Add(model::FinalNormRow(config));
    if (!config.tied_embeddings) Add(model::LmHeadRow(config));
    for (size_t i = 0; i < tensors.size(); ++i) tensors[i].data = values[i].data();
  }

  void Add(const checkpoint::TensorRow& row) {
    TrainedTensor tensor{.name = row.name, .repeats = {}, .shape = {}};
    int64_t count = 1;
    for (const checkpoint::Extent& extent : row.shape) {
      tensor.shape.push_back(extent.value);
      count *= extent.value;
    }
    std::vector<float>& numbers = values.emplace_back(static_cast<size_t>(count));
    for (size_t i = 0; i < numbers.size(); ++i) {
      numbers[i] = 0.1F * std::sin(static_cast<float>(i) + static_cast<float>(values.size()));
    }
    tensors.push_back(tensor);
  }

  std::vector<std::vector<float>> values;
  std::vector<TrainedTensor> tensors;
};

TEST(WriteBaseTest, TheEngineLoadsTheFolder) {
  const TokenizerFiles tokenizer = ReadTokenizerFiles(test::SourceDir() + "/models/tale-14m", "");
  const LoadedTokenizer loaded_tokenizer = LoadTokenizerOf(tokenizer, "");
  for (const bool tied : {false, true}) {
    for (const DType dtype : {DType::kF32, DType::kF16, DType::kBF16}) {
      const BaseShape shape{.hidden_size = 32, .num_layers = 2, .intermediate_size = 48, .num_kv_heads = 2};
      base::Json config = ConfigOf(shape);
      config["tie_word_embeddings"] = tied;
      FitToTokenizer(config, shape, *loaded_tokenizer.tokenizer, dtype);
      const Numbers numbers(SizesOf(config, shape));
      const test::TempDir dir;
      WriteBase(config, tokenizer, numbers.tensors, {.folder = dir.path() + "/new", .dtype = dtype});
      EngineOptions options;
      options.model = dir.path() + "/new";
      const auto loaded = load::LoadModel(options);
      EXPECT_TRUE(loaded->info.warnings.empty());
      ASSERT_NE(loaded->tokenizer, nullptr);
      EXPECT_EQ(loaded->tokenizer->vocab_size(), 4096);
      EXPECT_EQ(loaded->weights.config.num_kv_heads, 2);
      const std::vector<float> embedding = ToFloats(loaded->weights.embedding);
      ASSERT_EQ(embedding.size(), numbers.values[0].size());
      for (size_t i = 0; i < embedding.size(); i += 97) EXPECT_NEAR(embedding[i], numbers.values[0][i], 1e-3);
      EXPECT_EQ(loaded->weights.layers[1].input_norm.size(), 32U);
    }
  }
}

}  // namespace
}  // namespace hydrant::train::write_base_test
