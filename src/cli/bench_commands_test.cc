// SPDX-License-Identifier: Apache-2.0
// The benchmarks as their users and scripts meet them.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <fstream>
#include <string>
#include <vector>

#include "base/json.h"
#include "tests/program.h"

namespace hydrant::test::bench_commands_test {
namespace {

TEST(BenchCommandsTest, LatencyRunsRandomWeightsOfAShapeWithRandomHeads) {
  const Json json = JsonOf(Hydrant({"bench", "latency", "--shape", "tale", "--heads", "medusa,hydra++",
                                    "--head-weights", "w8a8", "--max-tokens", "8", "--runs", "1", "--json"}));
  EXPECT_EQ(json["shape"], "tale");
  EXPECT_EQ(json["model"], nullptr);
  EXPECT_EQ(json["weights"], "w4a8");
  EXPECT_EQ(json["prompt_tokens"], 16);
  EXPECT_EQ(json["tokens"], 8);
  EXPECT_EQ(json["texts_equal"], true);
  ASSERT_EQ(json["methods"].size(), 3U);
  EXPECT_EQ(json["methods"][1]["name"], "medusa");
  EXPECT_EQ(json["methods"][2]["name"], "hydra++");
  EXPECT_EQ(json["methods"][2]["draft"], nullptr);
  EXPECT_EQ(json["methods"][2]["head_weights"], "w8a8");
}

TEST(BenchCommandsTest, LatencyOfAShapeRefusesWhatIsOfAFolder) {
  const std::vector<std::string> command = {"bench", "latency", "--shape", "tale"};
  const auto refused = [&command](std::vector<std::string> more, const std::string& text) {
    more.insert(more.begin(), command.begin(), command.end());
    ExpectRefused(more, text);
  };
  refused({"--prompt", "x"}, "without a tokenizer, and --prompt is for those of a folder");
  refused({"--model", Model()}, "--model is for those of a folder");
  refused({"--draft", Heads()}, "--draft is for those of a folder");
  refused({"--weights", "stored"}, "--weights is \"stored\", expected one of w4a8");
  refused({"--tree", "chain"}, "--tree needs draft heads\nhint:  give --heads");
  refused({"--max-tokens", "4096"}, "is more than the 4096 positions of --shape tale");
  refused({"--prompt-ids", "[4096]"}, "expected 0 to 4095");
  ExpectRefused({"bench", "latency", "--heads", "hydra++"}, "--heads is for random weights\nhint:  add --shape");
}

TEST(BenchCommandsTest, ListsAreTakenWithAndWithoutBrackets) {
  const auto rows = [](const std::string& list) {
    return JsonOf(Hydrant(
        {"bench", "step", "--shape", "tale", "--rows", list, "--seconds", "0", "--no-check", "--json"}))["rows"]
        .size();
  };
  EXPECT_EQ(rows("1,4"), 2U);
  EXPECT_EQ(rows("[1, 4]"), 2U);
  EXPECT_EQ(JsonOf(Hydrant({"bench", "latency", "--shape", "tale", "--heads", "[medusa, \"hydra\"]", "--prompt-ids",
                            "1,2,3", "--max-tokens", "2", "--runs", "1", "--json"}))["methods"]
                .size(),
            3U);
  const std::string text = JsonOf(Hydrant({"detokenize", "--model", Model(), "--ids", "[572,1066]"}))["text"];
  EXPECT_EQ(JsonOf(Hydrant({"detokenize", "--model", Model(), "--ids", "572,1066"}))["text"], text);
  for (const char* ids : {"1,572", "[1, 572]"}) {
    EXPECT_EQ(JsonOf(Hydrant(
                  {"run", "--model", Model(), "--prompt-ids", ids, "--max-tokens", "2", "--json"}))["prompt_token_ids"],
              Json({1, 572}));
  }
  const TempDir dir;
  std::ofstream(dir.path() + "/ids.json") << Hydrant({"tokenize", "--model", Model(), "--text", "the cat"}).out;
  const Json back = JsonOf(Hydrant({"detokenize", "--model", Model(), "--ids", dir.path() + "/ids.json"}));
  EXPECT_THAT(back["text"].get<std::string>(), testing::HasSubstr("the cat")) << "what tokenize printed";
  ExpectRefused({"detokenize", "--model", Model(), "--ids", "1,"}, "--ids is \"1,\", expected a token id behind");
  ExpectRefused({"bench", "step", "--rows", "[1,4"}, "--rows is \"[1,4\", expected numbers such as 1,4 or [1, 4]");
}

}  // namespace
}  // namespace hydrant::test::bench_commands_test
