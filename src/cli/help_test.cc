// SPDX-License-Identifier: Apache-2.0
// What the built program says to those who do not know it yet: help, and words of other programs.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <sstream>
#include <string>
#include <utility>
#include <vector>

#include "tests/program.h"

namespace hydrant::test::help_test {
namespace {

using testing::AllOf;
using testing::HasSubstr;

std::vector<std::vector<std::string>> EveryCommand() {
  return {{"run"},
          {"inspect"},
          {"tree", "show"},
          {"tree", "convert"},
          {"tokenize"},
          {"detokenize"},
          {"eval", "logits"},
          {"eval", "ppl"},
          {"convert"},
          {"bench", "roofline"},
          {"bench", "latency"},
          {"bench", "step"},
          {"bench", "heads"},
          {"bench", "batch"},
          {"bench", "serve"}};
}

TEST(HelpTest, HelpListsCommandsAndEveryCommandHasExamples) {
  const Outcome overview = Hydrant({"--help"});
  EXPECT_EQ(overview.code, 0);
  for (const char* name : {"run", "inspect", "convert", "tree", "tokenize", "detokenize", "eval", "bench"}) {
    EXPECT_THAT(overview.out, HasSubstr(std::string("\n  ") + name));
  }
  for (const std::vector<std::string>& command : EveryCommand()) {
    std::vector<std::string> args = command;
    args.emplace_back("--help");
    const Outcome help = Hydrant(args);
    EXPECT_EQ(help.code, 0) << help.err;
    EXPECT_THAT(help.out, AllOf(HasSubstr("Usage: hydrant " + command[0]), HasSubstr("Examples:")));
  }
  EXPECT_EQ(Hydrant({"help", "run"}).out, Hydrant({"run", "--help"}).out);
  EXPECT_EQ(Hydrant({"help", "bench", "step"}).out, Hydrant({"bench", "step", "--help"}).out);
}

TEST(HelpTest, NoLineOfHelpIsOver100Characters) {
  std::vector<std::vector<std::string>> commands = EveryCommand();
  commands.insert(commands.end(), {{}, {"tree"}, {"tree", "list"}, {"eval"}, {"bench"}});
  for (std::vector<std::string> args : commands) {
    args.emplace_back("--help");
    const Outcome help = Hydrant(args);
    EXPECT_EQ(help.code, 0) << help.err;
    std::istringstream lines(help.out);
    for (std::string line; std::getline(lines, line);) EXPECT_LE(line.size(), 100U) << line;
  }
}

// What most people need first stands first, and nothing twice.
TEST(HelpTest, RunHelpBeginsWithSixFlags) {
  const std::string help = Hydrant({"run", "--help"}).out;
  const size_t first = help.find("Most used:\n"), second = help.find("\n\n", first);
  ASSERT_NE(first, std::string::npos);
  std::vector<std::string> flags;
  std::istringstream lines(help.substr(first, second - first));
  for (std::string line; std::getline(lines, line);) {
    if (line.starts_with("  --")) flags.push_back(line.substr(2, line.find(' ', 2) - 2));
  }
  EXPECT_THAT(flags,
              testing::ElementsAre("--model", "--draft", "--prompt", "--template", "--max-tokens", "--temperature"));
  for (const std::string& flag : flags) EXPECT_EQ(help.find("\n  " + flag + " ", second), std::string::npos) << flag;
}

#if HYDRANT_HAS_TRAINING
TEST(HelpTest, WordsOfOtherTrainersAreTranslated) {
  const std::pair<const char*, const char*> of_training[] = {
      {"--learning_rate", "--lr"},
      {"--num-train-epochs", "--epochs"},
      {"--model", "--base"},
      {"--max-seq-len", "--seq-len"},
      {"--eval-steps", "--eval-every"},
      {"--medusa-num-heads", "--heads"},
      {"--output-dir", "--out"},
      {"--dataset", "--data"},
      {"--per_device_train_batch_size", "--batch-size"},
  };
  for (const auto& [theirs, ours] : of_training) {
    ExpectRefused({"train", "heads", theirs, "x"}, std::string(theirs) + " is " + ours + " here");
  }
  ExpectRefused({"train", "heads", "--bf16"}, "--bf16 is --precision here (auto, f32 or bf16)");
  ExpectRefused({"train", "heads", "--max-steps", "9"}, "--max-steps is --tokens here (times --epochs");
}
#endif

TEST(HelpTest, WordsOfOtherProgramsAreTranslated) {
  ExpectRefused({"run", "-m", Model(), "-p", "x", "-n", "5"}, "unknown flag '-m'\nhint:  -m is --model here");
  ExpectRefused({"run", "-p", "x"}, "-p is --prompt here");
  ExpectRefused({"run", "--prompt", "x", "-hf", "org/name"}, "hf download ORG/NAME --local-dir DIR");
  ExpectRefused({"run", Model(), "--prompt", "x"}, "unexpected argument '" + Model() + "'\nhint:  a model's folder " +
                                                       "follows --model: --model '" + Model() + "'");
  ExpectRefused({"run", "--model", Model(), Heads(), "--prompt", "x"}, "a folder with heads follows --draft");
  ExpectRefused({"run", "--model", Model(), "Once upon a time"}, "a prompt follows --prompt: --prompt 'Once upon");
  ExpectRefused({"run", "Once upon a time"}, "a prompt follows --prompt: ");
  ExpectRefused({"inspect", "--model", Model()}, "PATH stands there without a flag: leave out --model");
  ExpectRefused({"tokenize", "--model", Model(), "some text"}, "a text follows --text");
  ExpectRefused({"detokenize", "--model", Model(), "[1,2]"}, "a list of ids follows --ids");
  ExpectRefused({"eval", "ppl", "--model", Model(), "--ctx-size", "64"}, "--ctx-size is --context here");
  ExpectRefused({"train", "distill-data", "--base", "x"}, "--base is --model here");
  ExpectRefused({"finetune"}, "that is 'hydrant train heads' here");
  ExpectRefused({"generate", "--model", Model()}, "unknown command 'generate'\nhint:  that is 'hydrant run' here");
  ExpectRefused({"chat"}, "that is 'hydrant run' here");
  ExpectRefused({"server"}, "that is 'hydrant serve' here");
  ExpectRefused({"--model", Model()}, "a command comes first: hydrant run --model");
  ExpectRefused({Model()}, "hydrant run --model '" + Model() + "'");
  EXPECT_EQ(Hydrant({"run", "-m", "x", "--help"}).code, 0);
}

}  // namespace
}  // namespace hydrant::test::help_test
