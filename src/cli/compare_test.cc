// SPDX-License-Identifier: Apache-2.0
// `run --compare-plain` and the choice among ways of drafting, by the built program.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <string>
#include <vector>

#include "base/json.h"
#include "tests/program.h"

namespace hydrant::test::compare_test {
namespace {

using testing::HasSubstr;

TEST(CompareTest, RunTriesEveryTreeWithEveryDraftPMin) {
  const std::vector<std::string> trees = {"[[0]]", "[[0],[0,0]]"}, p_mins = {"0", "0.2", "1"};
  std::vector<std::string> args = {"run",        "--model",        Model(),    "--draft",          Heads(),
                                   "--template", "none",           "--prompt", "Once upon a time", "--max-tokens",
                                   "24",         "--compare-plain"};
  for (const std::string& tree : trees) args.insert(args.end(), {"--tree", tree});
  for (const std::string& p_min : p_mins) args.insert(args.end(), {"--draft-p-min", p_min});
  const Outcome text = Hydrant(args);
  EXPECT_EQ(text.code, 0) << text.err;
  EXPECT_THAT(text.out, HasSubstr("\ntrying chain of "));  // the slowest of six is left out
  EXPECT_THAT(text.out, HasSubstr("; used: chain of "));
  EXPECT_THAT(text.out, HasSubstr("\nagain "));
  args.push_back("--json");
  const Json json = JsonOf(Hydrant(args));
  const Json &compare = json["compare"], &tried = compare["tried"];
  ASSERT_EQ(tried.size(), 6U);
  for (size_t i = 0; i < 6; ++i) {
    EXPECT_EQ(tried[i]["choices"], Json::parse(trees[i / 3]));
    EXPECT_EQ(tried[i]["draft_p_min"], Json::parse(p_mins[i % 3]));
    const double nodes = i < 3 ? 1 : 2, drafted = tried[i]["drafted_per_step"];
    EXPECT_TRUE(i % 3 == 0   ? drafted == nodes
                : i % 3 == 1 ? drafted > 0 && drafted < nodes
                             : drafted < 0.2)
        << drafted << " nodes a step, way " << i;
  }
  const Json& again = compare["tried_again"];
  EXPECT_EQ(again.size(), 4U) << "the fastest of six, none of which looks up";
  const auto is_chosen = [&](const Json& way) {
    return way["choices"] == compare["drafted"]["choices"] && way["draft_p_min"] == compare["drafted"]["draft_p_min"];
  };
  const auto chosen = std::ranges::find_if(again, is_chosen);
  ASSERT_NE(chosen, again.end());
  EXPECT_NE(compare["drafted"]["tokens_per_second"], (*chosen)["tokens_per_second"]) << "it has runs of its own";
  EXPECT_EQ(json["tree"]["choices"], compare["drafted"]["choices"]);
  EXPECT_EQ(json["draft_p_min"], compare["drafted"]["draft_p_min"]);
  EXPECT_GE(compare["rounds"], 3);
  EXPECT_GT(compare["speedup"].get<double>(), 0);
}

TEST(CompareTest, LookupsStandBesideHeadsAloneAndPlainDecoding) {
  std::vector<std::string> args = {"run", "--model", Model(), "--draft", Heads(), "--template", "none"};
  args.insert(args.end(), {"--prompt", "Once upon a time", "--max-tokens", "40", "--compare-plain", "--json"});
  args.insert(args.end(), {"--tree", "[[0]]", "--lookup", "0", "--lookup", "6", "--lookup-min", "1"});
  for (const char* p_min : {"0", "0.1", "0.2", "0.3", "0.4"}) args.insert(args.end(), {"--draft-p-min", p_min});
  const Json json = JsonOf(Hydrant(args));
  const Json& compare = json["compare"];
  ASSERT_EQ(compare["tried"].size(), 10U);
  EXPECT_EQ(compare["tried"][0]["lookup"], 0);
  EXPECT_EQ(compare["tried"][1]["lookup"], 6);
  const Json& again = compare["tried_again"];
  EXPECT_EQ(std::ranges::count_if(again, [](const Json& way) { return way["lookup"] == 0; }), 4);
  EXPECT_LE(again.size(), 8U);
  EXPECT_EQ(json["lookup"], compare["drafted"]["lookup"]);
  EXPECT_EQ(json["lookup_min"], 1);
  EXPECT_EQ(json["lookup_rule"], "last");
  EXPECT_EQ(json["lookup_max_match"], 64);
  const bool looks_up = compare["drafted"]["lookup"] == 6;
  EXPECT_EQ(compare.contains("heads_alone"), looks_up);
  EXPECT_EQ(json["num_lookup_steps"] > 0, looks_up);
  if (looks_up) {
    EXPECT_EQ(compare["heads_alone"]["lookup"], 0);
    EXPECT_GT(compare["heads_alone"]["speedup"].get<double>(), 0);
  }
}

TEST(CompareTest, LookupsNeedNoHeads) {
  const Outcome outcome =
      Hydrant({"run", "--model", Model(), "--template", "none", "--prompt", "Once upon a time", "--lookup", "6",
               "--lookup-min", "1", "--max-tokens", "40", "--compare-plain", "--stats"});
  EXPECT_EQ(outcome.code, 0) << outcome.err;
  EXPECT_THAT(outcome.out, HasSubstr("\nwith lookup  "));
  EXPECT_THAT(outcome.out, HasSubstr("All 40 tokens are equal."));
  EXPECT_THAT(outcome.err, HasSubstr(" looked up, in "));
}

}  // namespace
}  // namespace hydrant::test::compare_test
