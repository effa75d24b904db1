// SPDX-License-Identifier: Apache-2.0
// The program as its users and their scripts meet it: exit codes, stdout, stderr.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/resource.h>

#include <algorithm>
#include <array>
#include <filesystem>
#include <string>
#include <vector>

#include "base/json.h"
#include "base/mapped_file.h"
#include "base/thread_pool.h"
#include "tests/program.h"
#include "tests/test_data.h"

namespace hydrant::test::commands_test {
namespace {

using testing::AllOf;
using testing::HasSubstr;
using testing::Not;
using testing::StartsWith;

TEST(CommandsTest, VersionNamesTheCpuTarget) {
  const Outcome version = Hydrant({"--version"});
  EXPECT_EQ(version.code, 0);
  EXPECT_THAT(version.out, AllOf(StartsWith("hydrant "), HasSubstr("\ncpu target: ")));
}

TEST(CommandsTest, UnknownWordsAreRefusedWithTheNearest) {
  ExpectRefused({"rnu"}, "unknown command 'rnu'\nhint:  did you mean run?");
  ExpectRefused({"--versoin"}, "did you mean --version?");
  ExpectRefused({"tree", "shwo"}, "did you mean show?");
  ExpectRefused({"run", "--promt", "x"}, "unknown flag '--promt'\nhint:  did you mean --prompt?");
  ExpectRefused({"tree", "show", "mc_sim_7b_36"}, "did you mean 'mc_sim_7b_63'");
  ExpectRefused({"run", "--model", Model(), "--cpu-target", "avx51", "--prompt", "x"}, "avx512");
  ExpectRefused({}, "no command is given");
}

TEST(CommandsTest, ErrorsGoToStderrAlsoWithJson) {
  ExpectRefused({"run", "--json", "--temperature", "nan", "--prompt", "x"}, "--temperature is \"nan\", expected");
  ExpectRefused({"inspect", "/nowhere", "--json"}, "error: /nowhere: there is no such file or folder");
  ExpectRefused({"run", "--json", "--model", "/nowhere", "--prompt", "x"}, "error: /nowhere: ");
}

TEST(CommandsTest, RooflineHasReadsAndProductsOfTheTarget) {
  const Json json =
      JsonOf(Hydrant({"bench", "roofline", "--cpu-target", "portable", "--threads", "1", "--seconds", "0", "--json"}));
  EXPECT_EQ(json["threads"], 1);
  ASSERT_EQ(json["read"].size(), 2U);  // 4 KB and 2 MB pages
  EXPECT_GT(json["read"][0]["gb_s"], 0);
  ASSERT_GT(json["multiply"].size(), 0U);
  for (const Json& row : json["multiply"]) {
    EXPECT_EQ(row["target"], "portable");
    EXPECT_LE(row["gmac_s_min"], row["gmac_s"]);
  }
  ExpectRefused({"bench", "roofline", "--seconds", "x"}, "--seconds is \"x\", expected");
  ExpectRefused({"bench", "rofline"}, "did you mean roofline?");
}

TEST(CommandsTest, MoreThreadsThanCoresAreWarnedOf) {
  const std::string cores = std::to_string(base::DefaultThreads()), more = std::to_string(base::DefaultThreads() + 1);
  const std::vector<std::string> bench = {"bench", "step",      "--shape", "tale",      "--rows",
                                          "1",     "--seconds", "0",       "--no-check"};
  const std::vector<std::string> run = {"run", "--model", Model(), "--prompt", "Once", "--max-tokens", "1"};
  for (const std::vector<std::string>& command : {bench, run}) {
    for (const std::string& threads : {cores, more}) {
      std::vector<std::string> args = command;
      args.insert(args.end(), {"--threads", threads});
      const Outcome outcome = Hydrant(args);
      EXPECT_EQ(outcome.code, 0) << outcome.err;
      EXPECT_EQ(outcome.err.find("warning: " + more + " threads") != std::string::npos, threads == more) << outcome.err;
    }
  }
}

TEST(CommandsTest, StepTimesEveryNumberOfRows) {
  const Json json = JsonOf(Hydrant({"bench", "step", "--shape", "tale", "--weights", "w4a8", "--rows", "1,3",
                                    "--prefill", "9", "--threads", "1", "--seconds", "0", "--json"}));
  EXPECT_EQ(json["shape"], "tale");
  EXPECT_EQ(json["weights"], "w4a8");
  EXPECT_EQ(json["threads"], 1);
  EXPECT_EQ(json["checked"], true);
  EXPECT_EQ(json["bytes_read"], json["weight_bytes"].get<int64_t>() + json["kv_bytes"].get<int64_t>());
  EXPECT_GT(json["read_gb_s"], 0);
  EXPECT_GT(json["multiply_gmac_s"], 0);
  ASSERT_EQ(json["rows"].size(), 2U);
  EXPECT_EQ(json["rows"][1]["rows"], 3);
  EXPECT_LE(json["rows"][1]["ms_min"], json["rows"][1]["ms"]);
  EXPECT_GT(json["rows"][1]["roofline_ms"], 0);
  EXPECT_EQ(json["prefill"]["rows"], 9);
  ExpectRefused({"bench", "step", "--rows", "1,1"}, "--rows has 1 twice");
  ExpectRefused({"bench", "step", "--rows", "1,,2"}, "--rows is \"1,,2\", expected numbers such as 1,4 or [1, 4]");
  ExpectRefused({"bench", "step", "--shape", "9b"}, "--shape is \"9b\", expected one of 7b, 8b, 13b, 33b, 1b, tale");
}

TEST(CommandsTest, HeadsAreTimedPartByPart) {
  const Json random = JsonOf(Hydrant({"bench", "heads", "--shape", "tale", "--heads", "medusa,hydra++", "--threads",
                                      "1", "--seconds", "0", "--json"}));
  EXPECT_EQ(random["weights"], "w4a8");
  EXPECT_EQ(random["head_weights"], "w4a8");
  ASSERT_EQ(random["methods"].size(), 2U);
  EXPECT_EQ(random["methods"][0]["parts"].size(), 5U);  // four heads and all of them
  const Json files = JsonOf(Hydrant(
      {"bench", "heads", "--model", Model(), "--draft", Heads(), "--threads", "1", "--seconds", "0", "--json"}));
  for (const Json& hydra : {random["methods"][1], files["methods"][0]}) {
    EXPECT_EQ(hydra["name"], "hydra++");
    EXPECT_EQ(hydra["checked"], true);
    ASSERT_EQ(hydra["parts"].size(), 6U);
    EXPECT_EQ(hydra["parts"][0]["name"], "prefix layer");
    EXPECT_GT(hydra["parts"][0]["ms"], 0.001);
    EXPECT_GT(hydra["step_ms"], 0);
  }
  const Json cut = JsonOf(
      Hydrant({"bench", "heads", "--model", Model(), "--draft", Heads(), "--draft-vocab",
               Heads() + "/draft_vocab_stories.json", "--threads", "1", "--seconds", "0", "--no-check", "--json"}));
  const Json prefix = cut["methods"][0]["parts"][0], whole = files["methods"][0]["parts"][0];
  EXPECT_NEAR(prefix["bytes"].get<double>(), whole["bytes"].get<double>(), 0.02 * whole["bytes"].get<double>())
      << "a smaller vocabulary takes nothing from the prefix layer";
  for (const Json& part : files["methods"][0]["parts"]) EXPECT_LE(part["ms_min"], part["ms"]) << part;
  ExpectRefused({"bench", "heads", "--model", Model()}, "--model and --draft go together");
  ExpectRefused({"bench", "heads", "--model", Model(), "--draft", Heads(), "--shape", "7b"},
                "--shape is for random weights");
  ExpectRefused({"bench", "heads", "--heads", "hydra+"}, "did you mean hydra++?");
  ExpectRefused({"bench", "heads", "--draft-vocab", "8000"}, "give their number with --draft-vocab-size");
}

TEST(CommandsTest, LatencyComparesPlainWithTheHeads) {
  const Json json = JsonOf(Hydrant({"bench", "latency", "--model", Model(), "--draft", Heads(), "--prompt-ids",
                                    "[1, 334, 3476]", "--max-tokens", "8", "--runs", "2", "--json"}));
  EXPECT_EQ(json["runs"], 2);
  EXPECT_EQ(json["tokens"], 8);
  EXPECT_EQ(json["texts_equal"], true);
  EXPECT_EQ(json["kv_type"], "f32");  // in use, not "auto"
  ASSERT_EQ(json["methods"].size(), 2U);
  EXPECT_EQ(json["methods"][0]["name"], "plain");
  EXPECT_EQ(json["methods"][0]["tokens_per_step"], 1);
  EXPECT_EQ(json["methods"][1]["name"], "hydra++");
  EXPECT_EQ(json["methods"][1]["runs_ms"].size(), 2U);
  ExpectRefused({"bench", "latency", "--draft", "/nowhere"}, "/nowhere: there is no such folder");
}

TEST(CommandsTest, TokenizeAndDetokenizeAreInverse) {
  const std::string text = "Once upon a time, caf\xc3\xa9 \xf0\x9f\x98\x80.";
  const Outcome outcome = Hydrant({"tokenize", "--model", Model(), "--text", text});
  const Json ids = JsonOf(outcome)["ids"];
  EXPECT_EQ(ids[0], 1);  // the tokenizer's own rule: BOS first
  EXPECT_EQ(JsonOf(outcome).size(), 1U);
  const Outcome back = Hydrant({"detokenize", "--model", Model(), "--ids", ids.dump(), "--skip-special"});
  EXPECT_EQ(JsonOf(back)["text"], text);
  EXPECT_THAT(back.out, AllOf(HasSubstr("caf\\u00e9 \\ud83d\\ude00"), Not(HasSubstr("\xc3"))));
}

TEST(CommandsTest, TokenizeTakesBosAndSpecialsAsFlagged) {
  const auto ids = [](std::vector<std::string> more, const std::string& input) {
    more.insert(more.begin(), {"tokenize", "--model", Model() + "/tokenizer.model"});
    return JsonOf(Hydrant(more, input))["ids"];
  };
  const Json plain = ids({"--no-bos"}, "a</s>b\n");
  Json with_bos = Json::array({1});
  for (const Json& id : plain) with_bos.push_back(id);
  EXPECT_EQ(ids({"--add-bos"}, "a</s>b\n"), with_bos);
  EXPECT_NE(std::find(plain.begin(), plain.end(), Json(2)), plain.end());
  const Json ordinary = ids({"--no-bos", "--no-special"}, "a</s>b\n");
  EXPECT_EQ(std::find(ordinary.begin(), ordinary.end(), Json(2)), ordinary.end());
  ExpectRefused({"tokenize", "--model", Model(), "--add-bos", "--no-bos", "--text", "a"}, "--add-bos and --no-bos");
}

TEST(CommandsTest, TokenizeJsonLinesOneObjectForEach) {
  const test::TempDir dir;
  const std::string file = dir.Write("texts.jsonl", "\"a\\nb\"\n\"\"\n\"c\"\n");
  const Outcome outcome = Hydrant({"tokenize", "--model", Model(), "--no-bos", "--jsonl", file});
  EXPECT_EQ(outcome.code, 0) << outcome.err;
  EXPECT_EQ(std::count(outcome.out.begin(), outcome.out.end(), '\n'), 3);
  EXPECT_THAT(outcome.out, HasSubstr("\n{\"ids\":[]}\n"));
  const std::string bad = dir.Write("bad.jsonl", "\"a\"\n{}\n");
  const Outcome refused = Hydrant({"tokenize", "--model", Model(), "--jsonl", bad});
  EXPECT_EQ(refused.code, 2);
  EXPECT_THAT(refused.err, StartsWith("error: " + bad + ":2: "));
}

TEST(CommandsTest, TokenizeChatPrintsThePrompt) {
  const test::TempDir dir;
  const std::string file = dir.Write("messages.json", R"([{"role":"user","content":"Hi"}])");
  const Json json = JsonOf(Hydrant({"tokenize", "--model", Model(), "--chat", file}));
  EXPECT_THAT(json["prompt"].get<std::string>(),
              AllOf(StartsWith("<s>A chat"), testing::EndsWith("USER: Hi ASSISTANT:")));
  EXPECT_EQ(json["ids"][0], 1);
  EXPECT_NE(json["ids"][1], 1);
  const Json open = JsonOf(Hydrant({"tokenize", "--model", Model(), "--chat", file, "--no-generation-prompt"}));
  EXPECT_THAT(open["prompt"].get<std::string>(), testing::EndsWith("USER: Hi"));
  ExpectRefused({"tokenize", "--model", Model(), "--chat", file, "--template", "vicunna"}, "did you mean vicuna?");
  ExpectRefused({"tokenize", "--model", Model(), "--text", "x", "--no-generation-prompt"}, "--chat only");
}

TEST(CommandsTest, DetokenizeRefusesIdsOutsideTheVocabulary) {
  ExpectRefused({"detokenize", "--model", Model(), "--ids", "[99999]"}, "99999");
  ExpectRefused({"detokenize", "--model", Model(), "--ids", "[-1]"}, "--ids");
  ExpectRefused({"detokenize", "--model", Model()}, "--ids is missing");
}

TEST(CommandsTest, TreeShowCountsAndConvertRoundTrips) {
  const Json shown = JsonOf(Hydrant({"tree", "show", "mc_sim_7b_63", "--json"}));
  EXPECT_EQ(shown["nodes"], 63);
  EXPECT_EQ(shown["nodes_per_depth"], Json({10, 28, 23, 2}));
  EXPECT_EQ(shown["leaves"], 42);
  const Outcome paths = Hydrant({"tree", "convert", "mc_sim_7b_63", "--to", "paths"});
  EXPECT_EQ(JsonOf(paths).size(), 42U);
  const Outcome choices = Hydrant({"tree", "convert", paths.out});
  EXPECT_EQ(choices.out, Hydrant({"tree", "convert", "mc_sim_7b_63"}).out);
  EXPECT_EQ(JsonOf(choices).size(), 63U);
  const test::TempDir dir;
  const std::string file = dir.path() + "/tree.json";
  EXPECT_EQ(Hydrant({"tree", "convert", "[[0,0],[1]]", "--to", "named", "--out", file}).code, 0);
  EXPECT_EQ(JsonOf(Hydrant({"tree", "show", file, "--json"}))["choices"], Json::parse("[[0],[1],[0,0]]"));
  const Json parents = JsonOf(Hydrant({"tree", "convert", "[[0,0],[1]]", "--to", "parents"}));
  EXPECT_EQ(parents["parent"], Json({-1, 0, 0, 1}));
  EXPECT_THAT(Hydrant({"tree", "show", "[[0],[1]]"}).out, HasSubstr("2 drafted nodes"));
  EXPECT_THAT(Hydrant({"tree", "list"}).out, HasSubstr("mc_sim_7b_63"));
  EXPECT_EQ(Hydrant({"tree", "convert", "[[0]]", "--out", "/dev/null"}).code, 0);
  ExpectRefused({"tree", "show", "[[0],[0,0,0]]"}, "[0,0]");
  ExpectRefused({"tree", "convert", "[[0]]", "--to", "path"}, "did you mean paths?");
}

// Where it cannot be written whole the old one stays.
TEST(CommandsTest, TreeConvertSparesTheFileThatItCannotReplace) {
  const test::TempDir dir;
  const std::string file = dir.Write("tree.json", "[[0]]");
  struct rlimit before {};
  getrlimit(RLIMIT_FSIZE, &before);
  const struct rlimit little {
    100, before.rlim_max
  };
  setrlimit(RLIMIT_FSIZE, &little);
  const int code = Hydrant({"tree", "convert", "mc_sim_7b_63", "--out", file}).code;
  setrlimit(RLIMIT_FSIZE, &before);
  EXPECT_EQ(code, 2);
  EXPECT_EQ(ReadBack(file), "[[0]]");
  EXPECT_EQ(Hydrant({"tree", "convert", "chain", "--out", file}).code, 0);
  EXPECT_NE(ReadBack(file), "[[0]]");
}

TEST(CommandsTest, InspectSaysWhatAFolderIs) {
  const Json base = JsonOf(Hydrant({"inspect", Model(), "--json"}));
  EXPECT_EQ(base["kind"], "base model");
  EXPECT_EQ(base["base"]["family"], "llama");
  EXPECT_EQ(base["base"]["parameters"], 14950656);
  EXPECT_EQ(base["base"]["hidden_size"], 256);
  EXPECT_EQ(base["base"]["dtypes"], Json({{"bf16", 14950656}}));
  EXPECT_EQ(base["tokenizer"]["chat_template"], "vicuna");
  const Json heads = JsonOf(Hydrant({"inspect", Heads(), "--json"}));
  EXPECT_EQ(heads["kind"], "heads");
  EXPECT_EQ(heads["heads"]["architecture"], "prefix-mlp");
  EXPECT_EQ(heads["heads"]["num_heads"], 4);
  EXPECT_EQ(heads["heads"]["num_layers"], 4);
  EXPECT_EQ(heads["heads"]["parameters"], 7114496);
  EXPECT_EQ(heads["heads"]["unused"], Json::array());
  EXPECT_EQ(heads["heads"]["grows_trees"], false);
  EXPECT_EQ(heads["heads"]["base_hidden_size"], 256);
  EXPECT_EQ(heads["heads"]["base_vocab_size"], 4096);
  EXPECT_THAT(Hydrant({"inspect", Heads()}).out, HasSubstr("grounded               yes"));
  const Json file = JsonOf(Hydrant({"inspect", Heads() + "/hydra_lm_head.safetensors", "--json", "--tensors"}));
  EXPECT_EQ(file["kind"], "tensors");
  EXPECT_EQ(file["tensor_list"].size(), file["tensors"]["tensors"]);
}

TEST(CommandsTest, InspectCountsHeadsOfOneModule) {
  HYDRANT_NEED_SHARED();
  for (const std::string arch : {"eagle", "cross"}) {
    const std::string folder = test::SharedDir() + "/golden/hydra/" + arch + "_attn_k1";
    const Json heads = JsonOf(Hydrant({"inspect", folder, "--json"}))["heads"];
    EXPECT_EQ(heads["drafter"], "hydra-" + arch + "-attn");
    EXPECT_EQ(heads["tensors"], arch == "eagle" ? 12 : 9);
    EXPECT_EQ(heads["base_copies"], Json({"input_embed_fn.weight", "lm_head.weight"}));
    EXPECT_EQ(heads["lm_heads"], "the base's");
    EXPECT_EQ(heads["grows_trees"], true);
  }
  const Json third = JsonOf(Hydrant({"inspect", test::SharedDir() + "/golden/eagle/eagle3", "--json"}))["heads"];
  EXPECT_EQ(third["hidden_layers"], "[1, 2, 4]");
  EXPECT_EQ(third["hidden_states"], "that enter or leave them, by the base's size");
  EXPECT_EQ(third["base_hidden_size"], 64);
}

TEST(CommandsTest, RunWithHeadsEqualsPlainDecoding) {
  const std::vector<std::string> common = {
      "--model", Model(),         "--template", "none",   "--prompt", "Once upon a time", "--max-tokens", "24",
      "--json",  "--temperature", "0.8",        "--seed", "3"};
  std::vector<std::string> plain = {"run"}, drafted = {"run", "--draft", Heads()};
  plain.insert(plain.end(), common.begin(), common.end());
  drafted.insert(drafted.end(), common.begin(), common.end());
  const Json a = JsonOf(Hydrant(plain)), b = JsonOf(Hydrant(drafted));
  EXPECT_EQ(a["token_ids"], b["token_ids"]);
  EXPECT_EQ(a["text"], b["text"]);
  EXPECT_EQ(a["token_ids"].size(), 24U);
  EXPECT_EQ(a["num_emitted"].size(), 23U);
  EXPECT_LT(b["num_emitted"].size(), a["num_emitted"].size());
  EXPECT_EQ(b["drafter"], "hydra++");
  EXPECT_EQ(b["tree"], "auto");
  EXPECT_EQ(a["tree"], nullptr);
  const Json& chosen = b["tree_chosen"];
  EXPECT_TRUE(chosen["why"].is_string());
  EXPECT_TRUE(chosen["choices"].is_array());
  int64_t steps = 0;
  for (const Json& tried : chosen["tried"]) steps += tried["steps"].get<int64_t>();
  EXPECT_EQ(steps, static_cast<int64_t>(b["num_emitted"].size()));
  EXPECT_EQ(b["finish_reason"], "length");
}

TEST(CommandsTest, RunStreamsTheTextAndTakesThePromptFromStdin) {
  const std::vector<std::string> args = {"run", "--template", "none", "--max-tokens", "12"};
  const Outcome streamed = Hydrant(args, "The old king");
  EXPECT_EQ(streamed.code, 0) << streamed.err;
  EXPECT_THAT(streamed.err, StartsWith("No --model given: using "));
  std::vector<std::string> with_json = args;
  with_json.insert(with_json.end(), {"--json", "--prompt", "The old king"});
  EXPECT_EQ(JsonOf(Hydrant(with_json))["text"], streamed.out);
  std::vector<std::string> colored = args;
  colored.insert(colored.end(), {"--show-drafts", "--color", "always", "--prompt", "The old king"});
  EXPECT_THAT(Hydrant(colored).out, HasSubstr("\x1b[38;5;16;48;5;157m"));
}

TEST(CommandsTest, RunTakesPromptIdsExactlyAsGiven) {
  const Json json =
      JsonOf(Hydrant({"run", "--model", Model(), "--prompt-ids", "[334, 3476]", "--max-tokens", "3", "--json"}));
  EXPECT_EQ(json["prompt_token_ids"], Json({334, 3476}));
  EXPECT_EQ(json["template"], "none");
  ExpectRefused({"run", "--model", Model(), "--prompt-ids", "[4096]"}, "4096");
  ExpectRefused({"run", "--model", Model(), "--prompt-ids", "[]"}, "empty");
}

TEST(CommandsTest, EvalLogitsWritesTheTensors) {
  const test::TempDir dir;
  const std::string out = dir.path() + "/out.safetensors";
  const Outcome outcome = Hydrant({"eval", "logits", "--model", Model(), "--draft", Heads(), "--prompt-ids",
                                   "[1,334,3476]", "--path", "[5]", "--out", out});
  EXPECT_EQ(outcome.code, 0) << outcome.err;
  const Json list = JsonOf(Hydrant({"inspect", out, "--tensors", "--json"}))["tensor_list"];
  EXPECT_EQ(list[0], Json({{"name", "head_logits"}, {"dtype", "f32"}, {"shape", {4, 4096}}}));
  EXPECT_EQ(list[1], Json({{"name", "hidden"}, {"dtype", "f32"}, {"shape", {3, 256}}}));
  EXPECT_EQ(list[2], Json({{"name", "logits"}, {"dtype", "f32"}, {"shape", {3, 4096}}}));
  ExpectRefused({"eval", "logits", "--model", Model(), "--prompt-ids", "[1]", "--path", "[2]", "--out", out},
                "--path needs draft heads");
  ExpectRefused({"eval", "logits", "--model", Model(), "--prompt-ids", "[1]"}, "--out is missing");
}

TEST(CommandsTest, OddPathsAreTheUsersMistakes) {
  const test::TempDir dir;
  const std::string base = test::SourceDir() + "/tests/golden/base_mha", loop = dir.path() + "/loop";
  std::filesystem::create_symlink(loop, loop);
  ExpectRefused({"inspect", loop}, loop);
  ExpectRefused({"inspect", std::string(300, 'x')}, "xxx");
  const std::string model = dir.path() + "/m", odd = dir.path() + "/bad\xff\xfename";
  std::filesystem::copy(base, model);
  std::filesystem::remove(model + "/generation_config.json");
  std::filesystem::create_symlink("generation_config.json", model + "/generation_config.json");
  ExpectRefused({"inspect", model}, "generation_config.json");
  std::filesystem::copy(base, odd);
  const Outcome made = Hydrant({"convert", odd, dir.path() + "/w8", "--weights", "w8a8"});
  EXPECT_EQ(made.code, 0) << made.err;
}

TEST(CommandsTest, RunReadsWhatConvertWrites) {
  const test::TempDir dir;
  const std::string base = test::SourceDir() + "/tests/golden/base_mha", out = dir.path() + "/w4";
  const std::string heads = test::SourceDir() + "/tests/golden/hydra/prefix_mlp_k2_l1", heads_out = dir.path() + "/h8";
  const Json made = JsonOf(Hydrant({"convert", base, out, "--weights", "w4a8", "--layout", "lines", "--json"}));
  EXPECT_EQ(made["layout"], "lines");
  EXPECT_EQ(made["weights_file"], "model.safetensors");
  EXPECT_LT(made["bytes_after"], made["bytes_before"]);
  const Outcome made_heads = Hydrant({"convert", heads, heads_out, "--head-weights", "w8a8", "--model", out});
  EXPECT_EQ(made_heads.code, 0) << made_heads.err;
  EXPECT_THAT(made_heads.out, AllOf(StartsWith(heads_out + "/"), HasSubstr(" tensors packed, ")));

  const std::vector<std::string> rest = {"--prompt-ids", "[1, 382, 395]", "--max-tokens", "20",
                                         "--tree",       "single",        "--json"};
  std::vector<std::string> mapped = {"run", "--model", out, "--draft", heads_out};
  std::vector<std::string> at_load = {"run", "--model", base, "--draft", heads, "--weights", "w4a8"};
  mapped.insert(mapped.end(), rest.begin(), rest.end());
  at_load.insert(at_load.end(), rest.begin(), rest.end());
  const Json a = JsonOf(Hydrant(mapped)), b = JsonOf(Hydrant(at_load));
  EXPECT_EQ(a["token_ids"], b["token_ids"]);
  EXPECT_EQ(a["num_emitted"], b["num_emitted"]);
  EXPECT_EQ(a["weights"], b["weights"]);
  EXPECT_EQ(a["head_weights"], "w8a8");
  EXPECT_EQ(a["weight_bytes"], b["weight_bytes"]);
  EXPECT_EQ(a["head_weight_bytes"], b["head_weight_bytes"]);
  EXPECT_TRUE(a["packing"].is_null());
  EXPECT_GT(b["packing"]["bytes_before"], b["packing"]["bytes_after"]);

  const Json seen = JsonOf(Hydrant({"inspect", out, "--json"}));
  EXPECT_EQ(seen["base"]["packed"]["layout"], "lines");
  EXPECT_EQ(seen["base"]["packed"]["source"], "base_mha");
  EXPECT_TRUE(seen["base"]["dtypes"].contains("w8a8")) << "64 inputs stay in 8 bits";
}

TEST(CommandsTest, ConvertReplacesOnlyWhatItMay) {
  const test::TempDir dir;
  const std::string base = test::SourceDir() + "/tests/golden/base_mha", out = dir.path() + "/w4";
  const std::string heads = test::SourceDir() + "/tests/golden/hydra/prefix_mlp_k2_l1";
  EXPECT_EQ(Hydrant({"convert", base, out, "--weights", "w4a8"}).code, 0);
  ExpectRefused({"convert", base, out, "--weights", "w4a8"}, "exists already");
  ExpectRefused({"convert", heads, out, "--head-weights", "w8a8", "--model", out, "--force"},
                "is what is read: it would be lost");
  EXPECT_EQ(Hydrant({"convert", base, out, "--weights", "w8a8", "--layout", "interleaved", "--force"}).code, 0);
  EXPECT_EQ(JsonOf(Hydrant({"inspect", out, "--json"}))["base"]["packed"]["layout"], "interleaved");
  ExpectRefused({"convert", base, dir.path() + "/x", "--weights", "w8a8", "--layout", "quads"},
                "expected one of auto, lines, interleaved");
  ExpectRefused({"convert", base, dir.path() + "/x", "--weights", "w4"}, "expected one of w8a8, w4a8, w8a16, w4a16");
  ExpectRefused({"convert", base, dir.path() + "/x", "--weights", "bf16"}, "floats need no conversion");
  ExpectRefused({"convert", "/nowhere", dir.path() + "/x", "--weights", "w8a8"}, "/nowhere: there is no such folder");
}

TEST(CommandsTest, PerplexityOfTextsAndMessages) {
  const test::TempDir dir;
  const std::string text = dir.Write("t.txt", "Once upon a time there was a cat.\n\nThe cat had a hat.\n");
  const std::vector<std::string> common = {"eval", "ppl", "--model", Model(), "--json"};
  const auto with = [&common](std::vector<std::string> more) {
    more.insert(more.begin(), common.begin(), common.end());
    return more;
  };
  const Json whole = JsonOf(Hydrant(with({"--text", text})));
  EXPECT_GT(whole["perplexity"], 1);
  EXPECT_EQ(whole["windows"], 1);
  EXPECT_EQ(whole["context"], 512);
  EXPECT_EQ(whole["stride"], 256);
  EXPECT_EQ(whole["weights"], "bf16");
  const Json packed = JsonOf(Hydrant(with({"--text", text, "--weights", "w8a8"})));
  EXPECT_NEAR(packed["perplexity"].get<double>(), whole["perplexity"].get<double>(),
              0.1 * whole["perplexity"].get<double>());
  EXPECT_NE(packed["perplexity"], whole["perplexity"]);
  const Json parts = JsonOf(Hydrant(with({"--text", text, "--split", "blank"})));
  EXPECT_EQ(parts["windows"], 2);
  const std::string chat = dir.Write(
      "c.jsonl", R"({"conversations": [{"from": "human", "value": "Hi."}, {"from": "gpt", "value": "Hello!"}]})"
                 "\n\n"
                 R"({"text": "The cat had a hat."})"
                 "\n");
  EXPECT_EQ(JsonOf(Hydrant(with({"--text", chat})))["windows"], 2);
  EXPECT_EQ(JsonOf(Hydrant(with({"--text", text, "--max-tokens", "3"})))["tokens"], 3);
  EXPECT_EQ(JsonOf(Hydrant(common, "A cat."))["text"], Json());
  ExpectRefused(with({"--text", chat, "--field", "body"}), "c.jsonl line 1: ");
  const std::string odd = dir.Write("odd.jsonl", R"({"text": 5, "messages": []})");
  ExpectRefused(with({"--text", odd}), "odd.jsonl line 1: 'text' is 5, expected a text, or a list of messages");
  ExpectRefused(with({"--text", odd, "--field", "messages"}), "'messages' is [], expected one message at least");
  ExpectRefused(with({"--text", text, "--context", "513"}), "--context is 513, expected 2 to 512");
  ExpectRefused({"eval", "ppl"}, "--model is missing");
}

// The exit code where stdout is `out`.
int CodeWithOutput(int out, const char* command, const char* word) {
  const pid_t child = fork();
  if (child == 0) {
    dup2(out, STDOUT_FILENO);
    dup2(open("/dev/null", O_WRONLY), STDERR_FILENO);
    execl(HYDRANT_PROGRAM, HYDRANT_PROGRAM, command, word, nullptr);
    _exit(127);
  }
  close(out);
  int status = 0;
  waitpid(child, &status, 0);
  return WIFEXITED(status) ? WEXITSTATUS(status) : 1000 + WTERMSIG(status);
}

TEST(CommandsTest, ClosedPipeEndsQuietly) {
  for (const auto& [command, word] : {std::pair("tree", "list"), {"run", "--help"}, {"inspect", "--help"}}) {
    std::array<int, 2> pipe_ends{};
    ASSERT_EQ(pipe(pipe_ends.data()), 0);
    close(pipe_ends[0]);
    EXPECT_EQ(CodeWithOutput(pipe_ends[1], command, word), 0) << command;
  }
}

TEST(CommandsTest, FullDeviceIsReported) {
  for (const auto& [command, word] : {std::pair("tree", "list"), {"run", "--help"}, {"inspect", "--help"}}) {
    EXPECT_EQ(CodeWithOutput(open("/dev/full", O_WRONLY), command, word), 2) << command;
  }
}

}  // namespace
}  // namespace hydrant::test::commands_test
