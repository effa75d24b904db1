// SPDX-License-Identifier: Apache-2.0
// Parity with the authors' own code on small models: logits, tokens and accepted lengths, greedy and typical.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <map>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "checkpoint/safetensors_writer.h"
#include "draft/heads/medusa_weights.h"
#include "eval/logits.h"
#include "tests/golden_case.h"
#include "tests/test_data.h"

namespace hydrant::test::golden_heads_test {
namespace {

// f32 against f32 in another order of addition: the cases' authors measured 1.1e-5 against f64 and suggest these.
constexpr float kLogitTolerance = 1e-4F;
constexpr float kHiddenTolerance = 5e-5F;

// One network drafts every depth of these; its authors recorded the logits of a whole tree.
bool IsOneModule(const base::Json& json) { return json.value("arch", "").ends_with("-attn"); }

// Whether the authors' drafts of a run are those of their own description. The tree mask of eagle-attn lets nodes see
// others than their ancestors where a level has more than one row, and its rows of accepted tokens read the base's
// argmax instead, which is another token under typical acceptance (shared/golden/hydra/README.md, quirks 6 and 7).
bool DraftsAreRight(const base::Json& json, const base::Json& run) {
  return json.value("arch", "") != "eagle-attn" || run.at("choices") == "chain";
}

// The tokens from below the root to each node of depth `depth` that has children, in the order of the tree.
std::vector<std::vector<int32_t>> ExpandedPaths(const base::Json& json, size_t depth) {
  const base::Json& probe = json.at("probe");
  const auto choices =
      json.at("trees").at(probe.at("proposal_tree").get<std::string>()).get<std::vector<std::vector<int32_t>>>();
  const std::vector<int32_t> tokens = Ids(probe.at("proposal_tree_tokens"));
  const auto token_at = [&](std::span<const int32_t> choice) {
    const auto same = [&](const auto& other) { return std::ranges::equal(other, choice); };
    return tokens.at(static_cast<size_t>(std::ranges::find_if(choices, same) - choices.begin()) + 1);
  };
  std::vector<std::vector<int32_t>> paths;
  for (const std::vector<int32_t>& child : choices) {
    if (child.size() != depth + 1 || child.back() != 0) continue;
    paths.emplace_back();
    for (size_t d = 1; d <= depth; ++d) paths.back().push_back(token_at(std::span(child).first(d)));
  }
  return paths;
}

// `evaluate(path)`: the heads' logits along it.
template <typename Evaluate>
void ExpectLevelLogits(const base::Json& json, const std::map<std::string, Values>& expected, Evaluate evaluate) {
  const bool is_eagle = json.at("arch") == "eagle-attn";
  // Of eagle-attn's levels the root's and the first row of the next are free of the wrong mask.
  for (size_t depth = 0; depth < (is_eagle ? 2 : 4); ++depth) {
    const Values& level = expected.at("level_logits_" + std::to_string(depth));
    const std::vector<std::vector<int32_t>> paths = ExpandedPaths(json, depth);
    ASSERT_EQ(static_cast<int64_t>(paths.size()), level.shape.at(0));
    for (size_t n = 0; n < (is_eagle ? 1 : paths.size()); ++n) {
      const Matrix logits = evaluate(paths[n]);
      float largest = 0;
      for (int64_t c = 0; c < logits.cols(); ++c) {
        const float theirs = level.data.at(n * static_cast<size_t>(logits.cols()) + static_cast<size_t>(c));
        largest = std::max(largest, std::abs(logits.row(static_cast<int64_t>(depth))[c] - theirs));
      }
      EXPECT_LE(largest, kLogitTolerance) << "depth " << depth << " row " << n;
    }
  }
}

void ExpectLogits(const HeadCase& head_case) {
  const auto expected = ReadValues(head_case.case_folder + "/tensors.safetensors");
  const base::Json& probe = head_case.json.at("probe");
  EngineOptions options;
  options.model = head_case.base;
  options.draft = head_case.folder;
  const auto loaded = load::LoadModel(options);
  const auto along = [&](const std::vector<int32_t>& path) {
    return eval::EvalLogits(*loaded, Ids(probe.at("prompt")), path);
  };
  const auto evaluate = [&](const char* path) {
    return along(probe.contains(path) ? Ids(probe.at(path)) : std::vector<int32_t>());
  };
  const eval::EvalLogitsResult top = evaluate("path_top");
  EXPECT_LE(LargestDifference(top.logits, expected.at("base_logits")), kLogitTolerance);
  EXPECT_LE(LargestDifference(top.hidden, expected.at("base_hidden")), kHiddenTolerance);
  EXPECT_EQ(top.root, probe.at("root").get<int32_t>());
  if (IsOneModule(head_case.json)) {
    ExpectLevelLogits(head_case.json, expected, [&](const auto& path) { return along(path).head_logits; });
    return;
  }
  const std::string first = expected.contains("head_logits") ? "head_logits" : "head_logits_top";
  EXPECT_LE(LargestDifference(top.head_logits, expected.at(first)), kLogitTolerance);
  if (expected.contains("head_logits_second")) {
    const eval::EvalLogitsResult second = evaluate("path_second");
    EXPECT_LE(LargestDifference(second.head_logits, expected.at("head_logits_second")), kLogitTolerance);
    EXPECT_GT(LargestDifference(second.head_logits, expected.at("head_logits_top")), 0.01F) << "the path must matter";
  }
}

// The first step that a close call (two candidates almost equal) allows to differ; all steps when there is none.
size_t FirstCloseStep(const base::Json& run) {
  size_t first = std::numeric_limits<size_t>::max();
  for (const base::Json& call : run.value("close_calls", base::Json::array())) {
    if (call.contains("step")) first = std::min(first, call.at("step").get<size_t>());
  }
  return first;
}

GenerationRequest RequestFor(const base::Json& json, const base::Json& run) {
  GenerationRequest request;
  request.prompt_ids = Ids(json.at("prompts").at(run.at("prompt").get<size_t>()));
  request.stop.ignore_eos = true;  // their loop stops after the step, ours inside it
  request.stop.max_tokens = static_cast<int32_t>(run.at("output_ids").size()) + 1;
  const base::Json& rule = run.at("rule");
  if (rule.at("kind") == "typical") {
    request.accept.rule = AcceptRule::kTypical;
    request.accept.root = RootChoice::kArgmax;
    request.accept.epsilon = rule.at("epsilon").get<float>();
    request.accept.alpha = rule.at("alpha").get<float>();
    request.sampling.temperature = rule.at("temperature").get<float>();
  }
  return request;
}

// The drafted tokens and the accepted nodes of the steps that the case has in full.
void ExpectStep(const base::Json& expected, const StepTree& step, bool drafts_are_right) {
  std::vector<int32_t> tokens = Ids(expected.at("tree_tokens"));
  if (!drafts_are_right) {  // the root and its children
    const auto level = static_cast<size_t>(std::ranges::count(step.parents, 0)) + 1;
    ASSERT_GE(step.tokens.size(), level);
    tokens.resize(level);
    EXPECT_TRUE(std::ranges::equal(tokens, std::span(step.tokens).first(level)));
    return;
  }
  EXPECT_TRUE(std::ranges::equal(tokens, step.tokens));
  std::vector<int32_t> accepted = {0};
  accepted.insert(accepted.end(), step.accepted.begin(), step.accepted.end());
  EXPECT_EQ(accepted, Ids(expected.at("accepted_nodes")));
}

// Theirs: a step emits root and accepted nodes. Ours: accepted nodes and bonus, the root being the step before's bonus.
// So the emitted counts are the same list, and our tokens start with theirs.
void ExpectRun(Engine& engine, const base::Json& json, const base::Json& run) {
  const bool drafts_are_right = DraftsAreRight(json, run);
  size_t step = 0;
  const GenerationResult result = engine.Generate(RequestFor(json, run), [&](const Emission& emission) {
    // Where drafts differ, so do the steps after the first.
    if (emission.step == nullptr || step >= (drafts_are_right ? run.at("steps").size() : 1)) return true;
    SCOPED_TRACE("step " + std::to_string(step));
    ExpectStep(run.at("steps").at(step++), *emission.step, drafts_are_right);
    return true;
  });
  EXPECT_GT(step, 0U);
  std::vector<int32_t> lengths = Ids(run.at("num_emitted"));
  std::vector<int32_t> tokens = Ids(run.at("output_ids"));
  const size_t steps = std::min(lengths.size(), FirstCloseStep(run));
  lengths.resize(steps);
  const bool greedy = run.at("rule").at("kind") == "greedy";
  if (drafts_are_right) {
    ASSERT_GE(result.num_emitted.size(), steps);
    EXPECT_EQ(
        std::vector<int32_t>(result.num_emitted.begin(), result.num_emitted.begin() + static_cast<int64_t>(steps)),
        lengths);
  } else if (!greedy) {
    return;  // the text depends on the drafts
  }
  if (!greedy && steps < run.at("num_emitted").size()) {
    size_t known = 0;
    for (const int32_t length : lengths) known += static_cast<size_t>(length);
    tokens.resize(known);
  }
  ASSERT_GE(result.token_ids.size(), tokens.size());
  EXPECT_EQ(
      std::vector<int32_t>(result.token_ids.begin(), result.token_ids.begin() + static_cast<int64_t>(tokens.size())),
      tokens);
}

void ExpectRuns(const HeadCase& head_case) {
  for (const auto& [name, choices] : head_case.json.at("trees").items()) {
    EngineOptions options;
    options.model = head_case.base;
    options.draft = head_case.folder;
    options.tree = base::DumpJson(choices);
    Engine engine(options);
    for (size_t i = 0; i < head_case.json.at("runs").size(); ++i) {
      const base::Json& run = head_case.json.at("runs").at(i);
      if (run.at("choices") != name) continue;
      SCOPED_TRACE(head_case.folder + " run " + std::to_string(i) + " tree " + name);
      ExpectRun(engine, head_case.json, run);
    }
  }
}

class SharedHeads : public testing::TestWithParam<std::string> {};
GTEST_ALLOW_UNINSTANTIATED_PARAMETERIZED_TEST(SharedHeads);

TEST_P(SharedHeads, LogitsEqualTheAuthors) { ExpectLogits(ReadHeadCase(SharedDir() + "/golden/" + GetParam())); }

TEST_P(SharedHeads, TokensAndAcceptedLengthsEqualTheAuthors) {
  ExpectRuns(ReadHeadCase(SharedDir() + "/golden/" + GetParam()));
}

std::string CaseName(const testing::TestParamInfo<std::string>& info) {
  std::string name = info.param;
  std::replace_if(
      name.begin(), name.end(), [](char c) { return !std::isalnum(static_cast<unsigned char>(c)); }, '_');
  return name;
}

// None where the reference cases are not beside the checkout.
std::vector<std::string> SharedCases() {
  if (SharedDir().empty()) return {};
  return {"hydra/mlp_k4_l1",
          "hydra/mlp_k3_l2",
          "hydra/mlp_ungrounded_k4_l1",
          "hydra/mlp_offset1_k4_l1",
          "hydra/hydra_pp_k4_l4",
          "hydra/hydra_pp_safetensors",
          "hydra/prefix_mlp_k2_l1",
          "hydra/eagle_attn_k1",
          "hydra/cross_attn_k1",
          "medusa/a_k4_l1",
          "medusa/a_k3_l2",
          "medusa/c_v2_k4_l1",
          "medusa/a_k4_l1_config_says_2",
          "medusa/b_k4_l1_full",
          "medusa/b_k3_l2_full_bin",
          "medusa/b_k3_l2_full_deduped",
          "medusa/d_k4_l1_vllm",
          "medusa/d_k4_l1_vllm_prefixed",
          "medusa/d_k4_l1_vllm_token_map",
          "medusa/d_k4_l1_vllm_shared_lm_head",
          "medusa/e_k4_l1_trtllm",
          "medusa/f_k4_l1_peft"};
}

INSTANTIATE_TEST_SUITE_P(Shared, SharedHeads, testing::ValuesIn(SharedCases()), CaseName);

TEST(SharedHeadsTest, AreThere) {
  HYDRANT_NEED_SHARED();
  EXPECT_EQ(SharedCases().size(), 22U);
}

class CommittedHeads : public testing::TestWithParam<std::string> {};

TEST_P(CommittedHeads, LogitsTokensAndAcceptedLengthsEqualTheAuthors) {
  const HeadCase head_case = ReadHeadCase(SourceDir() + "/tests/golden/" + GetParam());
  ExpectLogits(head_case);
  ExpectRuns(head_case);
}

INSTANTIATE_TEST_SUITE_P(Committed, CommittedHeads,
                         testing::Values("hydra/mlp_k3_l2", "hydra/mlp_ungrounded_k4_l1", "hydra/prefix_mlp_k2_l1",
                                         "medusa/a_k3_l2", "medusa/c_v2_k4_l1"),
                         CaseName);

// The committed heads' tensors as another tool would write them, in a folder without a config.
void WriteInLayout(const draft::HeadLayout& layout, const std::string& folder) {
  const draft::HeadsFile heads = draft::OpenHeads(SourceDir() + "/tests/golden/medusa/a_k3_l2");
  draft::HeadsInfo as = heads.info;
  as.rows = &layout;
  std::vector<checkpoint::TensorEntry> entries;
  std::vector<TensorView> views;
  const std::unique_ptr<draft::HeadWeights> weights = heads.info.kind->make(heads, {});
  for (const draft::HeadPlace& place : weights->Places()) {
    const std::vector<checkpoint::TensorRow> from = draft::RowsOf(place, heads.info, {}, 0);
    const std::vector<checkpoint::TensorRow> to = draft::RowsOf(place, as, {}, 0);
    ASSERT_EQ(from.size(), to.size());
    for (size_t r = 0; r < from.size(); ++r) {
      const checkpoint::StoredTensor* stored = heads.tensors->Find(from[r].name);
      ASSERT_NE(stored, nullptr) << from[r].name;
      entries.push_back({to[r].name, stored->view.dtype, stored->view.shape});
      views.push_back(stored->view);
    }
  }
  checkpoint::SafetensorsWriter writer(folder + "/medusa_lm_head.safetensors", entries, {});
  for (const TensorView& view : views) writer.Write(view.data, view.num_bytes());
  writer.Finish();
}

Matrix HeadLogitsOf(const std::string& heads) {
  EngineOptions options;
  options.model = SourceDir() + "/tests/golden/base_mha";
  options.draft = heads;
  return eval::EvalLogits(*load::LoadModel(options), {1, 382, 395, 261}, {5}).head_logits;
}

TEST(CommittedHeadsTest, EveryLayoutOfMedusaHeadsGivesTheSameLogits) {
  const Matrix expected = HeadLogitsOf(SourceDir() + "/tests/golden/medusa/a_k3_l2");
  ASSERT_EQ(expected.rows(), 3);
  std::string layouts;
  for (const draft::HeadLayout& layout : draft::kMedusaKind.layouts) {
    const TempDir folder;
    WriteInLayout(layout, folder.path());
    const draft::HeadsInfo info = draft::OpenHeads(folder.path()).info;
    EXPECT_EQ(info.layout, layout.name);
    EXPECT_EQ(info.num_heads, 3);
    EXPECT_EQ(info.num_layers, 2);
    layouts += layout.name;
    const Matrix found = HeadLogitsOf(folder.path());
    for (int64_t row = 0; row < expected.rows(); ++row) {
      EXPECT_TRUE(std::ranges::equal(expected.row_span(row), found.row_span(row))) << layout.name << " " << row;
    }
  }
  EXPECT_EQ(layouts, "abddef");
}

}  // namespace
}  // namespace hydrant::test::golden_heads_test
