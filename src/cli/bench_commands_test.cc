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

TEST(BenchCommandsTest, LatencyTakesTheDraftingFlagsOfRun) {
  const auto methods = [](std::vector<std::string> more) {
    std::vector<std::string> command = {"bench", "latency", "--max-tokens", "24", "--runs", "1", "--json"};
    command.insert(command.end(), more.begin(), more.end());
    return JsonOf(Hydrant(command))["methods"];
  };
  const Json chain = methods({"--draft-depth", "2"});
  EXPECT_EQ(chain[1]["tree"]["name"], "chain of 2");
  const Json lookup = methods({"--model", Model(), "--lookup", "8"});
  ASSERT_EQ(lookup.size(), 2U);
  EXPECT_EQ(lookup[1]["name"], "lookup");
  EXPECT_GT(lookup[1]["tokens_per_step"], 1);
  const Json grown =
      methods({"--shape", "tale", "--heads", "eagle", "--tree", "dynamic", "--draft-nodes", "5", "--draft-depth", "2"});
  EXPECT_EQ(grown[1]["tree"]["nodes"], 5);
  ExpectRefused({"bench", "latency", "--model", Model(), "--draft-nodes", "4"}, "--draft-nodes needs draft heads");
  ExpectRefused({"bench", "latency", "--tree", "chain", "--tree", "auto"}, "--tree is given several times");
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

TEST(BenchCommandsTest, BatchDecodesSequencesOfTheEmbeddedModelTogether) {
  const Outcome outcome = Hydrant(
      {"bench", "batch", "--sequences", "1,3", "--tokens", "6", "--prompt-tokens", "9", "--rounds", "1", "--json"});
  const Json json = JsonOf(outcome);
  EXPECT_EQ(json["prompt_tokens"], 9);
  EXPECT_EQ(json["rounds"], 1);
  EXPECT_EQ(json["texts_equal"], true);
  ASSERT_EQ(json["methods"].size(), 2U);
  EXPECT_EQ(json["methods"][0]["name"], "plain");
  EXPECT_EQ(json["methods"][1]["name"], "hydra++");
  const Json& rows = json["methods"][0]["rows"];
  ASSERT_EQ(rows.size(), 2U);
  EXPECT_EQ(rows[1]["sequences"], 3);
  EXPECT_EQ(rows[1]["tokens_per_step"], 1);
  EXPECT_GT(rows[1]["decode_tokens_per_second"], 0);
  const Json plain = JsonOf(Hydrant({"bench", "batch", "--model", Model(), "--sequences", "2", "--tokens", "2",
                                     "--prompt-tokens", "1", "--rounds", "1", "--json"}));
  EXPECT_EQ(plain["methods"].size(), 1U);
  ExpectRefused({"bench", "batch", "--sequences", "2,2"}, "--sequences has 2 twice");
  ExpectRefused({"bench", "batch", "--sequences", "0"}, "--sequences is \"0\"");
  ExpectRefused({"bench", "batch", "--model", Model(), "--tree", "chain"}, "--tree needs draft heads");
  ExpectRefused({"bench", "batch", "--model", Model(), "--tokens", "4000", "--prompt-tokens", "4000"},
                "is more than the");
}

TEST(BenchCommandsTest, BatchDecodesTheWholeSuiteByEachTree) {
  const TempDir dir;
  const std::string suite = dir.Write("suite.txt", "Once upon a time\nA bird\nHello\n");
  const Json json = JsonOf(Hydrant({"bench", "batch", "--suite", suite, "--sequences", "1,2", "--tokens", "12",
                                    "--tree", "chain", "--tree", "[[0],[1]]", "--rounds", "1", "--json"}));
  EXPECT_EQ(json["suite"], suite);
  EXPECT_EQ(json["prompt_tokens"], Json());
  ASSERT_EQ(json["methods"].size(), 3U);
  EXPECT_EQ(json["methods"][1]["name"], "hydra++, chain");
  EXPECT_EQ(json["methods"][2]["name"], "hydra++, [[0],[1]]");
  const Json &plain = json["methods"][0]["rows"][1], &chain = json["methods"][1]["rows"][1];
  EXPECT_EQ(plain["sequences"], 2);
  EXPECT_EQ(plain["tree"], Json());
  EXPECT_EQ(plain["nodes_per_step"], 0);
  EXPECT_EQ(chain["tree"], "chain");
  EXPECT_EQ(chain["nodes_per_step"], 4);
  EXPECT_EQ(json["methods"][2]["rows"][0]["nodes_per_step"], 2);
  EXPECT_GT(chain["draft_ms"], 0);
  EXPECT_GT(chain["forward_ms"], 0);
  EXPECT_GE(chain["num_emitted"], chain["tokens_per_step"]);
  EXPECT_FALSE(plain.contains("decode_tokens_per_second")) << "prompts are read all along";
  const Json lookup = JsonOf(Hydrant({"bench", "batch", "--model", Model(), "--lookup", "4", "--sequences", "1",
                                      "--tokens", "40", "--rounds", "1", "--json"}));
  EXPECT_EQ(lookup["methods"][1]["name"], "lookup");
  EXPECT_GT(lookup["methods"][1]["rows"][0]["nodes_per_step"], 0);
  const Json as_many = JsonOf(Hydrant({"bench", "batch", "--model", Model(), "--suite", suite, "--tokens", "4",
                                       "--rounds", "1", "--ignore-eos", "--json"}));
  EXPECT_EQ(as_many["methods"][0]["rows"].size(), 2U) << "1 and 2: there are three prompts";
  EXPECT_EQ(as_many["drafting"]["lookup"]["tokens"], 0);
  EXPECT_EQ(as_many["ignore_eos"], true);
  EXPECT_EQ(json["ignore_eos"], false);
  ExpectRefused({"bench", "batch", "--ignore-eos"}, "--ignore-eos is for the prompts of --suite");
  ExpectRefused({"bench", "batch", "--tree", "chain", "--tree", "chain"}, "--tree chain is given twice");
  ExpectRefused({"bench", "batch", "--model", Model(), "--suite", suite, "--sequences", "4"},
                "suite.txt has 3 prompts");
  ExpectRefused({"bench", "batch", "--suite", suite, "--prompt-tokens", "4"}, "--suite names others");
  ExpectRefused({"bench", "batch", "--model", Model(), "--suite", suite, "--sequences", "1", "--tokens", "9999"},
                "prompt 1 of ");
  ExpectRefused({"bench", "batch", "--suite", dir.path() + "/none"}, "none");
  ExpectRefused({"bench", "batch", "--template", "none"}, "--template is for the prompts of --suite");
  ExpectRefused({"bench", "batch", "--draft-nodes", "4"}, "--draft-nodes is for dynamic trees");
  ExpectRefused({"bench", "batch", "--lookup", "4", "--lookup", "5"}, "--lookup is given several times");
}

TEST(BenchCommandsTest, ServeRefusesWhatCannotBeMeasured) {
  const TempDir dir;
  const std::string url = "http://127.0.0.1:1", suite = dir.Write("suite.txt", "Once upon a time\n");
  ExpectRefused({"bench", "serve", "--suite", suite}, "--url is needed");
  ExpectRefused({"bench", "serve", "--url", url}, "--suite is needed");
  ExpectRefused({"bench", "serve", "--url", "127.0.0.1:1", "--suite", suite}, "does not begin with http://");
  ExpectRefused({"bench", "serve", "--url", url, "--suite", suite}, "nobody answers there");
  ExpectRefused({"bench", "serve", "--url", url, "--suite", dir.path() + "/none"}, "none");
  ExpectRefused({"bench", "serve", "--url", url, "--suite", dir.Write("bad.jsonl", "{\"turns\": [\"a\"]}\n{}\n")},
                "bad.jsonl line 2: the JSON value is {}, expected");
  const auto refused = [&](std::vector<std::string> more, const std::string& text) {
    more.insert(more.begin(), {"bench", "serve", "--url", url, "--suite", suite});
    ExpectRefused(more, text);
  };
  refused({"--rate", "1", "--concurrency", "1"}, "--rate and --concurrency exclude one another");
  refused({"--chat", "--completions"}, "--chat and --completions exclude one another");
  refused({"--max-open", "3"}, "--max-open is for --rate");
  refused({"--concurrency", "1,1"}, "--concurrency has 1 twice");
  refused({"--rate", "0"}, "--rate is \"0\"");
  refused({"--api-key-file", dir.Write("keys", "# none\n")}, "keys: has no API key");
}

}  // namespace
}  // namespace hydrant::test::bench_commands_test
