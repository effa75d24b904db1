// SPDX-License-Identifier: Apache-2.0
// What the program does not go on with: settings that would change nothing, weights that give no text.
#include <gtest/gtest.h>

#include <cstdint>
#include <cstring>
#include <filesystem>
#include <string>
#include <vector>

#include "base/json.h"
#include "tests/program.h"
#include "tests/test_data.h"

namespace hydrant::test::refusals_test {
namespace {

std::string Golden(const std::string& name) { return SourceDir() + "/tests/golden/" + name; }

// The first bytes of a tensor of the safetensors file in `folder`.
void Overwrite(const TempDir& folder, const std::string& name, const std::string& tensor, const std::string& bytes) {
  std::string content = ReadBack(folder.path() + "/" + name);
  uint64_t length = 0;
  std::memcpy(&length, content.data(), 8);
  const Json header = base::ParseJson(content.substr(8, length), name);
  content.replace(8 + length + header.at(tensor).at("data_offsets").at(0).get<size_t>(), bytes.size(), bytes);
  folder.Write(name, content);
}

TEST(RefusalsTest, SettingsWithoutEffect) {
  const TempDir dir;
  const std::string text = dir.Write("t.txt", "A cat.");
  const std::vector<std::string> run = {"run", "--model", Model(), "--prompt", "a"};
  const auto refused = [&run](std::vector<std::string> more, const std::string& part) {
    more.insert(more.begin(), run.begin(), run.end());
    ExpectRefused(more, part);
  };
  refused({"--draft", Heads(), "--draft-vocab-size", "5"}, "--draft-vocab-text");
  refused({"--draft", Heads(), "--draft-vocab", ""}, "--draft-vocab is empty");
  refused({"--draft", Heads(), "--draft-vocab-text", ""}, "--draft-vocab-text is empty");
  refused({"--draft", Heads(), "--draft-vocab-text", dir.Write("none.txt", ""), "--draft-vocab-size", "5"},
          "none.txt: has no tokens");
  refused({"--draft", Heads(), "--accept", "typical", "--temperature", "0.7", "--presence-penalty", "1"},
          "a penalty is set with typical acceptance");
  refused({"--head-weights", "w8a8"}, "--head-weights needs draft heads");
  const auto by_rejection = [&](std::vector<std::string> more, const std::string& part) {
    more.insert(more.begin(), {"--draft", Heads(), "--accept", "rejection", "--temperature", "0.7"});
    refused(more, part);
  };
  by_rejection({"--tree", "auto"}, "--tree is \"auto\" with the rejection rule");
  by_rejection({"--tree", "dynamic"}, "--tree is \"dynamic\"");
  by_rejection({"--draft-p-min", "0.1"}, "--draft-p-min is for the other rules");
  by_rejection({"--candidates", "plain"}, "is set with the rejection rule");
  by_rejection({"--lookup", "3"}, "--lookup is for the exact rule");
  by_rejection({"--compare-plain"}, "which --accept rejection does not promise");
  by_rejection({"--tree", "chain", "--draft-depth", "3"}, "--draft-depth is for dynamic trees");
  by_rejection({"--draft-depth", "9"}, "is 5 deep, but the draft has 4 heads");
  ExpectRefused(
      {"bench", "latency", "--model", Model(), "--draft", Heads(), "--prompt-ids", "[1,2,3]", "--max-tokens", "600"},
      "is more than the 512 positions");
  for (const std::vector<std::string>& more : std::vector<std::vector<std::string>>{
           {"--head-weights", "w8a8"}, {"--draft-p-min", "0.5"}, {"--tree", "chain"}}) {
    ExpectRefused({"bench", "latency", "--model", Model(), more[0], more[1]}, more[0] + " needs draft heads");
  }
  ExpectRefused({"bench", "latency", "--model", Model(), "--prompt-ids", "[]"}, "--prompt-ids is an empty list");
  ExpectRefused({"bench", "latency", "--model", Model(), "--draft", ""}, "--draft is empty");
  ExpectRefused({"bench", "heads", "--shape", "tale", "--heads", "medusa", "--tree", "[[0,0,0,0,0]]"},
                "is 5 deep, but the draft has 4 heads");
  ExpectRefused({"bench", "step", "--prefill-chunk", "4"}, "--prefill-chunk is for prompts only");
  ExpectRefused({"inspect", Model() + "/config.json"}, "config.json: describes its folder");
  ExpectRefused({"inspect", ""}, "PATH is empty");
  ExpectRefused({"eval", "ppl", "--model", Model(), "--text", text, "--field", "x"}, "--field is for JSONL only");
}

// Before a tokenizer takes a hundred times as much memory.
TEST(RefusalsTest, PromptsThatNoContextHolds) {
  const TempDir dir;
  const std::string file = dir.Write("long.txt", std::string(size_t{1} << 20, 'a'));
  for (const std::vector<std::string>& more :
       std::vector<std::vector<std::string>>{{"--template", "none"}, {"--template", "vicuna"}}) {
    std::vector<std::string> args = {"run", "--model", Model(), "--prompt-file", file};
    args.insert(args.end(), more.begin(), more.end());
    ExpectRefused(args, "bytes, more than 128 for each");
  }
}

// A text that would take gigabytes to become tokens; where few are scored, few are made.
TEST(RefusalsTest, TextsThatAreTooLongForATokenizer) {
  const TempDir dir;
  const std::string file = dir.Write("long.txt", std::string(size_t{17} << 20, 'a'));
  ExpectRefused({"eval", "ppl", "--model", Model(), "--text", file}, "has a text of 17 MB, at most 16 MB");
  const Outcome outcome = Hydrant({"eval", "ppl", "--model", Model(), "--text", file, "--max-tokens", "5"});
  EXPECT_EQ(outcome.code, 0) << outcome.err;
  EXPECT_THAT(outcome.out, testing::HasSubstr("over 5 tokens"));
}

// A file that a folder may lack is not lacking where it cannot be read: a text would be another one, in silence.
// Hugging Face's cache is made of links.
TEST(RefusalsTest, LinksThatLeadNowhere) {
  const TempDir dir;
  const std::string model = dir.path() + "/m", out = dir.path() + "/out";
  std::filesystem::copy(Model(), model);
  for (const char* name : {"tokenizer_config.json", "tokenizer.model", "chat_template.jinja", "model.safetensors"}) {
    const std::string file = model + "/" + name;
    const bool was_there = std::filesystem::remove(file);
    std::filesystem::create_symlink("/nowhere/x", file);
    ExpectRefused({"run", "--model", model, "--prompt", "a"}, file + ": cannot be opened");
    ExpectRefused({"convert", model, out, "--weights", "w8a8"}, file + ": cannot be");
    std::filesystem::remove(file);
    if (was_there) std::filesystem::copy(Model() + "/" + name, file);
  }
}

TEST(RefusalsTest, LogitsThatAreNotFinite) {
  const TempDir dir;
  std::filesystem::copy(Model(), dir.path());
  Overwrite(dir, "model.safetensors", "model.norm.weight", "\xc0\x7f");  // a NaN in bf16
  const std::string part = dir.path() + ": its logits are NaN or infinite";
  const std::vector<std::string> run = {"run", "--model", dir.path(), "--prompt", "a"};
  for (const std::vector<std::string>& more :
       std::vector<std::vector<std::string>>{{},
                                             {"--json"},
                                             {"--draft", Heads()},
                                             {"--temperature", "0.8"},
                                             {"--accept", "typical", "--temperature", "0.7"}}) {
    std::vector<std::string> args = run;
    args.insert(args.end(), more.begin(), more.end());
    ExpectRefused(args, part);
  }
  ExpectRefused({"eval", "ppl", "--model", dir.path(), "--text", dir.Write("t.txt", "A cat.")}, part);
}

TEST(RefusalsTest, PrefixLayersOfOtherNumbersOfHeads) {
  const TempDir dir;
  const std::string heads = dir.path() + "/h";
  std::filesystem::copy(Golden("hydra/prefix_mlp_k2_l1"), heads);
  Json config = base::ReadJsonFile(heads + "/config.json");
  const auto refused = [&](const Json& number, const std::string& part) {
    config["hydra_ext"] = {{"num_key_value_heads", number}};
    dir.Write("h/config.json", config.dump());
    ExpectRefused({"run", "--model", Golden("base_mha"), "--draft", heads, "--prompt-ids", "[1]"}, part);
  };
  refused(0, "'hydra_ext.num_key_value_heads' is 0");
  refused("x", "'hydra_ext.num_key_value_heads' is \"x\"");
  refused(3, "'hydra_ext.num_key_value_heads' is 3, expected a divisor of the base's");
  refused(2, "self_attn.k_proj.weight' is");
}

// `inspect` reads heads without their base, and still checks all that it can.
TEST(RefusalsTest, EvalLogitsSparesWhatItReads) {
  const TempDir dir;
  const std::string model = dir.path() + "/m", weights = model + "/model.safetensors", out = model + "/logits";
  std::filesystem::copy(SourceDir() + "/tests/golden/base_mha", model);
  const std::string before = ReadBack(weights);
  const auto words = [&](const std::string& to) {
    return std::vector<std::string>{"eval", "logits", "--model", model + "/", "--prompt-ids", "[1]", "--out", to};
  };
  const std::string ids = dir.Write("ids.json", "[1,2]");
  ExpectRefused({"eval", "logits", "--model", model, "--prompt-ids", ids, "--out", dir.path() + "/./ids.json"},
                "is a file that is read");
  EXPECT_EQ(ReadBack(ids), "[1,2]");
  ExpectRefused(words(weights), "lies in a folder that is read");
  EXPECT_EQ(ReadBack(weights), before);
  EXPECT_EQ(Hydrant(words(out)).code, 0);
}

TEST(RefusalsTest, TreesThatRunWouldNotTake) {
  const TempDir dir;
  for (const auto& entry : std::filesystem::directory_iterator(Heads())) {
    std::filesystem::create_symlink(entry.path(), dir.path() + "/" + entry.path().filename().string());
  }
  std::filesystem::remove(dir.path() + "/trees.json");
  dir.Write("trees.json", "{\"bad\"");
  ExpectRefused({"inspect", dir.path()}, "trees.json: is not valid JSON");
}

TEST(RefusalsTest, PackedHeadsThatRunWouldNotTake) {
  const TempDir dir;
  const std::string heads = dir.path() + "/h";
  const std::string file = "hydra_lm_head.safetensors", path = heads + "/" + file;
  const Outcome made = Hydrant(
      {"convert", Golden("hydra/prefix_mlp_k2_l1"), heads, "--head-weights", "w4a8", "--model", Golden("base_mha")});
  ASSERT_EQ(made.code, 0) << made.err;
  EXPECT_EQ(Hydrant({"inspect", heads}).code, 0);
  EXPECT_EQ(Hydrant({"inspect", path}).code, 0);
  const std::string whole = ReadBack(path);
  const auto refused = [&](const std::string& part) {
    ExpectRefused({"inspect", heads}, part);
    ExpectRefused({"inspect", path}, part);
  };
  std::string content = whole;
  const size_t at = content.find("\\\"slices\\\":2");
  ASSERT_NE(at, std::string::npos);
  dir.Write("h/" + file, content.replace(at, 12, "\\\"slices\\\":1"));
  refused("in 1 slices)");
  dir.Write("h/" + file, whole);
  Overwrite(dir, "h/" + file, "hydra_lm_head.0.1.weight.scales", std::string("\x00\x00\xc0\x7f", 4));
  refused("'hydra_lm_head.0.1.weight' has no finite scale in row 0");
}

}  // namespace
}  // namespace hydrant::test::refusals_test
