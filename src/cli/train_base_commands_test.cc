// SPDX-License-Identifier: Apache-2.0
// `hydrant train base` as a user meets it. Skipped in builds without libtorch.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <string>
#include <vector>

#include "tests/program.h"

namespace hydrant::test::train_base_commands_test {
namespace {

using testing::AllOf;
using testing::HasSubstr;
using testing::Not;
using Words = std::vector<std::string>;

#if HYDRANT_HAS_TRAINING
#define HYDRANT_NEED_TRAINING() static_cast<void>(0)
#else
#define HYDRANT_NEED_TRAINING() GTEST_SKIP() << "skipped: this build has no libtorch"
#endif

std::string Chats(int count) {
  std::string lines;
  for (int i = 0; i < count; ++i) {
    const std::string name = i % 3 == 0 ? "fox" : i % 3 == 1 ? "hen" : "owl";
    lines += R"({"messages": [{"role": "user", "content": "Tell me of the )" + name +
             R"("}, {"role": "assistant", "content": "The )" + name + R"( lived near the river and sang."}]})" + "\n";
  }
  return lines;
}

// A model that is made in a second.
Words Args(const std::string& data, const std::string& out, const Words& more) {
  Words args = {"train", "base", "--data", data, "--out", out};
  const Words usual = {"--vocab-size",      "340", "--hidden-size",       "32", "--layers",    "2",
                       "--attention-heads", "2",   "--intermediate-size", "48", "--positions", "128",
                       "--batch-size",      "4",   "--warmup-steps",      "2"};
  args.insert(args.end(), usual.begin(), usual.end());
  args.insert(args.end(), more.begin(), more.end());
  return args;
}

TEST(TrainBaseCommandTest, MakesAModelAndItsTokenizer) {
  HYDRANT_NEED_TRAINING();
  const TempDir dir;
  const std::string data = dir.Write("chats.jsonl", Chats(120)), out = dir.path() + "/new";
  const Outcome trained = Hydrant(Args(data, out, {"--template", "vicuna", "--eval-texts", "3", "--json"}));
  const Json report = JsonOf(trained);
  EXPECT_EQ(report["folder"], out);
  EXPECT_EQ(report["steps"], report["all_steps"]);
  EXPECT_GT(report["perplexity"], 1);
  EXPECT_THAT(trained.err, HasSubstr("parameters"));
  // The template of the folder is found without a flag.
  const Json run = JsonOf(Hydrant({"run", "--model", out, "--prompt", "Tell me", "--max-tokens", "4", "--json"}));
  EXPECT_EQ(run["drafter"], "none");
  const Json tokens = JsonOf(Hydrant({"tokenize", "--model", out, "--text", "The fox lived near the river"}));
  EXPECT_LT(tokens["ids"].size(), 22U) << "28 letters, of which some stand together: " << tokens;

  const std::string before = ReadBack(out + "/tokenizer.model"), weights = ReadBack(out + "/model.safetensors");
  ASSERT_EQ(Hydrant(Args(data, out, {"--template", "vicuna", "--eval-texts", "3", "--force"})).code, 0);
  EXPECT_EQ(ReadBack(out + "/tokenizer.model"), before);
  EXPECT_EQ(ReadBack(out + "/model.safetensors"), weights) << "the same run, the same numbers";
  EXPECT_THAT(Hydrant(Args(data, out, {"--template", "vicuna", "--eval-texts", "3", "--resume"})).out,
              HasSubstr("were done already"));
  const Outcome other =
      Hydrant(Args(data, out, {"--template", "vicuna", "--eval-texts", "3", "--resume", "--lr", "1"}));
  EXPECT_EQ(other.code, 2);
  EXPECT_THAT(other.err, HasSubstr("'recipe.peak_rate' 0.002, and this one has 1.0"));
}

TEST(TrainBaseCommandTest, BadInputIsExplained) {
  HYDRANT_NEED_TRAINING();
  const TempDir dir;
  const std::string good = dir.Write("good.jsonl", Chats(30)), out = dir.path() + "/new";
  const auto fails = [&](const Words& args, const testing::Matcher<std::string>& says) {
    const Outcome outcome = Hydrant(args);
    EXPECT_EQ(outcome.code, 2) << outcome.err;
    EXPECT_EQ(outcome.out, "");
    EXPECT_THAT(outcome.err, AllOf(HasSubstr("error: "), Not(HasSubstr("::")), says));
    EXPECT_FALSE(std::filesystem::exists(out + "/config.json"));
  };
  const auto bad = [&](const Words& more) { return Args(good, out, more); };
  fails({"train", "base", "--out", out}, HasSubstr("--data is missing"));
  fails(bad({}), AllOf(HasSubstr("is a conversation"), HasSubstr("--template")));
  fails(bad({"--template", "zephyr"}), HasSubstr("--template is 'zephyr'"));
  fails(bad({"--template", "vicuna", "--resume"}), HasSubstr("checkpoint.safetensors"));
  fails(bad({"--template", "vicuna", "--kv-heads", "3"}), HasSubstr("num_key_value_heads"));
  fails(bad({"--template", "vicuna", "--seq-len", "129"}),
        AllOf(HasSubstr("--seq-len is 129"), HasSubstr("128 positions")));
  fails(bad({"--template", "vicuna", "--tokenizer", dir.path()}), HasSubstr("no tokenizer.model"));
  fails(bad({"--tokenizer", Model()}), AllOf(HasSubstr("'vocab_size' is 340"), HasSubstr("4096 tokens")));
  fails(bad({"--tokenizer", Model(), "--tokenizer-text", "1m"}), HasSubstr("--tokenizer-text"));
  fails({"train", "base", "--data", good, "--out", out, "--template", "vicuna"},
        AllOf(HasSubstr("--vocab-size is 4096"), HasSubstr("tokens at most")));
  fails({"train", "base", "--data", good, "--out", out, "--config", dir.Write("c.json", R"({"model_type": "gpt2"})")},
        AllOf(HasSubstr("c.json"), HasSubstr("\"gpt2\", expected \"llama\"")));
}

}  // namespace
}  // namespace hydrant::test::train_base_commands_test
