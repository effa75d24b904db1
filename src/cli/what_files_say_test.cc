// SPDX-License-Identifier: Apache-2.0
// Where files contradict each other or hold what a terminal must not get: what the program's user hears of it.
#include <fcntl.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <string>
#include <vector>

#include "base/json.h"
#include "tests/program.h"
#include "tests/test_data.h"

namespace hydrant::test::what_files_say_test {
namespace {

namespace fs = std::filesystem;
using testing::AllOf;
using testing::HasSubstr;
using testing::Not;

std::string Case(const std::string& name) { return SourceDir() + "/tests/cases/" + name; }
std::string Golden(const std::string& name) { return SourceDir() + "/tests/golden/" + name; }

// Other bytes for the first ones of a tensor.
void Overwrite(const std::string& file, const std::string& tensor, const std::string& bytes) {
  std::string content = ReadBack(file);
  uint64_t length = 0;
  std::memcpy(&length, content.data(), 8);
  const Json header = base::ParseJson(content.substr(8, length), "header");
  content.replace(8 + length + header.at(tensor).at("data_offsets").at(0).get<size_t>(), bytes.size(), bytes);
  std::ofstream(file, std::ios::binary) << content;
}

void Configure(const std::string& folder, const std::string& key, const Json& value) {
  Json config = base::ReadJsonFile(folder + "/config.json");
  config[key] = value;
  std::ofstream(folder + "/config.json") << config.dump();
}

// What the program writes to a terminal.
std::string OnTerminal(const std::vector<std::string>& args) {
  const int terminal = posix_openpt(O_RDWR | O_NOCTTY);
  EXPECT_TRUE(terminal >= 0 && grantpt(terminal) == 0 && unlockpt(terminal) == 0);
  const std::string name = ptsname(terminal);
  std::vector<std::string> words = {HYDRANT_PROGRAM};
  words.insert(words.end(), args.begin(), args.end());
  std::vector<char*> argv;
  for (std::string& word : words) argv.push_back(word.data());
  argv.push_back(nullptr);
  const int other_end = open(name.c_str(), O_RDWR | O_NOCTTY);
  const pid_t child = fork();
  if (child == 0) {
    dup2(other_end, STDOUT_FILENO);
    execv(argv[0], argv.data());
    _exit(127);
  }
  close(other_end);
  std::string text;
  char piece[4096];
  for (ssize_t got = 0; (got = read(terminal, piece, sizeof piece)) > 0;) text.append(piece, static_cast<size_t>(got));
  close(terminal);
  waitpid(child, nullptr, 0);
  return text;
}

TEST(WhatFilesSayTest, AnotherLmHeadUnderATiedConfigIsUsedByAllCommands) {
  const TempDir dir;
  const std::string model = Case("tied_conflict"), out = dir.path() + "/out";
  const std::string warning = "'lm_head.weight' differs from 'model.embed_tokens.weight'";
  const std::vector<std::string> prompt = {"--prompt-ids", "[1,262]", "--max-tokens", "6", "--json"};
  const auto run = [&](const std::string& folder) {
    std::vector<std::string> args = {"run", "--model", folder};
    args.insert(args.end(), prompt.begin(), prompt.end());
    return Hydrant(args);
  };
  const Outcome outcome = run(model);
  EXPECT_EQ(JsonOf(outcome)["token_ids"], Json({279, 260, 265, 276, 2}));
  EXPECT_THAT(outcome.err, HasSubstr(warning));
  EXPECT_THAT(JsonOf(outcome)["warnings"].dump(), HasSubstr("lm_head.weight"));
  const Outcome inspect = Hydrant({"inspect", model, "--json"});
  EXPECT_THAT(inspect.err, HasSubstr(warning));
  const Json base = JsonOf(inspect)["base"];
  EXPECT_EQ(base["tied_embeddings"], false);
  EXPECT_EQ(base["unused"], Json::array());
  EXPECT_THAT(base["warnings"].dump(), HasSubstr("lm_head.weight"));
  const Outcome convert = Hydrant({"convert", model, out, "--weights", "w8a16", "--json"});
  EXPECT_THAT(convert.err, HasSubstr(warning));
  EXPECT_THAT(JsonOf(convert)["warnings"].dump(), HasSubstr("lm_head.weight"));
  EXPECT_EQ(JsonOf(run(out))["token_ids"], Json({279, 260, 265, 276, 2}));
  EXPECT_EQ(JsonOf(Hydrant({"inspect", out, "--json"}))["base"]["tied_embeddings"], false);
}

TEST(WhatFilesSayTest, AnF16CacheThatOverflowsNamesTheOtherTypes) {
  const TempDir dir;
  const std::string model = dir.path() + "/m";
  fs::copy(Golden("hf/qwen2_bias"), model);
  // One key of layer 0 beyond f16, within f32 (bias stored in f32 or bf16).
  const float large = 1e6F;
  const Json header = base::ParseJson(
      [&] {
        const std::string content = ReadBack(model + "/model.safetensors");
        uint64_t length = 0;
        std::memcpy(&length, content.data(), 8);
        return content.substr(8, length);
      }(),
      "header");
  const std::string name = "model.layers.0.self_attn.k_proj.bias";
  const bool wide = header.at(name).at("dtype") == "F32";
  std::string bytes(reinterpret_cast<const char*>(&large), 4);
  Overwrite(model + "/model.safetensors", name, wide ? bytes : bytes.substr(2));
  std::vector<std::string> run = {"run", "--model", model, "--prompt-ids", "[5,6,7]", "--max-tokens", "3"};
  for (const char* type : {"f32", "bf16"}) {
    std::vector<std::string> fine = run;
    fine.insert(fine.end(), {"--kv-type", type});
    EXPECT_EQ(Hydrant(fine).code, 0) << Hydrant(fine).err;
  }
  run.insert(run.end(), {"--kv-type", "f16"});
  ExpectRefused(run, "the f16 KV cache overflowed\nhint:  take --kv-type bf16 or f32");
  ExpectRefused({"eval", "logits", "--model", model, "--prompt-ids", "[5,6]", "--kv-type", "f16", "--out",
                 dir.path() + "/l.safetensors"},
                "the f16 KV cache overflowed");
}

TEST(WhatFilesSayTest, HeadsThatNameAnotherBaseAreDoubted) {
  const TempDir dir;
  const std::string model = dir.path() + "/m", heads = dir.path() + "/h";
  fs::copy(Model(), model);
  fs::copy(Heads(), heads);
  const std::vector<std::string> run = {"run",      "--model", model,          "--draft", heads,
                                        "--prompt", "a",       "--max-tokens", "2",       "--json"};
  EXPECT_THAT(Hydrant(run).err, Not(HasSubstr("base_model_name_or_path")));
  Configure(heads, "base_model_name_or_path", "lmsys/vicuna-7b-v1.3");
  EXPECT_THAT(Hydrant(run).err, Not(HasSubstr("base_model_name_or_path")));  // m says nothing of itself
  Configure(model, "_name_or_path", "lmsys/vicuna-7b-v1.5");
  const Outcome outcome = Hydrant(run);
  EXPECT_THAT(outcome.err, AllOf(HasSubstr("lmsys/vicuna-7b-v1.3"), HasSubstr("lmsys/vicuna-7b-v1.5")));
  EXPECT_THAT(JsonOf(outcome)["warnings"].dump(), HasSubstr("lmsys/vicuna-7b-v1.5"));
}

// Heads with large biases draft the same few tokens, whatever the text.
TEST(WhatFilesSayTest, HeadsOfNoUseAreNamedAfterGeneration) {
  const TempDir dir;
  const std::string heads = dir.path() + "/h";
  fs::copy(Golden("medusa/c_v2_k4_l1"), heads);
  std::string biases;
  for (int i = 0; i < 64; ++i) {
    const auto bias = static_cast<float>(i % 7 * 40 - 100);
    biases.append(reinterpret_cast<const char*>(&bias), sizeof bias);
  }
  for (const char* head : {"0", "1"}) {
    Overwrite(heads + "/medusa_lm_head.safetensors", std::string(head) + ".0.linear.bias", biases);
  }
  const std::vector<std::string> flags = {"--model",     Golden("base_mha"), "--draft", heads,          "--tree",
                                          "[[0],[0,0]]", "--prompt-ids",     "[1,2,3]", "--max-tokens", "120"};
  std::vector<std::string> run = {"run", "--json", "--ignore-eos"},
                           bench = {"bench", "latency", "--json", "--runs", "1"};
  run.insert(run.end(), flags.begin(), flags.end());
  bench.insert(bench.end(), flags.begin(), flags.end());
  const Outcome outcome = Hydrant(run);
  const Json json = JsonOf(outcome);
  int64_t accepted = 0;
  for (const Json& count : json["depth_accepted"]) accepted += count.get<int64_t>();
  const bool few = static_cast<double>(accepted) < 0.02 * json["num_drafted"].get<double>();
  ASSERT_TRUE(few) << "these heads are random: " << accepted << " of " << json["num_drafted"];
  EXPECT_THAT(outcome.err, HasSubstr("drafted tokens were accepted in "));
  EXPECT_THAT(json["warnings"].dump(), HasSubstr("drafted tokens were accepted in "));
  const Outcome measured = Hydrant(bench);
  EXPECT_THAT(measured.err, HasSubstr("medusa: "));
  EXPECT_THAT(JsonOf(measured)["warnings"].dump(), HasSubstr("drafted tokens were accepted in "));
}

// A tokenizer whose piece 'end' moves the cursor up.
TEST(WhatFilesSayTest, WhatAModelWritesDoesNotCommandTheTerminal) {
  const TempDir dir;
  const std::string model = dir.path() + "/m";
  fs::copy(Case("tied_conflict"), model);
  std::string tokenizer = ReadBack(model + "/tokenizer.model");
  const size_t at = tokenizer.find(
      "\x03"
      "end");
  ASSERT_NE(at, std::string::npos);
  tokenizer.replace(at + 1, 3, "\x1b[A");
  dir.Write("m/tokenizer.model", tokenizer);
  const std::vector<std::string> run = {"run",           "--model", model,          "--template", "none",
                                        "--prompt",      "the",     "--max-tokens", "40",         "--ignore-eos",
                                        "--temperature", "2",       "--seed",       "1"};
  const std::string raw = Hydrant(run).out;
  ASSERT_THAT(raw, HasSubstr("\x1b[A"));  // files get the text as it is
  const std::string shown = OnTerminal(run);
  EXPECT_THAT(shown, AllOf(HasSubstr("\\x1b[A"), Not(HasSubstr("\x1b"))));
}

TEST(WhatFilesSayTest, NamesInFilesDoNotCommandTheTerminal) {
  const TempDir dir;
  const std::string config = R"({"model_type":"\u001b]0;title\u0007\u009b31m"})";
  dir.Write("config.json", config);
  dir.Write("model.safetensors", "x");
  const Outcome outcome = Hydrant({"run", "--model", dir.path(), "--prompt", "a"});
  EXPECT_EQ(outcome.code, 2);
  EXPECT_THAT(outcome.err, AllOf(Not(HasSubstr("\x1b")), Not(HasSubstr("\xc2\x9b")), Not(HasSubstr("\a"))));
  const std::string folder = dir.path() + "/a\x1b[31m";
  const Outcome missing = Hydrant({"inspect", folder});
  EXPECT_THAT(missing.err, AllOf(HasSubstr("a\\x1b[31m: there is no such file or folder"), Not(HasSubstr("\x1b"))));
}

}  // namespace
}  // namespace hydrant::test::what_files_say_test
