// SPDX-License-Identifier: Apache-2.0
#include "train/fit/head_fit.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <memory>
#include <string>
#include <vector>

#include "base/json.h"
#include "eval/logits.h"
#include "load/loaded_model.h"
#include "tests/test_data.h"
#include "train/base_states.h"
#include "train/fit/checkpoint.h"

namespace hydrant::train::head_fit_test {
namespace {

constexpr int32_t kHeads = 3;  // or passes
constexpr const char* kArchs[] = {"medusa", "hydra", "hydra++", "eagle", "eagle3", "redrafter"};

constexpr const char* kPrunedArchs[] = {"medusa", "hydra", "hydra++", "eagle3"};

struct Base {
  explicit Base(const std::string& draft = "") {
    EngineOptions options;
    options.model = test::SourceDir() + "/tests/golden/base_mha";
    options.draft = draft;
    options.load_tokenizer = false;
    options.threads = 1;
    loaded = load::LoadModel(options);
    tensors = TakeBaseTensors(loaded->weights);
  }
  std::unique_ptr<load::LoadedModel> loaded;
  BaseTensors tensors;
};

std::vector<int32_t> SomeTokens(int32_t count, int32_t seed) {
  std::vector<int32_t> tokens;
  for (int32_t i = 0; i < count; ++i) tokens.push_back((seed * 131 + i * i * 37 + 11 * i) % 509);
  return tokens;
}

std::vector<int32_t> EveryThirdToken() {
  std::vector<int32_t> tokens;
  for (int32_t token = 1; token < 512; token += 3) tokens.push_back(token);
  return tokens;
}

struct Sample {
  BatchTensors batch;
  at::Tensor final_hidden;
};

// Segments of these texts, all rows with `per_row` of them; the first two tokens of the first text are not learned.
Sample MakeBatch(Base& base, const draft::HeadsInfo& info, const std::vector<std::vector<int32_t>>& texts,
                 std::vector<int32_t> rows) {
  std::vector<std::span<const int32_t>> spans(texts.begin(), texts.end());
  std::vector<int32_t> wanted = WantedLayers(info, base.loaded->weights.config);
  wanted.push_back(model::kAfterFinalNorm);
  BaseStates states(*base.loaded, wanted, 64);
  std::vector<Matrix> matrices;
  states.Compute(spans, matrices);
  std::vector<std::vector<uint8_t>> learned;
  for (const auto& text : texts) learned.emplace_back(text.size(), 1);
  learned.front()[5] = 0;
  std::vector<SegmentTokens> segments;
  for (size_t t = 0; t < texts.size(); ++t) segments.push_back({texts[t], learned[t]});
  std::vector<at::Tensor> hidden;
  for (const Matrix& matrix : matrices) hidden.push_back(TensorOf(matrix));
  const at::Tensor final_hidden = hidden.back();
  hidden.pop_back();
  return {.batch = MakeBatchTensors(segments, rows, std::move(hidden)), .final_hidden = final_hidden};
}

Recipe PlainRecipe() {
  Recipe recipe;
  recipe.warmup_steps = 0;
  return recipe;
}

Recipe WithPasses(Recipe recipe, int32_t passes) {
  recipe.num_passes = passes;
  return recipe;
}

// Values that are no longer those of the start, where many are zeros and gradients vanish.
std::unique_ptr<HeadFit> StirredFit(Base& base, const std::string& arch, const Recipe& recipe, int32_t layers = 0,
                                    HeadShape like = {}) {
  const bool is_counted = arch == "medusa" || arch.starts_with("hydra");
  HeadShape shape = std::move(like);
  shape.arch = arch;
  shape.num_heads = is_counted ? kHeads : 0;
  shape.num_layers = is_counted ? layers : 0;
  auto fit = std::make_unique<HeadFit>(FitOptions{.info = DescribeHeads(shape, base.loaded->weights.config),
                                                  .shape = shape,
                                                  .recipe = is_counted ? recipe : WithPasses(recipe, kHeads),
                                                  .seed = 7,
                                                  .total_steps = 10},
                                       base.loaded->weights.config, base.tensors);
  at::manual_seed(3);
  fit->parameters().values().add_(at::randn({fit->parameters().size()}), 0.05);
  return fit;
}

// The slope of the loss along a direction of one tensor, by differences and by the gradient.
void CheckGradients(Base& base, const std::string& arch, const Recipe& recipe, const HeadShape& like = {}) {
  const std::unique_ptr<HeadFit> fit = StirredFit(base, arch, recipe, 0, like);
  const auto [batch, final_hidden] =
      MakeBatch(base, fit->options().info, {SomeTokens(17, 1), SomeTokens(9, 2), SomeTokens(12, 3)}, {1, 2});
  fit->AddGradient(batch, final_hidden, 0, CountLabels(batch, kHeads), false);
  const at::Tensor gradients = fit->parameters().gradients().clone();
  at::Tensor values = fit->parameters().values();
  int64_t begin = 0;
  for (const ParameterRow& row : fit->parameters().rows()) {
    const int64_t count = row.num_elements();
    // Along the gradient itself, where the slope is largest.
    at::Tensor direction = gradients.narrow(0, begin, count).clone();
    const double norm = direction.norm().item<double>();
    ASSERT_GT(norm, 1e-6) << arch << " " << row.name << ": no gradient";
    direction.div_(norm);
    const double step = std::min(0.02, 0.01 / norm);
    at::Tensor part = values.narrow(0, begin, count);
    const at::Tensor kept = part.clone();
    part.add_(direction, step);
    const double above = fit->Evaluate(batch, final_hidden).loss;
    part.copy_(kept).sub_(direction, step);
    const double below = fit->Evaluate(batch, final_hidden).loss;
    part.copy_(kept);
    EXPECT_NEAR((above - below) / (2 * step) / norm, 1, 0.02) << arch << " " << row.name << ", norm " << norm;
    begin += count;
  }
}

TEST(HeadFit, GradientsAreTheSlopesOfTheLoss) {
  Base base;
  Recipe recipe = PlainRecipe();
  recipe.head_decay = 0.8;
  for (const char* arch : kArchs) CheckGradients(base, arch, recipe);
  recipe.label_weight = 0.25;
  recipe.teacher_weight = 0.5;
  for (const char* arch : kArchs) {
    recipe.reconstruction_weight = std::string(arch) == "redrafter" ? 0 : 0.3;
    CheckGradients(base, arch, recipe);
  }
  recipe.reconstruction_weight = 0;
  HeadShape shared, few;
  shared.shared_lm_head = true;
  CheckGradients(base, "hydra", recipe, shared);
  few.draft_vocab = EveryThirdToken();
  for (const char* arch : kPrunedArchs) CheckGradients(base, arch, recipe, few);
  recipe.label_weight = 0;
  for (const char* arch : kPrunedArchs) CheckGradients(base, arch, recipe, few);
  recipe.reconstruction_weight = 0.3;
  EXPECT_THROW(StirredFit(base, "redrafter", recipe), UserError);
}

// The largest distance of two rows of logits, of which the first is about `tokens` alone where there are any.
double DistanceOf(const at::Tensor& found, std::span<const float> expected, const std::vector<int32_t>& tokens) {
  const at::Tensor row = found.contiguous();
  const float* logits = row.data_ptr<float>();
  double distance = 0;
  for (int64_t r = 0; r < row.numel(); ++r) {
    const auto token = tokens.empty() ? static_cast<size_t>(r) : static_cast<size_t>(tokens[static_cast<size_t>(r)]);
    distance = std::max<double>(distance, std::abs(logits[r] - expected[token]));
  }
  return distance;
}

void CheckLogits(const std::string& arch, HeadFile file, const HeadShape& like) {
  const test::TempDir dir;
  Base base;
  const std::unique_ptr<HeadFit> fit = StirredFit(base, arch, PlainRecipe(), 4, like);
  WriteHeads(
      fit->options().info, base.loaded->weights.config, fit->Tensors(),
      {.folder = dir.path(), .file = file, .dtype = DType::kF32, .base = "base_mha", .draft_vocab = like.draft_vocab});
  Base drafting(dir.path());
  const size_t num_drafted = like.draft_vocab.empty() ? 512 : like.draft_vocab.size();
  EXPECT_EQ(static_cast<size_t>(drafting.loaded->info.num_draft_vocab), num_drafted) << arch;
  for (const int32_t length : {1, 2, 20, 40}) {
    std::vector<int32_t> text = SomeTokens(length, 5);
    const std::vector<int32_t> path = {17, 200};
    const eval::EvalLogitsResult expected = eval::EvalLogits(*drafting.loaded, text, path);
    text.push_back(expected.root);
    text.insert(text.end(), path.begin(), path.end());
    text.push_back(3);
    // A shorter text shares the row, and must not be seen.
    const auto [batch, final_hidden] = MakeBatch(base, fit->options().info, {SomeTokens(7, 1), text}, {2});
    for (int32_t i = 0; i < kHeads; ++i) {
      const double distance =
          DistanceOf(fit->Logits(batch, i)[7 + length - 1], expected.head_logits.row_span(i), like.draft_vocab);
      EXPECT_LT(distance, 1e-4) << arch << ", head " << i << " after " << length << " tokens";
    }
  }
}

TEST(HeadFit, LogitsAreThoseOfTheDrafterOnTheWrittenFiles) {
  for (const HeadFile file : {HeadFile::kTorch, HeadFile::kSafetensors}) {
    for (const char* arch : kArchs) CheckLogits(arch, file, {});
    HeadShape shared, few;
    shared.shared_lm_head = true;
    for (const char* arch : {"medusa", "hydra++"}) CheckLogits(arch, file, shared);
    few.draft_vocab = EveryThirdToken();
    for (const char* arch : kPrunedArchs) CheckLogits(arch, file, few);
  }
}

// In bf16 a bias of -1e4 becomes -9984.
TEST(HeadFit, PrunedHydraHeadsAreCutToTheirTokensAndToThoseOfTheUser) {
  const test::TempDir dir;
  Base base;
  HeadShape few;
  few.draft_vocab = {1, 4, 7, 10};
  const std::unique_ptr<HeadFit> fit = StirredFit(base, "hydra", PlainRecipe(), 0, few);
  WriteHeads(fit->options().info, base.loaded->weights.config, fit->Tensors(),
             {.folder = dir.path(), .base = "base_mha", .draft_vocab = few.draft_vocab});
  EngineOptions options = base.loaded->options;
  options.draft = dir.path();
  EXPECT_EQ(load::LoadModel(options)->info.num_draft_vocab, 4);
  options.draft_vocab = dir.Write("some.json", "[4, 5, 10]");
  EXPECT_EQ(load::LoadModel(options)->info.num_draft_vocab, 2);
  options.draft_vocab = dir.Write("none.json", "[5]");
  EXPECT_THROW(load::LoadModel(options), FileError);
}

// Top 5 of 4 tokens are 4.
TEST(HeadFit, HeadsOfFewTokensAreMeasured) {
  Base base;
  HeadShape few;
  few.draft_vocab = {1, 4, 7, 10};
  const std::unique_ptr<HeadFit> fit = StirredFit(base, "hydra", PlainRecipe(), 0, few);
  const Sample sample = MakeBatch(base, fit->options().info, {{1, 4, 7, 1, 4, 7, 1, 4, 10}}, {1});
  const HeadSums sums = fit->Evaluate(sample.batch, sample.final_hidden).heads.front();
  EXPECT_GT(sums.count, 0);
  EXPECT_EQ(sums.in_label.back(), sums.count);
}

TrainedPart PartOf(const std::string& name, HeadFit& fit) { return {.name = name, .trained = &fit.trained()}; }

TEST(HeadFit, GoesOnFromACheckpointBitForBit) {
  Base base;
  Recipe recipe = PlainRecipe();
  recipe.dropout = 0.3;
  recipe.noise_alpha = 5;
  test::TempDir dir;
  const std::string file = dir.path() + "/checkpoint.safetensors";
  const auto steps = [&](HeadFit& fit, int64_t first, int64_t last) {
    const auto [batch, final_hidden] =
        MakeBatch(base, fit.options().info, {SomeTokens(17, 1), SomeTokens(9, 2)}, {1, 1});
    for (int64_t step = first; step < last; ++step) {
      fit.AddGradient(batch, final_hidden, step, CountLabels(batch, kHeads), false);
      fit.Step(step);
    }
  };
  const std::unique_ptr<HeadFit> whole = StirredFit(base, "hydra++", recipe);
  steps(*whole, 0, 6);
  const std::unique_ptr<HeadFit> first = StirredFit(base, "hydra++", recipe);
  steps(*first, 0, 3);
  WriteCheckpoint(file, {PartOf("hydra++", *first)}, 3, base::Json{{"seed", 1}});
  const std::unique_ptr<HeadFit> second = StirredFit(base, "hydra++", recipe);
  second->parameters().values().zero_();
  EXPECT_EQ(ReadCheckpoint(file, {PartOf("hydra++", *second)}, base::Json{{"seed", 1}}), 3);
  steps(*second, 3, 6);
  EXPECT_TRUE(whole->parameters().values().equal(second->parameters().values()));
  EXPECT_TRUE(whole->trained().optimizer().variance().equal(second->trained().optimizer().variance()));
  EXPECT_THROW(ReadCheckpoint(file, {PartOf("hydra++", *second)}, base::Json{{"seed", 2}}), FileError);
  EXPECT_THROW(ReadCheckpoint(file, {PartOf("hydra", *second)}, base::Json{{"seed", 1}}), FileError);
}

TEST(HeadFit, RanksDrawTheirOwnDropout) {
  Base base;
  Recipe recipe = PlainRecipe();
  recipe.dropout = 0.5;
  const auto gradients = [&](int rank) {
    const HeadShape shape{.arch = "hydra", .num_heads = kHeads};
    const draft::HeadsInfo info = DescribeHeads(shape, base.loaded->weights.config);
    HeadFit fit({.info = info, .shape = shape, .recipe = recipe, .rank = rank}, base.loaded->weights.config,
                base.tensors);
    const Sample sample = MakeBatch(base, info, {SomeTokens(17, 1), SomeTokens(9, 2)}, {1, 1});
    fit.AddGradient(sample.batch, sample.final_hidden, 0, CountLabels(sample.batch, kHeads), false);
    return fit.parameters().gradients().clone();
  };
  const at::Tensor first = gradients(0);
  EXPECT_FALSE(first.equal(gradients(1)));
  EXPECT_TRUE(first.equal(gradients(0)));
  EXPECT_TRUE(gradients(2).equal(gradients(2)));
}

// What EAGLE-1's recipe adds to the states that the network reads changes the gradient, and nothing that is measured.
TEST(HeadFit, NoiseIsInTrainingAlone) {
  Base base;
  Recipe noisy = RecipeNamed("eagle-1"), plain = noisy;
  plain.text_noise = 0;
  const std::unique_ptr<HeadFit> with = StirredFit(base, "eagle", noisy), without = StirredFit(base, "eagle", plain);
  const auto [batch, final_hidden] = MakeBatch(base, with->options().info, {SomeTokens(17, 1)}, {1});
  EXPECT_EQ(with->Evaluate(batch, final_hidden).loss, without->Evaluate(batch, final_hidden).loss);
  for (HeadFit* fit : {with.get(), without.get()}) {
    fit->AddGradient(batch, final_hidden, 0, CountLabels(batch, kHeads), false);
  }
  EXPECT_FALSE(with->parameters().gradients().equal(without->parameters().gradients()));
}

// Another kind's recipe must not leave heads untrained.
TEST(HeadFit, CountedHeadsAreAllTrainedWhateverTheRecipe) {
  Base base;
  EXPECT_EQ(StirredFit(base, "hydra", RecipeNamed("eagle-1"))->depth(), kHeads);
  const HeadFit eagle({.info = DescribeHeads({.arch = "eagle"}, base.loaded->weights.config),
                       .shape = {.arch = "eagle"},
                       .recipe = RecipeNamed("hydra")},
                      base.loaded->weights.config, base.tensors);
  EXPECT_EQ(eagle.depth(), 1);
  EXPECT_THROW(DescribeHeads({.arch = "eagle", .num_heads = 4}, base.loaded->weights.config), UserError);
}

}  // namespace
}  // namespace hydrant::train::head_fit_test
