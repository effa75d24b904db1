// SPDX-License-Identifier: Apache-2.0
// `hydrant train` as a user meets it. Skipped in builds without libtorch.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cstdlib>
#include <filesystem>
#include <sstream>
#include <string>
#include <vector>

#include "tests/program.h"

namespace hydrant::test::train_commands_test {
namespace {

using testing::AllOf;
using testing::HasSubstr;
using testing::StartsWith;

#if HYDRANT_HAS_TRAINING
#define HYDRANT_NEED_TRAINING() static_cast<void>(0)
#else
#define HYDRANT_NEED_TRAINING() GTEST_SKIP() << "skipped: this build has no libtorch"
#endif

std::string Story(int sentences) {
  std::string text;
  for (int i = 0; i < sentences; ++i) {
    text += "Once upon a time there was a little fox number " + std::to_string(i % 7) + " who lived near the river. ";
  }
  return text;
}

using Words = std::vector<std::string>;

// A run of seconds: two batches of four rows of 32 tokens. `more`: further flags with their values, or others' values.
Words TrainArgs(const TempDir& dir, const Words& more) {
  Words args = {"train", "heads"};
  const Words usual = {"--base",       Model(), "--out",        dir.path() + "/heads",
                       "--tokens",     "256",   "--seq-len",    "32",
                       "--batch-size", "4",     "--eval-texts", "2",
                       "--eval-every", "0",     "--epochs",     "1"};
  for (size_t i = 0; i < usual.size(); i += 2) {
    if (std::find(more.begin(), more.end(), usual[i]) == more.end()) args.insert(args.end(), {usual[i], usual[i + 1]});
  }
  args.insert(args.end(), more.begin(), more.end());
  return args;
}

TEST(TrainCommandsTest, MakesFoldersThatDraft) {
  HYDRANT_NEED_TRAINING();
  const TempDir dir;
  const std::string text = dir.Write("story.txt", Story(80));
  const Outcome trained = Hydrant(TrainArgs(dir, {"--arch", "hydra_pp,medusa,eagle-1,eagle-3,redrafter", "--data", text,
                                                  "--eval-every", "2", "--eval-tokens", "8"}));
  ASSERT_EQ(trained.code, 0) << trained.err;
  EXPECT_THAT(trained.out, AllOf(HasSubstr("hydra_pp: hydra++, loss"), HasSubstr("tokens per step")));
  const std::string heads = dir.path() + "/heads/";
  for (const char* name : {"hydra_pp", "medusa", "eagle", "eagle3", "redrafter"}) {
    const Json run = JsonOf(Hydrant({"run", "--model", Model(), "--draft", heads + name, "--template", "none",
                                     "--prompt", "Once upon", "--max-tokens", "8", "--tree", "chain", "--json"}));
    EXPECT_NE(run.at("drafter"), "none") << name;
  }
  EXPECT_THAT(ReadBack(heads + "training/metrics.jsonl"), HasSubstr("\"tokens_per_step\""));
}

// A rate that spoils what is learned: the last heads are not the best.
TEST(TrainCommandsTest, KeepsTheBestHeads) {
  HYDRANT_NEED_TRAINING();
  const TempDir dir;
  const std::string text = dir.Write("story.txt", Story(80));
  Words args = TrainArgs(dir, {"--arch", "medusa", "--data", text, "--heads", "1", "--epochs", "4", "--eval-every", "1",
                               "--eval-tokens", "16", "--lr", "0.5", "--json"});
  const Outcome trained = Hydrant(args);
  ASSERT_EQ(trained.code, 0) << trained.err;
  const Json best = Json::parse(trained.out).at("heads").at(0).at("best");
  double most = 0;
  int64_t step = 0;
  std::istringstream lines(ReadBack(dir.path() + "/heads/training/metrics.jsonl"));
  for (std::string line; std::getline(lines, line);) {
    const Json parsed = Json::parse(line);
    if (parsed.value("tokens_per_step", 0.0) <= most) continue;
    most = parsed.at("tokens_per_step");
    step = parsed.at("step");
  }
  EXPECT_EQ(best.at("tokens_per_step"), most);
  EXPECT_EQ(best.at("step"), step);
  EXPECT_LT(step, 8);
  EXPECT_EQ(best.at("folder"), dir.path() + "/heads/training/best/medusa");
  const std::string draft = best.at("folder");
  const std::string last = dir.path() + "/heads";
  EXPECT_NE(ReadBack(draft + "/medusa_lm_head.pt"), ReadBack(last + "/medusa_lm_head.pt"));
  EXPECT_EQ(Hydrant({"inspect", draft}).code, 0);
}

TEST(TrainCommandsTest, PrunedLmHeadsDraftTheirTokensAlone) {
  HYDRANT_NEED_TRAINING();
  const TempDir dir;
  const std::string text = dir.Write("story.txt", Story(80));
  const Outcome trained = Hydrant(TrainArgs(
      dir, {"--arch", "hydra++,medusa,eagle3", "--data", text, "--lm-head", "pruned", "--draft-vocab-size", "12"}));
  ASSERT_EQ(trained.code, 0) << trained.err;
  for (const char* name : {"hydra_pp", "medusa", "eagle3"}) {
    const Json run = JsonOf(Hydrant({"run", "--model", Model(), "--draft", dir.path() + "/heads/" + name, "--template",
                                     "none", "--prompt", "Once upon", "--max-tokens", "8", "--json"}));
    EXPECT_EQ(run.at("num_draft_vocab"), 12) << name;
  }
}

// The base's folder is one for --model, and the heads' one for --draft.
TEST(TrainCommandsTest, TrainsABaseAndItsHeads) {
  HYDRANT_NEED_TRAINING();
  const TempDir dir;
  const std::string text = dir.Write("story.txt", Story(80)), out = dir.path() + "/both";
  Words args = {"train",        "medusa2", "--base",       Model(), "--data",        text, "--out",   out,
                "--tokens",     "256",     "--seq-len",    "32",    "--batch-size",  "4",  "--arch",  "hydra",
                "--eval-texts", "2",       "--eval-every", "4",     "--eval-tokens", "8",  "--heads", "2"};
  const Outcome trained = Hydrant(args);
  ASSERT_EQ(trained.code, 0) << trained.err;
  EXPECT_THAT(trained.out, AllOf(HasSubstr("/both/base: base, loss"), HasSubstr("perplexity"),
                                 HasSubstr("/both/hydra: heads, loss"), HasSubstr("tokens per step")));
  const Json run = JsonOf(Hydrant({"run", "--model", out + "/base", "--draft", out + "/hydra", "--prompt", "Once upon",
                                   "--max-tokens", "8", "--json"}));
  EXPECT_EQ(run.at("drafter"), "hydra");
  EXPECT_EQ(ReadBack(out + "/base/tokenizer_config.json"), ReadBack(std::string(Model()) + "/tokenizer_config.json"));
  EXPECT_EQ(ReadBack(out + "/base/generation_config.json"), ReadBack(std::string(Model()) + "/generation_config.json"));
  const auto refuses = [&](const Words& more, const char* said) {
    Words with = args;
    with.insert(with.end(), more.begin(), more.end());
    const Outcome outcome = Hydrant(with);
    EXPECT_EQ(outcome.code, 2) << said;
    EXPECT_THAT(outcome.err, HasSubstr(said));
  };
  refuses({}, "--resume");
  refuses({"--resume", "--heads-weight", "0.5"}, "'heads_weight'");
  args[15] = "eagle3";
  refuses({"--force"}, "medusa, hydra, hydra++");
}

// Where Python has PyTorch.
TEST(TrainCommandsTest, PyTorchReadsTheFiles) {
  HYDRANT_NEED_TRAINING();
  if (system("python3 -c 'import torch' >/dev/null 2>&1") != 0) GTEST_SKIP() << "skipped: python3 has no torch";
  const TempDir dir;
  const std::string text = dir.Write("story.txt", Story(80));
  ASSERT_EQ(Hydrant(TrainArgs(dir, {"--arch", "hydra++", "--data", text})).code, 0);
  const std::string script = dir.Write("read.py",
                                       "import sys, torch\n"
                                       "tensors = torch.load(sys.argv[1], weights_only=True)\n"
                                       "a, b = (tensors[f'hydra_mlp.2.{i}.linear.weight'] for i in (3, 7))\n"
                                       "assert a.data_ptr() == b.data_ptr() and a.shape == (256, 256)\n"
                                       "assert tensors['hydra_lm_head.3.1.weight'].shape == (4096, 256)\n"
                                       "assert all(t.isfinite().all() for t in tensors.values())\n");
  const std::string command = "python3 " + script + " " + dir.path() + "/heads/hydra_lm_head.pt";
  EXPECT_EQ(system(command.c_str()), 0);
}

TEST(TrainCommandsTest, GoesOnWithTheSameRunOnly) {
  HYDRANT_NEED_TRAINING();
  const TempDir whole;
  const std::string text = whole.Write("story.txt", Story(80));
  const auto run = [&](const TempDir& dir, const Words& more, const char* archs = "hydra,medusa") {
    Words args = TrainArgs(dir, {"--arch", archs, "--data", text, "--heads", "1", "--epochs", "4"});
    args.insert(args.end(), more.begin(), more.end());
    return Hydrant(args);
  };
  ASSERT_EQ(run(whole, {}).code, 0);
  const Outcome again = run(whole, {});
  EXPECT_EQ(again.code, 2);
  EXPECT_THAT(again.err,
              AllOf(HasSubstr("holds a run or a model already"), HasSubstr("--resume"), HasSubstr("--force")));
  const Outcome other = run(whole, {"--resume", "--seed", "2"});
  EXPECT_EQ(other.code, 2);
  EXPECT_THAT(other.err, AllOf(HasSubstr("'seed' 1"), HasSubstr("this one has 2")));
  const Outcome elsewhere = run(whole, {"--resume", "--data", whole.Write("other.txt", Story(70))});
  EXPECT_EQ(elsewhere.code, 2);
  EXPECT_THAT(elsewhere.err, HasSubstr("was written by a run over other text (--data, --template or --learn)"));
  const std::string checkpoint = "/heads/training/checkpoint.safetensors";
  const std::string before = ReadBack(whole.path() + checkpoint);
  const Outcome done = run(whole, {"--resume", "--json"}, "medusa,hydra");  // their order is no setting
  ASSERT_EQ(done.code, 0) << done.err;
  EXPECT_TRUE(JsonOf(done).at("heads").at(0).at("loss").is_null());
  EXPECT_EQ(ReadBack(whole.path() + checkpoint), before) << "a run that is done is left as it is";
  ASSERT_EQ(run(whole, {"--force"}).code, 0);
  EXPECT_EQ(ReadBack(whole.path() + checkpoint), before) << "the same run, the same numbers";
}

// As where the disk is full: files may not grow beyond 4 MB.
TEST(TrainCommandsTest, ACheckpointThatCannotBeWrittenLeavesTheLastOneWhole) {
  HYDRANT_NEED_TRAINING();
  const TempDir dir;
  const TempDir data;
  data.Write("story.txt", Story(80));
  data.Write("notes.md", "not read");
  const Words args = TrainArgs(dir, {"--arch", "medusa", "--data", data.path(), "--heads", "1"});
  ASSERT_EQ(Hydrant(args).code, 0);
  const std::string checkpoint = dir.path() + "/heads/training/checkpoint.safetensors", before = ReadBack(checkpoint);
  std::string command = "ulimit -f 4096 && exec " HYDRANT_PROGRAM;
  for (const std::string& word : args) command += " '" + word + "'";
  const std::string err = dir.path() + "/err";
  const int status = system((command + " --force >/dev/null 2>" + err).c_str());
  EXPECT_EQ(WEXITSTATUS(status), 2);
  EXPECT_THAT(ReadBack(err), AllOf(HasSubstr("error: "), HasSubstr("checkpoint.safetensors")));
  EXPECT_EQ(ReadBack(checkpoint), before);
}

TEST(TrainCommandsTest, BadInputIsExplained) {
  HYDRANT_NEED_TRAINING();
  const TempDir dir;
  const std::string good = dir.Write("good.txt", Story(80));
  const auto fails = [&](const Words& more, const testing::Matcher<std::string>& says) {
    const Outcome outcome = Hydrant(TrainArgs(dir, more));
    EXPECT_EQ(outcome.code, 2) << outcome.err;
    EXPECT_THAT(outcome.err, AllOf(HasSubstr("error: "), says));
    EXPECT_THAT(outcome.err, testing::Not(HasSubstr("::"))) << "names of the library";
    EXPECT_FALSE(std::filesystem::exists(dir.path() + "/heads/training/checkpoint.safetensors"));
  };
  fails({"--arch", "medusa", "--data", dir.Write("empty.txt", "")}, HasSubstr("empty.txt"));
  fails({"--arch", "medusa", "--data", dir.Write("one.txt", "a")}, HasSubstr("one.txt"));
  fails({"--arch", "medusa", "--data", dir.Write("bad.jsonl", "{\"text\": 1}\n")}, HasSubstr("bad.jsonl"));
  fails({"--arch", "medusa", "--data", dir.path() + "/nothing.txt"}, HasSubstr("nothing.txt"));
  const TempDir nothing;
  fails({"--arch", "medusa", "--data", nothing.path()}, HasSubstr("holds no file that ends in"));
  fails({"--arch", "mamba", "--data", good}, HasSubstr("--arch"));
  fails({"--arch", "medusa", "--data", good, "--recipe", "medusa-9"}, HasSubstr("medusa-1"));
  fails({"--arch", "medusa", "--data", good, "--seq-len", "513"}, AllOf(HasSubstr("--seq-len"), HasSubstr("512")));
  fails({"--arch", "redrafter", "--data", good, "--reconstruction-loss", "1"}, HasSubstr("--reconstruction-loss"));
  fails({"--arch", "medusa", "--data", good, "--passes", "3"}, HasSubstr("--passes is for eagle"));
  fails({"--arch", "eagle", "--data", good, "--heads", "3"}, HasSubstr("--heads is for medusa"));
  fails({"--arch", "hydra++", "--data", good, "--lm-head", "pruned"},
        HasSubstr("--lm-head pruned needs --draft-vocab-size"));
  fails({"--arch", "hydra++", "--data", good, "--draft-vocab-size", "9"},
        HasSubstr("--draft-vocab-size is for eagle3 and --lm-head pruned"));
  fails({"--arch", "eagle3", "--data", good, "--lm-head", "pruned", "--draft-vocab-size", "9"},
        HasSubstr("--lm-head is for medusa, hydra and hydra++"));
  fails({"--arch", "medusa", "--data", good, "--resume"}, HasSubstr("checkpoint.safetensors"));
  // Deep heads at a rate that no one would choose.
  fails({"--arch", "hydra++", "--data", good, "--layers", "16", "--lr", "10", "--clip", "0", "--warmup-steps", "0",
         "--epochs", "40", "--save-every", "100000"},
        HasSubstr("no finite number"));
}

// What a folder of --data is read for: a file that is no data is named where it is read.
TEST(TrainCommandsTest, FoldersAreReadWhereLinksLeadAndInAnyCase) {
  HYDRANT_NEED_TRAINING();
  const TempDir out, data, other;
  data.Write("a.txt", Story(80));
  const auto says_bad = [&](const std::string& path) {
    const Outcome outcome = Hydrant(TrainArgs(out, {"--arch", "medusa", "--data", data.path()}));
    EXPECT_EQ(outcome.code, 2);
    EXPECT_THAT(outcome.err, HasSubstr(data.path() + path + " line 1: 'text' is 1"));
  };
  const std::string upper = data.Write("b.JSONL", "{\"text\": 1}\n");
  says_bad("/b.JSONL");
  std::filesystem::remove(upper);
  other.Write("c.jsonl", "{\"text\": 1}\n");
  std::filesystem::create_directory_symlink(other.path(), data.path() + "/linked");
  says_bad("/linked/c.jsonl");
}

TEST(TrainCommandsTest, FoldersAreReadWithoutEmptyFilesAndThoseOfTheRun) {
  HYDRANT_NEED_TRAINING();
  const TempDir data;
  const std::string out = data.path() + "/made";
  data.Write("a.txt", Story(80));
  const std::string empty = data.Write("empty.TXT", " \n");
  std::filesystem::create_directory_symlink(data.path(), data.path() + "/back");
  const Words args = TrainArgs(data, {"--arch", "medusa", "--data", data.path(), "--out", out, "--heads", "1"});
  const Outcome first = Hydrant(args);
  ASSERT_EQ(first.code, 0) << first.err;
  const std::string left_out = "warning: " + empty + ": is empty, and is left out\n";
  EXPECT_THAT(first.err, StartsWith(left_out));
  EXPECT_THAT(first.err.substr(left_out.size()), Not(HasSubstr("is empty")))
      << "a link that leads back is not followed";
  data.Write("made/notes.jsonl", "{\"text\": 1}\n");
  Words again = args;
  again.emplace_back("--resume");
  const Outcome resumed = Hydrant(again);
  EXPECT_EQ(resumed.code, 0) << resumed.err;
  const Outcome inside = Hydrant(TrainArgs(data, {"--arch", "medusa", "--data", out, "--out", data.path() + "/"}));
  EXPECT_EQ(inside.code, 2);
  EXPECT_THAT(inside.err,
              HasSubstr(out + ": holds no file that ends in .txt, .json or .jsonl, but for those in --out"));
  std::filesystem::remove(data.path() + "/a.txt");
  const Outcome blank = Hydrant(args);
  EXPECT_EQ(blank.code, 2);
  EXPECT_THAT(blank.err, HasSubstr(", but for 1 without text"));
}

TEST(TrainCommandsTest, DistillDataNamesItsOwnDefaults) {
  const std::string help = Hydrant({"train", "distill-data", "--help"}).out;
  EXPECT_THAT(help, AllOf(HasSubstr("(default 512)"), HasSubstr("(default 0.3)"), Not(HasSubstr(") (default"))));
}

TEST(TrainCommandsTest, DistilledDataGoesOnAndIsTheSameWithHeads) {
  const TempDir dir;
  const std::string prompts = dir.Write("prompts.txt", "Tell me a story.\nCan I get a mocha?\nName three animals.\n");
  const std::string whole = dir.path() + "/whole.jsonl", parts = dir.path() + "/parts.jsonl";
  const auto distill = [&](const std::string& out, const Words& more) {
    Words args = {"train", "distill-data", "--model", Model(), "--data", prompts, "--out", out, "--max-tokens", "12"};
    args.insert(args.end(), more.begin(), more.end());
    return Hydrant(args);
  };
  ASSERT_EQ(distill(whole, {"--draft", Heads(), "--sequences", "2"}).code, 0);
  const std::string text = ReadBack(whole);
  EXPECT_EQ(std::count(text.begin(), text.end(), '\n'), 3);
  EXPECT_THAT(text, AllOf(HasSubstr("\"from\":\"gpt\",\"value\":\""), testing::Not(HasSubstr("\"value\":\" "))));
  dir.Write("parts.jsonl", text.substr(0, text.size() / 2));  // as a killed run leaves it
  EXPECT_EQ(distill(parts, {}).code, 2) << "neither --resume nor --force";
  ASSERT_EQ(distill(parts, {"--resume"}).code, 0);
  EXPECT_EQ(ReadBack(parts), text);
  dir.Write("prompts.txt", "Tell me two stories.\nb\nc\n");
  const Outcome other = distill(parts, {"--resume"});
  EXPECT_EQ(other.code, 2);
  EXPECT_THAT(other.err, HasSubstr("parts.jsonl line 1: answers another prompt than number 0 of --data"));
}

Words DistillArgs(const std::string& data, const std::string& out, const Words& more) {
  Words args = {"train", "distill-data", "--model", Model(), "--data", data, "--out", out};
  args.insert(args.end(), more.begin(), more.end());
  return args;
}

TEST(TrainCommandsTest, ACutReplyIsMarkedAndEndsItsConversation) {
  const TempDir dir;
  const std::string out = dir.path() + "/out.jsonl";
  const std::string prompts = dir.Write("p.jsonl", "{\"turns\": [\"Tell me a story.\", \"And then?\"]}\n");
  const Json report = JsonOf(Hydrant(DistillArgs(prompts, out, {"--max-tokens", "3", "--json"})));
  EXPECT_EQ(report.at("answered"), 1);
  EXPECT_EQ(report.at("cut"), 1);
  const Json cut = base::ParseJson(ReadBack(out), out);
  EXPECT_EQ(cut.at("finish_reason"), "length");
  EXPECT_EQ(cut.at("conversations").size(), 2U) << "no turn behind it";
  const Outcome whole = Hydrant(DistillArgs(prompts, out, {"--temperature", "0", "--force"}));
  EXPECT_THAT(whole.out, HasSubstr("1 prompts answered, 0 with a cut reply, 0 refused"));
  const Json line = base::ParseJson(ReadBack(out), out);
  EXPECT_FALSE(line.contains("finish_reason"));
  EXPECT_EQ(line.at("conversations").size(), 4U);
}

TEST(TrainCommandsTest, EveryTurnOfAConversationIsAnsweredAnew) {
  const TempDir dir;
  const std::string out = dir.path() + "/out.jsonl";
  const std::string prompts = dir.Write(
      "p.jsonl", R"({"conversations": [{"from": "human", "value": "Hello."}, {"from": "gpt", "value": "theirs"},)"
                 R"( {"from": "human", "value": "Thank you."}]})");
  ASSERT_EQ(Hydrant(DistillArgs(prompts, out, {"--temperature", "0"})).code, 0);
  const Json turns = base::ParseJson(ReadBack(out), out).at("conversations");
  ASSERT_EQ(turns.size(), 4U);
  EXPECT_EQ(turns[2].at("value"), "Thank you.");
  EXPECT_NE(turns[1].at("value"), "theirs");
}

// At this temperature some replies are a byte of a longer character.
TEST(TrainCommandsTest, DistilledRepliesHaveWholeCharacters) {
  const TempDir dir;
  const std::string out = dir.path() + "/out.jsonl";
  std::string lines;
  for (int i = 0; i < 200; ++i) lines += "Hi " + std::to_string(i) + "\n";
  const Words flags = {"--template", "none", "--max-tokens", "1", "--temperature", "100"};
  ASSERT_EQ(Hydrant(DistillArgs(dir.Write("p.txt", lines), out, flags)).code, 0);
  EXPECT_THAT(ReadBack(out), AllOf(HasSubstr("\"prompt\":199,"), Not(HasSubstr("\\ufffd"))));
}

TEST(TrainCommandsTest, DistilledTextsAreTrainedOn) {
  HYDRANT_NEED_TRAINING();
  const TempDir dir;
  const std::string out = dir.path() + "/out.jsonl";
  std::string lines;
  for (int i = 0; i < 8; ++i) lines += "Once upon a time there was a fox number " + std::to_string(i) + "\n";
  const std::string prompts = dir.Write("p.txt", lines);
  ASSERT_EQ(Hydrant(DistillArgs(prompts, out, {"--template", "none", "--max-tokens", "24"})).code, 0);
  const Outcome trained = Hydrant(TrainArgs(dir, {"--arch", "medusa", "--data", out, "--heads", "1"}));
  EXPECT_EQ(trained.code, 0) << trained.err;
}

TEST(TrainCommandsTest, DistillDataKeepsItsPrompts) {
  const TempDir dir;
  const std::string prompts = dir.Write("p.txt", "Hi\n"), link = dir.path() + "/link.jsonl";
  std::filesystem::create_symlink(prompts, link);
  for (const std::string& out : {prompts, link}) {
    for (const char* flag : {"--force", "--resume"}) {
      ExpectRefused(DistillArgs(prompts, out, {flag}), out + ": is the file of --data, expected another one");
    }
  }
  EXPECT_EQ(ReadBack(prompts), "Hi\n");
}

TEST(TrainCommandsTest, DistillDataGoesOnWithTheSameSettingsOnly) {
  const TempDir dir;
  const std::string prompts = dir.Write("p.txt", "Tell me a story.\nName three animals.\n");
  const std::string out = dir.path() + "/out.jsonl";
  ASSERT_EQ(Hydrant(DistillArgs(prompts, out, {"--max-tokens", "4"})).code, 0);
  const std::string text = ReadBack(out);
  EXPECT_EQ(text.find("\"settings\""), text.rfind("\"settings\"")) << "once in a file";
  const auto refuses = [&](const Words& more, const std::string& said) {
    Words flags = {"--resume"};
    flags.insert(flags.end(), more.begin(), more.end());
    ExpectRefused(DistillArgs(prompts, out, flags), said);
  };
  const std::string by = out + " line 1: was written by a run with ";
  refuses({}, by + "'max_tokens' 4, and this one has 512");
  refuses({"--max-tokens", "4", "--temperature", "2"}, by + "'temperature' 0.3, and this one has 2");
  refuses({"--max-tokens", "4", "--seed", "7"}, by + "'seed' 0, and this one has 7");
  refuses({"--max-tokens", "4", "--template", "none"}, by + "'template' \"vicuna\", and this one has \"none\"");
  refuses({"--max-tokens", "4", "--weights", "w8a8"}, by + "'weights' \"auto\", and this one has \"w8a8\"");
  EXPECT_EQ(ReadBack(out), text);
  dir.Write("out.jsonl", text.substr(0, text.find('\n') + 1) + "\n \n");
  ASSERT_EQ(Hydrant(DistillArgs(prompts, out, {"--max-tokens", "4", "--resume"})).code, 0) << "blank lines";
  EXPECT_EQ(ReadBack(out), text);
  const std::string first = text.substr(0, text.find('\n') + 1);
  dir.Write("out.jsonl", first + "{\"id\": \n");
  refuses({"--max-tokens", "4"}, out + " line 2: is not valid JSON");
  dir.Write("out.jsonl", first + first);
  refuses({"--max-tokens", "4"}, out + " line 2: answers prompt 0, as a line before it does");
  dir.Write("out.jsonl", "{\"prompt\": 0, \"asked\": \"Tell me a story.\"}\n");
  refuses({"--max-tokens", "4"}, out + " line 1: 'settings' is missing");
}

TEST(TrainCommandsTest, DistillDataIsOneProcess) {
  const TempDir dir;
  const std::string prompts = dir.Write("p.txt", "Hi\n"), out = dir.path() + "/out.jsonl";
  setenv("OMPI_COMM_WORLD_SIZE", "2", 1);
  ExpectRefused(DistillArgs(prompts, out, {}), "2 processes (OMPI_COMM_WORLD_SIZE)");
  setenv("OMPI_COMM_WORLD_SIZE", "1", 1);
  EXPECT_EQ(Hydrant(DistillArgs(prompts, out, {"--max-tokens", "2"})).code, 0);
  unsetenv("OMPI_COMM_WORLD_SIZE");
}

}  // namespace
}  // namespace hydrant::test::train_commands_test
