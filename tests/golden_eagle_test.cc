// SPDX-License-Identifier: Apache-2.0
// Parity of EAGLE heads with their authors' code: logits, the trees of the first steps, tokens and accepted lengths.
#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "eval/logits.h"
#include "tests/golden_case.h"
#include "tests/lossless_util.h"

namespace hydrant::test::golden_eagle_test {
namespace {

using base::Json;
using Path = std::vector<int32_t>;

constexpr float kTolerance = 1e-4F;

struct EagleCase {
  const char *name, *heads, *base;
};
constexpr EagleCase kCases[] = {{"eagle1", "eagle1", "models/stories260K-hf"},
                                {"eagle2", "eagle1", "models/stories260K-hf"},
                                {"eagle3", "eagle3", "models/stories260K-hf"},
                                {"eagle3_l8", "eagle3_l8", "golden/eagle/eagle3_l8/base"}};

std::string Folder(const char* name) { return SharedDir() + "/golden/eagle/" + name; }

EngineOptions OptionsOf(const EagleCase& eagle) {
  EngineOptions options;
  options.model = SharedDir() + "/" + eagle.base;
  options.draft = Folder(eagle.heads);
  options.load_tokenizer = false;
  return options;
}

GenerationRequest RequestOf(const Json& json, const Json& one) {
  GenerationRequest request;
  request.prompt_ids = Ids(one.at("prompt_ids"));
  request.stop.ignore_eos = true;
  for (const Json& emitted : one.at("num_emitted")) request.stop.max_tokens += emitted.get<int32_t>();
  request.stop.max_tokens -= StopOptions().max_tokens - 1;
  if (json.contains("tree_choices")) {
    request.tree = base::DumpJson(json.at("tree_choices"));
  } else {
    const Json& params = one.at("params");
    request.tree = "dynamic";
    request.dynamic = {.nodes = params.at("total_token").get<int32_t>() - 1,
                       .depth = params.at("depth").get<int32_t>() + 1,
                       .width = params.at("top_k").get<int32_t>()};
  }
  return request;
}

// The tokens from the root to each node, by these. Their order of nodes is another one.
std::map<Path, int32_t> Paths(std::span<const int32_t> parents, std::span<const int32_t> tokens) {
  std::vector<Path> paths;
  std::map<Path, int32_t> nodes;
  for (size_t n = 0; n < parents.size(); ++n) {
    paths.push_back(parents[n] < 0 ? Path() : paths[static_cast<size_t>(parents[n])]);
    paths.back().push_back(tokens[n]);
    nodes.emplace(paths.back(), static_cast<int32_t>(n));
  }
  return nodes;
}

std::vector<Path> Keys(const std::map<Path, int32_t>& nodes) {
  std::vector<Path> keys;
  for (const auto& [path, node] : nodes) keys.push_back(path);
  return keys;
}

void ExpectCase(Engine& engine, const Json& json, const Json& one) {
  const GenerationRequest request = RequestOf(json, one);
  size_t step = 0;
  const GenerationResult result = engine.Generate(request, [&](const Emission& emission) {
    if (emission.step == nullptr || step >= one.at("steps").size()) return true;
    const Json& expected = one.at("steps").at(step++);
    const std::vector<int32_t> parents = Ids(expected.at("parents")), tokens = Ids(expected.at("tokens"));
    EXPECT_EQ(Keys(Paths(emission.step->parents, emission.step->tokens)), Keys(Paths(parents, tokens))) << step;
    Path accepted;
    for (const int32_t node : emission.step->accepted) {
      accepted.push_back(emission.step->tokens[static_cast<size_t>(node)]);
    }
    Path theirs = Ids(expected.at("accepted_tokens"));
    if (theirs.size() == expected.at("accepted_path").size()) theirs.erase(theirs.begin());  // the root
    EXPECT_EQ(accepted, theirs) << step;
    return true;
  });
  EXPECT_EQ(step, one.at("steps").size());
  const std::vector<int32_t> lengths = Ids(one.at("num_emitted")), tokens = Ids(one.at("output_ids"));
  ASSERT_GE(result.num_emitted.size(), lengths.size());
  EXPECT_TRUE(std::equal(lengths.begin(), lengths.end(), result.num_emitted.begin()));
  ASSERT_GE(result.token_ids.size(), tokens.size());
  EXPECT_TRUE(std::equal(tokens.begin(), tokens.end(), result.token_ids.begin()));
}

TEST(GoldenEagle, TreesTokensAndAcceptedLengthsEqualTheAuthors) {
  HYDRANT_NEED_SHARED();
  for (const EagleCase& eagle : kCases) {
    const Json json = base::ReadJsonFile(Folder(eagle.name) + "/case.json");
    Engine engine(OptionsOf(eagle));
    for (size_t i = 0; i < json.at("cases").size(); ++i) {
      SCOPED_TRACE(std::string(eagle.name) + " case " + std::to_string(i));
      ExpectCase(engine, json, json.at("cases").at(i));
    }
  }
}

// The logits after the root, and after the best node of the first level.
TEST(GoldenEagle, LogitsEqualTheAuthors) {
  HYDRANT_NEED_SHARED();
  for (const EagleCase& eagle : kCases) {
    SCOPED_TRACE(eagle.name);
    std::map<std::string, Values> expected = ReadValues(Folder(eagle.name) + "/tensors.safetensors");
    const auto source = checkpoint::OpenTensorFile(Folder(eagle.name) + "/tensors.safetensors");
    const auto ids_of = [&](const std::string& name) {
      const TensorView& view = source->Find(name)->view;
      const auto* ids = reinterpret_cast<const int64_t*>(view.data);
      return std::vector<int32_t>(ids, ids + view.num_elements());
    };
    const auto loaded = load::LoadModel(OptionsOf(eagle));
    const int32_t first = ids_of("step0.level1.ids").front();
    const eval::EvalLogitsResult result = eval::EvalLogits(*loaded, ids_of("prompt_ids"), {first});
    EXPECT_LE(LargestDifference(result.logits, expected.at("base.logits")), kTolerance);
    // The draft's own vocabulary, in the order of its rows.
    std::vector<int32_t> tokens(static_cast<size_t>(result.head_logits.cols()));
    for (size_t t = 0; t < tokens.size(); ++t) tokens[t] = static_cast<int32_t>(t);
    std::erase_if(tokens, [&](int32_t t) { return std::isinf(result.head_logits.row(0)[t]); });
    const std::vector<float>&root = expected.at("step0.draft_logits").data,
          &level = expected.at("step0.level1.logits").data;
    ASSERT_EQ(root.size(), tokens.size());
    for (size_t t = 0; t < tokens.size(); ++t) {
      EXPECT_NEAR(result.head_logits.row(0)[tokens[t]], root[t], kTolerance) << tokens[t];
      EXPECT_NEAR(result.head_logits.row(1)[tokens[t]], level[t], kTolerance) << tokens[t];
    }
  }
}

}  // namespace
}  // namespace hydrant::test::golden_eagle_test
