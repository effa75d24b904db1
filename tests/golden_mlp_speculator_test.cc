// SPDX-License-Identifier: Apache-2.0
// MLP speculators beside a slow twin: logits along paths, and the trees of each step. The twin is written in
// double precision straight from the formula in docs/algorithms/mlp_speculator.md. (The engine's logits were compared
// once with those of the authors' network, run in PyTorch 2.15 from files that it saved: for five shapes like these, in
// both spellings, they differ by 8e-6 at most.)
#include <gtest/gtest.h>

#include <cmath>
#include <cstdint>
#include <string>
#include <vector>

#include "eval/logits.h"
#include "load/loaded_model.h"
#include "tests/head_folders.h"
#include "tests/lossless_util.h"

namespace hydrant::test::golden_mlp_speculator_test {
namespace {

using Row = std::vector<double>;

constexpr double kTolerance = 1e-4;

class Twin {
 public:
  explicit Twin(const MlpSpeculatorFolder& folder)
      : folder_(folder), stages_(folder.config["n_predict"]), scales_input_(folder.config["scale_input"]) {}

  // [stages][V]: the logits after each of `tokens`, the root first.
  std::vector<Row> LogitsAlong(Row state, const std::vector<int32_t>& tokens) const {
    if (scales_input_) {
      state = Normed(state);
      for (double& x : state) x /= std::sqrt(2.0);
    }
    const double state_weight = std::pow(0.5, 0.5 / stages_);
    std::vector<Row> logits;
    for (int s = 0; s < static_cast<int>(tokens.size()); ++s) {
      const Row token = Embedding(s, tokens[static_cast<size_t>(s)]);
      const double token_weight = std::sqrt((1 - state_weight * state_weight) * static_cast<double>(token.size()) / 2);
      state = Product("proj.", s, state);
      for (size_t i = 0; i < state.size(); ++i) state[i] += token[i] * token_weight / state_weight;
      state = Normed(state);
      const std::vector<float>&scale = Values("ln.", s, ".weight"), &shift = Values("ln.", s, ".bias");
      for (size_t i = 0; i < state.size(); ++i) {
        const double x = state[i] * static_cast<double>(scale[i]) + static_cast<double>(shift[i]);
        state[i] = 0.5 * x * (1 + std::erf(x / std::sqrt(2.0)));
      }
      logits.push_back(Product("head.", s, state));
    }
    return logits;
  }

 private:
  const std::vector<float>& Values(const std::string& role, int stage, const char* suffix = ".weight") const {
    return folder_.tensors.at(role + std::to_string(stage) + suffix).values;
  }
  Row Embedding(int stage, int32_t token) const {
    const std::vector<float>& table = Values("emb.", stage);
    const auto width = static_cast<int64_t>(table.size()) / MlpSpeculatorFolder::kVocab;
    return {table.begin() + token * width, table.begin() + (token + 1) * width};
  }
  Row Product(const std::string& role, int stage, const Row& x) const {
    const std::vector<float>& matrix = Values(role, stage);
    Row out(matrix.size() / x.size());
    for (size_t o = 0; o < out.size(); ++o) {
      for (size_t i = 0; i < x.size(); ++i) out[o] += static_cast<double>(matrix[o * x.size() + i]) * x[i];
    }
    return out;
  }
  static Row Normed(Row x) {
    double squares = 0;
    for (const double value : x) squares += value * value;
    const double scale = 1 / std::sqrt(squares / static_cast<double>(x.size()) + 1e-6);
    for (double& value : x) value *= scale;
    return x;
  }

  const MlpSpeculatorFolder& folder_;
  int stages_;
  bool scales_input_;
};

struct Shape {
  const char* name;
  bool is_tied, scales_input;
  int stages;
  int64_t inner;
};
constexpr Shape kShapes[] = {{"untied", false, false, 3, 48},
                             {"scaled", false, true, 4, 80},
                             {"tied", true, false, 4, 48},
                             {"tied and scaled", true, true, 5, 64},
                             {"one stage", false, true, 1, 48}};

MlpSpeculatorFolder FolderOf(const Shape& shape) {
  return MlpSpeculatorFolder(shape.is_tied, shape.stages, shape.inner, shape.scales_input);
}

void ExpectNear(const Row& expected, const float* found) {
  for (size_t t = 0; t < expected.size(); ++t) ASSERT_NEAR(static_cast<double>(found[t]), expected[t], kTolerance) << t;
}

TEST(GoldenMlpSpeculator, LogitsEqualTheTwin) {
  for (const Shape& shape : kShapes) {
    SCOPED_TRACE(shape.name);
    const MlpSpeculatorFolder folder = FolderOf(shape);
    const TempDir dir;
    const auto loaded = load::LoadModel(OptionsOf(folder.Write(dir)));
    ASSERT_EQ(loaded->drafter->max_depth(), shape.stages);
    for (int32_t first : {17, 300, 511}) {
      std::vector<int32_t> path;
      for (int s = 1; s < shape.stages; ++s) path.push_back((first + 71 * s) % 512);
      const eval::EvalLogitsResult result = eval::EvalLogits(*loaded, Prompt(), path);
      const float* last = result.hidden.row(result.hidden.rows() - 1);
      path.insert(path.begin(), result.root);
      const std::vector<Row> expected = Twin(folder).LogitsAlong(Row(last, last + MlpSpeculatorFolder::kHidden), path);
      ASSERT_EQ(result.head_logits.rows(), shape.stages);
      for (size_t s = 0; s < expected.size(); ++s) {
        SCOPED_TRACE(s);
        ExpectNear(expected[s], result.head_logits.row(static_cast<int64_t>(s)));
      }
    }
  }
}

// How many tokens are better than node n of a tree, and how many of its siblings stand before it.
void ExpectAmongTheBest(const StepTree& tree, size_t n, const Row& logits) {
  int siblings = 0, better = 0;
  for (size_t m = 0; m < n; ++m) siblings += tree.parents[m] == tree.parents[n] ? 1 : 0;
  const double own = logits[static_cast<size_t>(tree.tokens[n])];
  for (const double logit : logits) better += logit > own + kTolerance ? 1 : 0;
  EXPECT_LE(better, siblings) << n;
}

std::vector<int32_t> PathTo(const StepTree& tree, int32_t node) {
  std::vector<int32_t> path;
  for (; node >= 0; node = tree.parents[static_cast<size_t>(node)]) {
    path.insert(path.begin(), tree.tokens[static_cast<size_t>(node)]);
  }
  return path;
}

// A node's children are the best tokens by the logits along its own path, whatever stands beside it, and its state is
// the base's at the last committed position, step after step.
TEST(GoldenMlpSpeculator, EveryStepsDraftsAreTheTwins) {
  for (const Shape& shape : kShapes) {
    SCOPED_TRACE(shape.name);
    const MlpSpeculatorFolder folder = FolderOf(shape);
    const TempDir dir;
    const auto loaded = load::LoadModel(OptionsOf(folder.Write(dir)));
    Engine engine(OptionsOf(dir.path()));
    GenerationRequest request;
    request.prompt_ids = Prompt();
    request.stop = {.max_tokens = 12, .ignore_eos = true, .stop = {}};
    request.tree = shape.stages > 2 ? "[[0],[1],[0,0],[0,1],[1,0],[1,0,0]]" : "[[0],[1],[2]]";
    std::vector<int32_t> text = Prompt();
    size_t nodes = 0;
    engine.Generate(request, [&](const Emission& emission) {
      if (emission.step != nullptr && emission.step->tokens.size() > 1) {
        const StepTree& tree = *emission.step;
        EXPECT_EQ(tree.tokens.front(), text.back());
        const eval::EvalLogitsResult base = eval::EvalLogits(*loaded, {text.begin(), text.end() - 1}, {});
        const float* last = base.hidden.row(base.hidden.rows() - 1);
        for (size_t n = 1; n < tree.tokens.size(); ++n, ++nodes) {
          const Row state(last, last + MlpSpeculatorFolder::kHidden);
          ExpectAmongTheBest(tree, n, Twin(folder).LogitsAlong(state, PathTo(tree, tree.parents[n])).back());
        }
      }
      text.insert(text.end(), emission.token_ids.begin(), emission.token_ids.end());
      return true;
    });
    EXPECT_GT(nodes, 12U);
  }
}

}  // namespace
}  // namespace hydrant::test::golden_mlp_speculator_test
