// SPDX-License-Identifier: Apache-2.0
// What `run` settles by itself and says, by the built program.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <string>
#include <vector>

#include "base/json.h"
#include "tests/program.h"

namespace hydrant::test::run_test {
namespace {

using testing::AllOf;
using testing::HasSubstr;
using testing::Not;

std::vector<std::string> Ids(const std::string& model, const std::vector<std::string>& more) {
  std::vector<std::string> args = {"run",      "--model",          model,          "--template", "none",
                                   "--prompt", "Once upon a time", "--max-tokens", "24"};
  args.insert(args.end(), more.begin(), more.end());
  return args;
}

std::string WithGenerationConfig(const TempDir& dir, const std::string& content) {
  std::filesystem::copy(Model(), dir.path());
  dir.Write("generation_config.json", content);
  return dir.path();
}

TEST(RunTest, AFilterWithoutATemperatureSamplesAndSaysSo) {
  const Json greedy = JsonOf(Hydrant(Ids(Model(), {"--json"})));
  EXPECT_EQ(greedy["temperature"], 0);
  EXPECT_EQ(greedy["temperature_from"], "default");
  const Json explicitly =
      JsonOf(Hydrant(Ids(Model(), {"--temperature", "1", "--top-p", "0.95", "--seed", "5", "--json"})));
  EXPECT_EQ(explicitly["temperature_from"], "flag");
  const Outcome outcome = Hydrant(Ids(Model(), {"--top-p", "0.95", "--seed", "5", "--json"}));
  const Json json = JsonOf(outcome);
  EXPECT_EQ(json["temperature"], 1);
  EXPECT_EQ(json["temperature_from"], "filter");
  EXPECT_EQ(json["token_ids"], explicitly["token_ids"]);
  EXPECT_NE(json["token_ids"], greedy["token_ids"]);
  EXPECT_THAT(outcome.err, HasSubstr("--top-p is given without --temperature: sampling at temperature 1\n"));
  EXPECT_EQ(std::ranges::count(outcome.err, '\n'), 1) << outcome.err;
  EXPECT_THAT(json["warnings"].dump(), HasSubstr("--top-p is given without --temperature"));
  for (const std::vector<std::string>& more : std::vector<std::vector<std::string>>{
           {"--top-k", "50"}, {"--min-p", "0.05"}, {"--top-k", "9", "--top-p", "1"}}) {
    std::vector<std::string> args = more;
    args.emplace_back("--json");
    const Outcome other = Hydrant(Ids(Model(), args));
    EXPECT_EQ(JsonOf(other)["temperature"], 1);
    EXPECT_THAT(other.err, HasSubstr(more[0] + " is given without --temperature"));
  }
  for (const auto& [flag, off] : {std::pair{"--top-k", "0"}, {"--top-p", "1"}, {"--min-p", "0"}}) {
    const Outcome other = Hydrant(Ids(Model(), {flag, off, "--json"}));
    EXPECT_EQ(JsonOf(other)["temperature"], 0) << flag;
    EXPECT_EQ(other.err, "") << flag;
  }
}

TEST(RunTest, ATemperatureOfZeroThatIsGivenIsGreedyBesideFilters) {
  const Outcome outcome = Hydrant(Ids(Model(), {"--temperature", "0", "--top-p", "0.9", "--json"}));
  EXPECT_EQ(JsonOf(outcome)["temperature"], 0);
  EXPECT_EQ(outcome.err, "");
}

TEST(RunTest, TheModelsOwnTemperatureIsTakenBesideAFilterOnly) {
  for (const char* config : {R"({"do_sample": true, "temperature": 0.6, "top_p": 0.9})", R"({"temperature": 0.6})",
                             R"({"do_sample": false, "temperature": 0.6})"}) {
    const TempDir dir;
    const std::string model = WithGenerationConfig(dir, config);
    EXPECT_EQ(JsonOf(Hydrant(Ids(model, {"--json"})))["temperature"], 0);
    const Outcome outcome = Hydrant(Ids(model, {"--top-k", "40", "--json"}));
    const Json json = JsonOf(outcome);
    EXPECT_EQ(json["temperature"], 0.6);
    EXPECT_EQ(json["temperature_from"], "generation_config.json");
    EXPECT_THAT(outcome.err, HasSubstr("temperature 0.6, that of the model's generation_config.json"));
    EXPECT_EQ(JsonOf(Hydrant(Ids(model, {"--top-k", "40", "--temperature", "1.5", "--json"})))["temperature"], 1.5);
  }
}

TEST(RunTest, AModelsTemperatureThatIsNoneIsOneOrRefused) {
  for (const char* config : {R"({"temperature": 0})", R"({"temperature": null})", "{}"}) {
    const TempDir dir;
    const std::string model = WithGenerationConfig(dir, config);
    EXPECT_EQ(JsonOf(Hydrant(Ids(model, {"--min-p", "0.1", "--json"})))["temperature"], 1) << config;
  }
  for (const char* config : {R"({"temperature": "hot"})", R"({"temperature": -1})", R"({"temperature": 1e9})"}) {
    const TempDir dir;
    const std::string model = WithGenerationConfig(dir, config);
    ExpectRefused(Ids(model, {"--min-p", "0.1"}), "generation_config.json: 'temperature' is ");
    EXPECT_EQ(Hydrant(Ids(model, {})).code, 0) << "nobody asked for it";
  }
}

TEST(RunTest, TypicalAcceptanceAtTemperatureZeroSaysWhatItIs) {
  const Outcome cold = Hydrant(Ids(Model(), {"--draft", Heads(), "--accept", "typical", "--json"}));
  EXPECT_THAT(cold.err, HasSubstr("--accept typical at temperature 0 is the exact rule"));
  EXPECT_THAT(JsonOf(cold)["warnings"].dump(), HasSubstr("is the exact rule"));
  EXPECT_EQ(JsonOf(cold)["token_ids"], JsonOf(Hydrant(Ids(Model(), {"--json"})))["token_ids"]);
  const Outcome warm =
      Hydrant(Ids(Model(), {"--draft", Heads(), "--accept", "typical", "--temperature", "0.7", "--json"}));
  EXPECT_THAT(warm.err, Not(HasSubstr("exact rule")));
  EXPECT_THAT(Hydrant(Ids(Model(), {"--draft", Heads(), "--accept", "typical", "--top-p", "0.9"})).err,
              AllOf(HasSubstr("sampling at temperature 1"), Not(HasSubstr("exact rule"))));
}

TEST(RunTest, AnEmptyPromptIsSaidToBeEmpty) {
  const TempDir dir;
  const std::string file = dir.Write("empty.txt", ""), blank = dir.Write("blank.txt", "\n \n");
  for (const char* name : {"none", "vicuna"}) {
    const std::vector<std::string> run = {"run", "--model", Model(), "--template", name};
    const auto with = [&](const char* flag, const std::string& value) {
      std::vector<std::string> args = run;
      args.insert(args.end(), {flag, value});
      return args;
    };
    ExpectRefused(with("--prompt", ""), "--prompt: is empty, expected the text of a prompt");
    ExpectRefused(with("--prompt-file", file), file + ": is empty");
    ExpectRefused(run, "standard input: is empty");  // from an empty file
    if (std::string(name) == "none") continue;
    ExpectRefused(with("--prompt", "  "),
                  "--prompt: is white space only, which template vicuna makes an empty message");
    ExpectRefused(with("--prompt-file", blank), blank + ": is white space only");
  }
  EXPECT_EQ(Hydrant({"run", "--model", Model(), "--template", "none", "--prompt", "\n", "--max-tokens", "2"}).code, 0);
}

TEST(RunTest, NothingIsSaidOfALimitWhereNobodyReads) { EXPECT_EQ(Hydrant(Ids(Model(), {})).err, ""); }

TEST(RunTest, KeepsWhatAutoTreesLearn) {
  const test::TempDir dir;
  const std::string memory = dir.path() + "/trees";
  const std::vector<std::string> args = {"run",          "--model",       Model(),        "--draft", Heads(),
                                         "--prompt-ids", "[334]",         "--max-tokens", "40",      "--ignore-eos",
                                         "--json",       "--tree-memory", memory};
  const Json first = JsonOf(Hydrant(args)), second = JsonOf(Hydrant(args));
  ASSERT_EQ(std::distance(std::filesystem::directory_iterator(memory), {}), 1);
  const auto steps_of_nothing = [](const Json& json) {
    return json["tree_chosen"]["tried"][0]["steps"].get<int64_t>();
  };
  EXPECT_GE(steps_of_nothing(first), 2) << "the first run measures plain steps";
  EXPECT_GE(second["tree_chosen"]["tried"].size(), first["tree_chosen"]["tried"].size());
  EXPECT_EQ(second["token_ids"], first["token_ids"]);
  // A file that cannot be used is said to be one, and replaced.
  const std::string file = std::filesystem::directory_iterator(memory)->path();
  for (const char* text : {"{", "{\"format\":2}", "[1]", "\xff"}) {
    std::ofstream(file, std::ios::binary) << text;
    const Json after = JsonOf(Hydrant(args));
    EXPECT_THAT(base::DumpJson(after["warnings"]), HasSubstr("learned before is not used")) << text;
    EXPECT_EQ(after["token_ids"], first["token_ids"]);
    EXPECT_THAT(ReadBack(file), HasSubstr("\"kinds\":[{"));
  }
  // A folder that cannot be written is a warning too: the text is there.
  std::vector<std::string> odd = args;
  odd.back() = file + "/below-a-file";
  const Outcome kept_nothing = Hydrant(odd);
  EXPECT_EQ(kept_nothing.code, 0);
  EXPECT_THAT(kept_nothing.err, HasSubstr("is not kept"));
  odd.back() = "none";
  EXPECT_EQ(Hydrant(odd).code, 0);
}

TEST(RunTest, CountsOnlyTheTokensThatTheUserGets) {
  const std::string data = SourceDir() + "/tests/cases/past_eos";
  const std::vector<std::string> args = {
      "run",          "--model", data + "/base", "--draft", data + "/heads", "--tree", "[[0],[0,0],[0,0,0],[0,0,0,0]]",
      "--prompt-ids", "[1,262]"};
  std::vector<std::string> with_json = args, with_stats = args;
  with_json.emplace_back("--json");
  with_stats.emplace_back("--stats");
  const Json json = JsonOf(Hydrant(with_json));
  EXPECT_EQ(json["num_emitted"], Json({5})) << "all four drafted tokens are accepted";
  EXPECT_EQ(json["token_ids"].size(), 3U) << "but the second of them ends the reply";
  EXPECT_EQ(json["tokens_per_step"], 2);
  EXPECT_EQ(json["num_accepted"], 2);
  EXPECT_EQ(json["depth_offered"], Json({1, 1, 1, 1}));
  EXPECT_EQ(json["depth_accepted"], Json({1, 1, 0, 0}));
  EXPECT_THAT(Hydrant(with_stats).err, AllOf(HasSubstr("tokens per step 2.000"),
                                             HasSubstr("drafted 4 tokens, 4.00 a step; 2 of them in the reply")));
}

}  // namespace
}  // namespace hydrant::test::run_test
