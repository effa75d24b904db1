// SPDX-License-Identifier: Apache-2.0
#include "train/fit/base/base_fit.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <span>

#include "base/json.h"
#include "eval/logits.h"
#include "load/loaded_model.h"
#include "tests/test_data.h"
#include "tests/tiny_base.h"
#include "train/base_config.h"
#include "train/write_base.h"

namespace hydrant::train::base_fit_test {
namespace {

std::vector<int32_t> SomeTokens(size_t count, int32_t seed) {
  std::vector<int32_t> tokens;
  for (size_t i = 0; i < count; ++i) tokens.push_back(static_cast<int32_t>(i * i + 7 * i) % 490 + seed);
  return tokens;
}

BatchTensors BatchOf(const std::vector<std::vector<int32_t>>& texts) {
  std::vector<std::vector<uint8_t>> learned;
  std::vector<SegmentTokens> segments;
  for (const auto& text : texts) learned.emplace_back(text.size(), 1);
  for (size_t i = 0; i < texts.size(); ++i) segments.push_back({texts[i], learned[i]});
  return MakeBatchTensors(segments, std::vector<int32_t>{static_cast<int32_t>(texts.size())}, {});
}

// What decoding computes with the written folder is what was trained.
TEST(BaseFit, LogitsAreThoseOfTheEngineOnTheWrittenFolder) {
  const TokenizerFiles files = {{"tokenizer.json", test::TinyTokenizer()}};
  const LoadedTokenizer tokenizer = LoadTokenizerOf(files, "");
  for (const bool tied : {false, true}) {
    const BaseShape shape = test::TinyShape();
    base::Json config = ConfigOf(shape);
    config["tie_word_embeddings"] = tied;
    FitToTokenizer(config, shape, *tokenizer.tokenizer, DType::kF32);
    BaseFit fit({.config = SizesOf(config, shape), .total_steps = 20});
    const std::vector<int32_t> text = SomeTokens(40, 3);
    const BatchTensors batch = BatchOf({SomeTokens(9, 1), text});
    const double labels = 8 + 39, before = fit.Evaluate(batch).loss;
    for (int64_t step = 0; step < 20; ++step) {
      fit.AddGradient(batch, labels);
      EXPECT_EQ(fit.Step(step).labels, labels);
    }
    EXPECT_LT(fit.Evaluate(batch).loss, before - 0.1) << "steps change the parameters";

    const test::TempDir dir;
    WriteBase(config, files, fit.Tensors(), {.folder = dir.path(), .dtype = DType::kF32});
    EngineOptions options;
    options.model = dir.path();
    const auto loaded = load::LoadModel(options);
    EXPECT_THAT(loaded->info.warnings, testing::IsEmpty());
    const eval::EvalLogitsResult expected = eval::EvalLogits(*loaded, text, {});
    const at::Tensor found = fit.Logits(batch).narrow(0, 9, 40).contiguous();
    double distance = 0, largest = 0;
    for (int64_t row = 0; row < 40; ++row) {
      const auto wanted = expected.logits.row_span(row);
      for (size_t i = 0; i < wanted.size(); ++i) {
        const float one = found[row].data_ptr<float>()[i];
        distance = std::max<double>(distance, std::abs(one - wanted[i]));
        largest = std::max<double>(largest, std::abs(one));
      }
    }
    EXPECT_LT(distance, 1e-4);
    EXPECT_GT(largest, 0.2) << "not all about zero";
  }
}

TEST(BaseFit, LabelsOfSeveralBatchesCountAlike) {
  const BaseShape shape = test::TinyShape();
  const model::ModelConfig config = SizesOf(ConfigOf(shape), shape);
  BaseFit whole({.config = config}), parts({.config = config});
  const BatchTensors one = BatchOf({SomeTokens(30, 1)}), other = BatchOf({SomeTokens(12, 2)});
  whole.AddGradient(BatchOf({SomeTokens(30, 1), SomeTokens(12, 2)}), 40);
  parts.AddGradient(one, 40);
  parts.AddGradient(other, 40);
  const at::Tensor gradient = whole.parameters().gradients();
  const double distance = (gradient - parts.parameters().gradients()).norm().item<double>();
  EXPECT_LT(distance, 1e-5 * gradient.norm().item<double>());
  EXPECT_NEAR(whole.Step(0).loss, parts.Step(0).loss, 1e-5);
}

}  // namespace
}  // namespace hydrant::train::base_fit_test
