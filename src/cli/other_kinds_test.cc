// SPDX-License-Identifier: Apache-2.0
// What is given in place of a model or of heads: named as what it is, with what to do.
#include <gtest/gtest.h>

#include <filesystem>
#include <string>
#include <vector>

#include "base/json.h"
#include "tests/program.h"
#include "tests/test_data.h"

namespace hydrant::test::other_kinds_test {
namespace {

namespace fs = std::filesystem;
using testing::HasSubstr;

constexpr const char* kPointer =
    "version https://git-lfs.github.com/spec/v1\n"
    "oid sha256:9e556afd44213b6bd1be2b850ebbbd98f5481437a8021afaf58ee7fb1818d347\nsize 13476850247\n";

// A folder with a config and tensors of these names, one number each.
std::string Folder(const TempDir& dir, const std::string& name, const Json& config,
                   const std::vector<std::string>& tensors) {
  std::string folder = dir.path() + "/" + name;
  fs::create_directory(folder);
  if (!config.is_null()) dir.Write(name + "/config.json", config.dump());
  if (tensors.empty()) return folder;
  std::string header = "{";
  for (size_t i = 0; i < tensors.size(); ++i) {
    header += (i == 0 ? "\"" : ",\"") + tensors[i] + R"(":{"dtype":"F32","shape":[1],"data_offsets":[)" +
              std::to_string(4 * i) + "," + std::to_string(4 * i + 4) + "]}";
  }
  header += "}";
  std::string file(8, '\0');
  file[0] = static_cast<char>(header.size() & 255);
  file[1] = static_cast<char>(header.size() >> 8);
  dir.Write(name + "/model.safetensors", file + header + std::string(4 * tensors.size(), '\0'));
  return folder;
}

void ExpectNamed(const std::vector<std::string>& args, const std::string& what, const std::string& hint) {
  const Outcome outcome = Hydrant(args);
  std::string words;
  for (const std::string& word : args) words += word + " ";
  EXPECT_EQ(outcome.code, 2) << words;
  EXPECT_EQ(outcome.out, "") << words;
  EXPECT_THAT(outcome.err, testing::AllOf(HasSubstr(what), HasSubstr(hint))) << words;
}

void ExpectNamedAsModel(const std::string& path, const std::string& what, const std::string& hint) {
  ExpectNamed({"run", "--model", path, "--prompt", "a"}, what, hint);
  ExpectNamed({"inspect", path}, what, hint);
  ExpectNamed({"convert", path, path + "-out", "--weights", "w8a8"}, what, hint);
  ExpectNamed({"bench", "latency", "--model", path, "--runs", "1"}, what, hint);
  ExpectNamed({"tokenize", "--model", path, "--text", "a"}, what, hint);
}

TEST(OtherKindsTest, GitLfsPointersAreNamedWhateverFileTheyReplace) {
  for (const char* name :
       {"config.json", "generation_config.json", "model.safetensors", "tokenizer.model", "tokenizer_config.json"}) {
    const TempDir dir;
    const std::string model = dir.path() + "/m";
    fs::copy(Model(), model);
    dir.Write(std::string("m/") + name, kPointer);
    const std::string what = model + "/" + name + ": is a Git LFS pointer";
    ExpectNamed({"run", "--model", model, "--prompt", "a"}, what, "git lfs pull");
    ExpectNamed({"inspect", model}, what, "git lfs pull");
  }
  const TempDir dir;
  const std::string heads = dir.path() + "/h";
  fs::copy(Heads(), heads);
  const std::string weights = heads + "/hydra_lm_head.safetensors";
  std::ofstream(weights) << kPointer;
  ExpectNamed({"run", "--model", Model(), "--draft", heads, "--prompt", "a"}, weights + ": is a Git LFS pointer",
              "git lfs pull");
  ExpectNamed({"inspect", weights}, "is a Git LFS pointer", "git lfs pull");
  const std::string index = dir.Write("model.safetensors.index.json", kPointer);
  ExpectNamed({"inspect", index}, "is a Git LFS pointer", "git lfs pull");
  const std::string tokenizer = dir.Write("tokenizer.json", kPointer);
  ExpectNamed({"tokenize", "--model", tokenizer, "--text", "a"}, "is a Git LFS pointer", "git lfs pull");
}

TEST(OtherKindsTest, GgufFilesAreNamed) {
  const TempDir dir;
  const std::string file = dir.Write("m.gguf", std::string("GGUF\3\0\0\0", 8));
  ExpectNamedAsModel(file, file + ": is a GGUF file", "hf download");
  fs::create_directory(dir.path() + "/f");
  fs::rename(file, dir.path() + "/f/m-q4.gguf");
  ExpectNamedAsModel(dir.path() + "/f", "holds a GGUF file (m-q4.gguf)", "hf download");
}

TEST(OtherKindsTest, EmptyFoldersAndMissingOnesAreNamed) {
  const TempDir dir;
  std::string folder = Folder(dir, "e", nullptr, {});
  ExpectNamedAsModel(folder, folder + ": is an empty folder", "hf download");
  ExpectNamedAsModel("lmsys/vicuna-7b-v1.3", "lmsys/vicuna-7b-v1.3: there is no such",
                     "hf download lmsys/vicuna-7b-v1.3 --local-dir vicuna-7b-v1.3");
  ExpectNamed({"run", "--model", Model(), "--draft", "ankner/hydra-vicuna-7b-v1.3", "--prompt", "a"},
              "there is no such folder", "hf download ankner/hydra-vicuna-7b-v1.3 --local-dir");
}

TEST(OtherKindsTest, FilesInPlaceOfFoldersNameTheFolder) {
  ExpectNamed({"run", "--model", Model() + "/model.safetensors", "--prompt", "a"}, "is a file, expected a folder",
              "name the folder that holds it: " + Model());
}

TEST(OtherKindsTest, AdaptersAreNamed) {
  const TempDir dir;
  const std::string folder = Folder(dir, "lora", nullptr, {});
  dir.Write("lora/adapter_config.json", R"({"peft_type":"LORA","base_model_name_or_path":"org/base-7b"})");
  ExpectNamedAsModel(folder, "is a PEFT adapter (LoRA) of org/base-7b", "merge_and_unload");
  ExpectNamed({"run", "--model", Model(), "--draft", folder, "--prompt", "a"}, "is a PEFT adapter", "merge_and_unload");
}

TEST(OtherKindsTest, HeadsThatAreNotRunAreNamed) {
  const TempDir dir;
  const Json llama = {{"model_type", "llama"},
                      {"num_hidden_layers", 1},
                      {"vocab_size", 8},
                      {"hidden_size", 4},
                      {"intermediate_size", 4},
                      {"num_attention_heads", 1},
                      {"max_position_embeddings", 8},
                      {"num_key_value_heads", 1}};
  const auto named = [&](const std::string& folder, const std::string& what) {
    ExpectNamed({"run", "--model", Model(), "--draft", folder, "--prompt", "a"}, folder + ": holds " + what,
                "Medusa, Hydra, Hydra++, EAGLE");
    ExpectNamed({"bench", "latency", "--model", Model(), "--draft", folder}, what, "Medusa, Hydra, Hydra++, EAGLE");
    ExpectNamedAsModel(folder, what, "Medusa, Hydra, Hydra++, EAGLE");
  };
  // Under names that are not read.
  named(Folder(dir, "eagle", llama, {"embed_tokens.weight", "fc.weight", "model.layers.0.mlp.up_proj.weight"}),
        "EAGLE heads");
  Json third = llama;
  third["architectures"] = {"LlamaForCausalLMEagle3"};
  named(Folder(dir, "eagle3", third, {"d2t", "fusion.weight", "decoder.hidden_norm.weight", "lm_head.weight"}),
        "EAGLE-3 heads");
  named(Folder(dir, "spec",
               {{"speculators_model_type", "eagle3"}, {"speculators_config", Json::object()}, {"draft_vocab_size", 4}},
               {"d2t", "fusion.weight", "decoder.hidden_norm.weight"}),
        "EAGLE-3 heads in the layout of the speculators library");
  named(Folder(dir, "redrafter", {{"model_type", "llama"}, {"architecture", "ReDrafterForLLaMALM"}},
               {"drafter.rnn_u.weight", "drafter.rnn_w.weight", "drafter.layers.0.linear.weight"}),
        "ReDrafter heads in the layout of TensorRT-LLM");
}

TEST(OtherKindsTest, ABaseAsHeadsAndHeadsAsABaseAreNamed) {
  ExpectNamed({"run", "--model", Heads(), "--prompt", "a"}, "holds Hydra heads, expected a base model", "--draft");
  ExpectNamed({"bench", "latency", "--model", Heads(), "--runs", "1"}, "holds Hydra heads, expected a base model",
              "--draft");
  const TempDir dir;
  ExpectNamed({"convert", Heads(), dir.path() + "/out", "--model", Heads(), "--head-weights", "w8a8"},
              "holds Hydra heads, expected a base model", "--draft");
}

TEST(OtherKindsTest, FoldersOfOtherToolsAreNamed) {
  const TempDir dir;
  const std::string meta = Folder(dir, "meta", nullptr, {});
  dir.Write("meta/consolidated.00.pth", "x");
  dir.Write("meta/params.json", "{}");
  ExpectNamedAsModel(meta, "holds Meta's original checkpoint (consolidated.00.pth)", "hf download");
  const std::string cache = Folder(dir, "models--org--name", nullptr, {});
  fs::create_directories(cache + "/snapshots/3f39fbd");
  dir.Write("models--org--name/snapshots/3f39fbd/config.json", "{}");
  ExpectNamedAsModel(cache, "the model is in one of them", "name that: " + cache + "/snapshots/3f39fbd");
}

}  // namespace
}  // namespace hydrant::test::other_kinds_test
