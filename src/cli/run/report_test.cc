// SPDX-License-Identifier: Apache-2.0
#include "cli/run/report.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <array>
#include <set>
#include <sstream>
#include <string>

#include "base/json.h"
#include "cli/run/comparison_text.h"
#include "cli/run/speed_figures.h"
#include "cli/terminal/errors.h"
#include "cli/terminal/terminal.h"

namespace hydrant::cli::report_test {
namespace {

using testing::HasSubstr;

GenerationResult Sample() {
  GenerationResult result;
  result.token_ids = {5, 6, 7, 8};
  result.text = "caf\xc3\xa9";
  result.has_text = true;
  result.finish_reason = FinishReason::kStop;
  result.num_emitted = {2, 1};
  result.num_drafted = 4;
  result.token_depth = {0, 1, 0, 0};
  result.depth_offered = {2, 2};
  result.depth_accepted = {1, 0};
  result.tree.chosen.name = "chain";
  result.tree.chosen.choices = "[[0],[0,0]]";
  result.tree.chosen.nodes = 2;
  result.phase_ms = {.prefill = 500, .draft = 100, .forward = 1300, .verify = 60, .commit = 40};
  return result;
}

EngineInfo Info() {
  EngineInfo info;
  info.drafter = "hydra";
  info.cpu_target = "avx2";
  return info;
}

TEST(ReportTest, FiguresFollowTheirDefinitions) {
  const GenerationResult result = Sample();
  EXPECT_DOUBLE_EQ(TokensPerSecond(result), 2.0);        // 4 tokens in 2 s
  EXPECT_DOUBLE_EQ(DecodeTokensPerSecond(result), 2.0);  // 3 tokens in 1.5 s
  EXPECT_DOUBLE_EQ(result.tokens_per_step(), 1.5);       // 3 tokens in 2 steps
  EXPECT_DOUBLE_EQ(GenerationResult().tokens_per_step(), 1.0);
  EXPECT_EQ(result.num_accepted(), 1);
  EXPECT_DOUBLE_EQ(TokensPerSecond(GenerationResult()), 0.0);
}

TEST(ReportTest, JsonHasTheResultAndEverySetting) {
  RunOptions options;
  options.engine.model = "M";
  options.engine.draft = "D";
  options.request.sampling.temperature = 0.8F;
  options.request.sampling.seed = 18446744073709551615U;
  const std::array<int32_t, 2> prompt = {1, 2};
  const base::Json json = RunJson(options, "vicuna", Info(), prompt, Sample());
  EXPECT_EQ(json["text"], "caf\xc3\xa9");
  EXPECT_EQ(json["token_ids"], base::Json({5, 6, 7, 8}));
  EXPECT_EQ(json["prompt_token_ids"], base::Json({1, 2}));
  EXPECT_EQ(json["finish_reason"], "stop");
  EXPECT_EQ(json["num_emitted"], base::Json({2, 1}));
  EXPECT_EQ(json["tokens_per_step"], 1.5);
  EXPECT_EQ(json["num_accepted"], 1);
  EXPECT_EQ(json["phase_ms"]["forward"], 1300.0);
  EXPECT_EQ(json["tree"]["choices"], base::Json::parse("[[0],[0,0]]"));
  EXPECT_EQ(json["epsilon"], 0.09);
  std::istringstream keys(
      "tokens_per_second model draft drafter template system num_draft_vocab max_tokens top_k top_p min_p "
      "repetition_penalty "
      "presence_penalty frequency_penalty stop ignore_eos accept alpha root candidates threads cpu_target kv_type "
      "version");
  for (std::string key; keys >> key;) {
    EXPECT_TRUE(json.contains(key)) << key;
  }
  const std::string line = base::DumpJson(json);
  EXPECT_THAT(line, HasSubstr("\"temperature\":0.8,"));
  EXPECT_THAT(line, HasSubstr("\"seed\":18446744073709551615"));
  EXPECT_THAT(line, HasSubstr("caf\\u00e9"));
}

TEST(ReportTest, AutoTreesSayWhatWasChosenAndWhy) {
  RunOptions options;
  options.engine.draft = "D";
  GenerationResult result = Sample();
  result.tree.is_auto = true;
  result.tree.why = "chain gives 1.50 tokens";
  result.tree.problem = "not kept";
  result.tree.chosen = {
      .name = "chain", .choices = "[[0],[0,0]]", .nodes = 2, .steps = 2, .tokens_per_step = 1.5, .milliseconds = 3};
  result.tree.tried = {result.tree.chosen};
  const base::Json json = RunJson(options, "none", Info(), {}, result);
  EXPECT_EQ(json["tree"], "auto");
  EXPECT_EQ(json["tree_chosen"]["name"], "chain");
  EXPECT_EQ(json["tree_chosen"]["choices"], base::Json::parse("[[0],[0,0]]"));
  EXPECT_EQ(json["tree_chosen"]["why"], "chain gives 1.50 tokens");
  EXPECT_EQ(json["tree_chosen"]["tried"][0]["ms_per_step"], 3);
  EXPECT_EQ(json["warnings"], base::Json({"not kept"}));
  const std::string text = StatsText({}, result);
  EXPECT_THAT(text, HasSubstr("tree auto: chain (chain gives 1.50 tokens)"));
  EXPECT_THAT(text, HasSubstr("chain              2         1.50    3.000"));
}

TEST(ReportTest, TextIsNullWithoutATokenizer) {
  GenerationResult result = Sample();
  result.has_text = false;
  result.text.clear();
  const base::Json json = RunJson(RunOptions(), "none", Info(), {}, result);
  EXPECT_TRUE(json["text"].is_null());
  EXPECT_TRUE(json["draft"].is_null());
  EXPECT_TRUE(json["tree"].is_null());
}

TEST(ReportTest, StatsHaveMeanDepthsAndPhases) {
  const std::array<int32_t, 3> prompt = {1, 2, 3};
  const std::string text = StatsText(prompt, Sample());
  EXPECT_THAT(text, HasSubstr("prompt 3 tokens, output 4 tokens in 2 steps, finish: stop"));
  EXPECT_THAT(text, HasSubstr("tokens per step 1.500"));
  EXPECT_THAT(text, HasSubstr("drafted 4 tokens, 2.00 a step; 1 of them in the reply (25.0 %)"));
  EXPECT_THAT(text, HasSubstr("    1        2         1   50.0 %"));
  EXPECT_THAT(text, HasSubstr("forward      1300.0   65.0 %    650.000"));
}

TEST(ReportTest, ComparisonHasBothSpeedsAndTheirRatio) {
  const Comparison comparison{.tried = {},
                              .tried_again = {},
                              .drafted = {.name = "custom",
                                          .choices = "[[0]]",
                                          .nodes = 1,
                                          .p_min = 0,
                                          .lookup = 0,
                                          .figures = {3.5, 300, 0.75, 10, 1}},
                              .speedup = 2.99,
                              .heads_alone = {},
                              .heads_alone_speedup = 0,
                              .plain = {1, 100, 0, 9.5, 0},
                              .rounds = 5};
  const std::string text = ComparisonText(Info(), comparison, 40);
  EXPECT_THAT(text, HasSubstr("with hydra                    1.00         3.50      300.0       10.000     0.750"));
  EXPECT_THAT(text, HasSubstr("plain decoding                0.00         1.00      100.0        9.500     0.000"));
  EXPECT_THAT(text, HasSubstr("2.99x  (3.09x by forward and draft alone)"));  // 3.5 * 9.5 / 10.75
}

TEST(ReportTest, ComparisonOfATreeChosenBeforehandIsByItsLaterRuns) {
  const Comparison comparison{.tried = {{"a", "[[0]]", 1, 0, 0, {1.5, 150, 1, 10, 1}},
                                        {"b", "[[0],[0,0]]", 2, 0.125F, 0, {2, 180, 2, 11, 1.75}}},
                              .tried_again = {},
                              .drafted = {"b", "[[0],[0,0]]", 2, 0.125F, 0, {2, 170, 2, 12, 1.75}},
                              .speedup = 1.7,
                              .heads_alone = {},
                              .heads_alone_speedup = 0,
                              .plain = {1, 100, 0, 9.5, 0},
                              .rounds = 21};
  const std::string text = ComparisonText(Info(), comparison, 40);
  EXPECT_THAT(text, HasSubstr("trying chain of 2, p-min 0.125        1.75         2.00      180.0"));
  EXPECT_THAT(text, HasSubstr("trying chain of 1                     1.00         1.50      150.0"));
  EXPECT_LT(text.find("trying chain of 2"), text.find("trying chain of 1")) << "the fastest first";
  EXPECT_THAT(text, HasSubstr("with hydra                            1.75         2.00      170.0"));
  EXPECT_THAT(text, HasSubstr("     1.70x  ("));
  EXPECT_THAT(text, HasSubstr("; used: chain of 2, p-min 0.125."));
}

// They have no paths that could tell them apart.
TEST(ReportTest, GrownTreesAreCalledByTheirNames) {
  const Comparison comparison{.tried = {{"beam", "[]", 9, 0, 0, {1.5, 150, 1, 10, 1}},
                                        {"dynamic", "[]", 9, 0, 0, {2, 180, 2, 11, 1.75}},
                                        {"auto", "[]", 9, 0, 0, {2, 170, 2, 11, 1.75}}},
                              .tried_again = {},
                              .drafted = {"dynamic", "[]", 9, 0, 0, {2, 170, 2, 12, 1.75}},
                              .speedup = 1.7,
                              .heads_alone = {},
                              .heads_alone_speedup = 0,
                              .plain = {1, 100, 0, 9.5, 0},
                              .rounds = 21};
  const std::string text = ComparisonText(Info(), comparison, 40);
  for (const char* name : {"trying beam ", "trying dynamic ", "trying auto ", "; used: dynamic."}) {
    EXPECT_THAT(text, HasSubstr(name));
  }
}

TEST(ReportTest, ComparisonWithLookupHasHeadsAloneBesideIt) {
  const Comparison comparison{.tried = {},
                              .tried_again = {},
                              .drafted = {"b", "[[0]]", 1, 0, 8, {4, 200, 0.5, 10, 3}},
                              .speedup = 2,
                              .heads_alone = TreeSpeed{"a", "[[0],[0,0]]", 2, 0.5F, 0, {2, 130, 2, 12, 1.5}},
                              .heads_alone_speedup = 1.3,
                              .plain = {1, 100, 0, 9.5, 0},
                              .rounds = 3};
  const std::string text = ComparisonText(Info(), comparison, 40);
  EXPECT_THAT(text, HasSubstr("with hydra and lookup         3.00         4.00      200.0"));
  EXPECT_THAT(text, HasSubstr("with hydra alone              1.50         2.00      130.0"));
  EXPECT_THAT(text, HasSubstr("     2.00x  ("));
  EXPECT_THAT(text, HasSubstr("speedup of heads alone  "));
  EXPECT_THAT(text, HasSubstr("     1.30x  ("));
  EXPECT_THAT(text, HasSubstr("; used: chain of 1, lookup 8."));
}

// As the demo has it: 5 trees, 2 smallest probabilities, 3 lookups.
Comparison OfThirtyWays() {
  Comparison comparison{.tried = {},
                        .tried_again = {},
                        .drafted = {"custom", "[[0],[1]]", 2, 0.15F, 8, {4, 200, 0.5, 10, 3}},
                        .speedup = 2,
                        .heads_alone = TreeSpeed{"custom", "[[0],[0,0]]", 2, 0.15F, 0, {2, 130, 2, 12, 1.5}},
                        .heads_alone_speedup = 1.3,
                        .plain = {1, 100, 0, 9.5, 0},
                        .rounds = 3};
  double speed = 100;
  for (const auto& [name, choices] : std::initializer_list<std::pair<const char*, const char*>>{
           {"custom", "[[0]]"},
           {"custom", "[[0],[0,0]]"},
           {"custom", "[[0],[1]]"},
           {"custom", "[[0],[1],[0,0]]"},
           {"/a/very/long/path/to/the/folder/of/the/heads/trees.json", "[[0],[0,0],[1]]"}}) {
    for (const float p_min : {0.0F, 0.15F}) {
      for (const int32_t lookup : {0, 4, 8}) {
        comparison.tried.push_back({name, choices, 2, p_min, lookup, {2, speed += 1, 2, 10, 1}});
      }
    }
  }
  comparison.tried_again.assign(comparison.tried.end() - 8, comparison.tried.end());
  return comparison;
}

TEST(ReportTest, ComparisonOfManyWaysHasTwelveRowsInLineAndTellsTreesApart) {
  const std::string text = ComparisonText(Info(), OfThirtyWays(), 40);
  std::istringstream lines(text);
  std::string line;
  std::getline(lines, line);
  const size_t end = line.find(" nodes/step") + 11, speed_end = line.find(" tokens/s ") + 9;
  EXPECT_LE(line.size(), 100U);
  size_t rows = 0;
  std::set<std::string> names;
  for (; std::getline(lines, line) && line.find("fastest") == std::string::npos; ++rows) {
    EXPECT_TRUE(names.insert(line.substr(0, end - 8)).second) << line;
    EXPECT_EQ(line.find_first_of(' ', line.find_last_of(' ', speed_end - 1) + 1), speed_end) << line;
  }
  EXPECT_EQ(rows, 12U);
  EXPECT_THAT(
      text,
      HasSubstr("The fastest 3 of 30 ways are shown, and 4 of 8 tried again; 27 were slower (all with --json).\n"));
  EXPECT_THAT(text, HasSubstr("\ntrees.json: 3 nodes\n"));
  EXPECT_THAT(text, HasSubstr("\ntree A: 2 nodes, [[0],[1]]\n"));
  EXPECT_THAT(text, testing::Not(HasSubstr("/a/very")));
}

TEST(ReportTest, ALimitThatEndedAReplyIsSaid) {
  GenerationResult result = Sample();
  EXPECT_EQ(LimitText(result, Info(), "--max-tokens N"), "");
  result.finish_reason = FinishReason::kLength;
  EXPECT_EQ(LimitText(result, Info(), "--max-tokens N"), "(stopped at 4 tokens; --max-tokens N for more)\n");
  result.finish_reason = FinishReason::kContext;
  EXPECT_THAT(LimitText(result, Info(), ""), HasSubstr("fill the model's context of "));
}

TEST(ReportTest, MedianIsOfTheRuns) {
  std::array<GenerationResult, 3> results = {Sample(), Sample(), Sample()};
  results[0].phase_ms.forward = 100000;
  results[2].phase_ms.forward = 0;
  const SpeedFigures median = MedianFigures(results);
  EXPECT_DOUBLE_EQ(median.tokens_per_second, 2.0);
  EXPECT_DOUBLE_EQ(median.forward_ms, 650.0);
  EXPECT_DOUBLE_EQ(median.tokens_per_step, 1.5);
  for (GenerationResult& result : results) result.num_emitted = {2, 4};  // of which the last 3 were cut
  EXPECT_DOUBLE_EQ(MedianFigures(results).tokens_per_step, 1.5);
  EXPECT_DOUBLE_EQ(MedianFigures(std::array<GenerationResult, 1>{}).tokens_per_step, 1);
  EXPECT_EQ(SpeedupOfSteps(median, {}), 0);
  EXPECT_EQ(SpeedupOfSteps({}, median), 0);
}

TEST(ErrorsTest, HintStandsUnderTheErrorAndControlCharactersAreShown) {
  EXPECT_EQ(ErrorText("f: bad\nmore", "do this"), "error: f: bad\n       more\nhint:  do this\n");
  EXPECT_EQ(ErrorText("a\x1b[2Jb", ""), "error: a\\x1b[2Jb\n");
}

TEST(TerminalTest, ColourEndsBeforeALineEnd) {
  EXPECT_EQ(ColoredByDepth("plain", 0), "plain");
  EXPECT_EQ(ColoredByDepth("a\nb", 1), "\x1b[38;5;16;48;5;157ma\x1b[0m\n\x1b[38;5;16;48;5;157mb\x1b[0m");
  EXPECT_EQ(ColoredByDepth("\n", 2), "\n");
  EXPECT_EQ(ColoredByDepth("x", 99), ColoredByDepth("x", 6));
}

}  // namespace
}  // namespace hydrant::cli::report_test
