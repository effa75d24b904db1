// SPDX-License-Identifier: Apache-2.0
#include "tokenizer/chat/chat_family.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <filesystem>

#include "tests/test_data.h"
#include "tokenizer/chat/chat_template.h"

namespace hydrant::tokenizer::chat_family_test {
namespace {

using ::testing::HasSubstr;

std::string TemplateFor(std::string_view name) {
  const auto family = FamilyOfName(name);
  return family ? family->template_name : "";
}

TEST(ChatFamilyTest, KnowsPublishedChatModels) {
  for (const auto& [name, expected] : {std::pair{"lmsys/vicuna-7b-v1.3", "vicuna"},
                                       {"vicuna-13b-v1.5-16k", "vicuna"},
                                       {"/data/vicuna_7b/", "vicuna"},
                                       {"out/vicuna-7b-sft/checkpoint-1200", "vicuna"},
                                       {"ankner/hydra-vicuna-7b-v1.3", "vicuna"},
                                       {"FasterDecoding/medusa-1.0-zephyr-7b-beta", "zephyr"},
                                       {"meta-llama/Llama-2-7b-chat-hf", "llama-2"},
                                       {"TheBloke/Llama-2-13B-Chat-fp16", "llama-2"},
                                       {"C:\\models\\llama2-7b-chat", "llama-2"},
                                       {"codellama/CodeLlama-7b-Instruct-hf", "llama-2"},
                                       {"meta-llama/Meta-Llama-3-8B-Instruct", "llama-3"},
                                       {"meta-llama/Llama-3.1-8B-Instruct", "llama-3.1"},
                                       {"Llama-3.2-1B-Instruct", "llama-3.1"},
                                       {"mistralai/Mistral-7B-Instruct-v0.1", "mistral_v01"},
                                       {"mistralai/Mistral-7B-Instruct-v0.2", "mistral"},
                                       {"HuggingFaceH4/zephyr-7b-beta", "zephyr"},
                                       {"TinyLlama/TinyLlama-1.1B-Chat-v1.0", "zephyr"},
                                       {"teknium/OpenHermes-2.5-Mistral-7B", "chatml_plain"},
                                       {"Qwen/Qwen1.5-7B-Chat", "chatml_qwen15"},
                                       {"Qwen/Qwen2-7B-Instruct", "chatml"},
                                       {"Qwen/Qwen2.5-0.5B-Instruct", "chatml_qwen25"},
                                       {"Qwen/Qwen3-8B", "chatml_plain"}}) {
    EXPECT_EQ(TemplateFor(name), expected) << name;
    const auto names = TemplateNames();
    EXPECT_NE(std::find(names.begin(), names.end(), TemplateFor(name)), names.end()) << name;
  }
}

TEST(ChatFamilyTest, BaseModelsAreNoFamily) {
  for (const char* name : {"meta-llama/Llama-2-7b-hf",
                           "Llama-2-7b",
                           "huggyllama/llama-7b",
                           "meta-llama/Meta-Llama-3-8B",
                           "meta-llama/Llama-3.1-8B",
                           "mistralai/Mistral-7B-v0.1",
                           "Qwen/Qwen2-7B",
                           "Qwen/Qwen1.5-7B",
                           "Qwen/Qwen2.5-7B",
                           "Qwen/Qwen3-8B-Base",
                           "codellama/CodeLlama-7b-hf",
                           "tale-14m",
                           "base",
                           "",
                           "/",
                           "..",
                           "vicuna/Llama-2-7b-hf",
                           "lmsys/vicuna-7b-delta-v0",
                           "CarperAI/stable-vicuna-13b-delta",
                           "TheBloke/stable-vicuna-13B-HF"}) {
    EXPECT_EQ(TemplateFor(name), "") << name;
  }
}

class Folders {
 public:
  std::string Make(const std::string& name, const std::string& config) const {
    std::string path = dir_.path() + "/" + name;
    std::filesystem::create_directories(path);
    dir_.Write(name + "/config.json", config);
    return path;
  }

 private:
  test::TempDir dir_;
};

std::string SaidBy(const std::string& model, const std::string& draft = "") {
  const auto family = FamilyOfFolders(model, draft);
  return family ? family->template_name + ": " + family->said_by : "";
}

TEST(ChatFamilyTest, NamesStandInConfigsAndFolders) {
  const Folders folders;
  const std::string nameless = folders.Make("m", "{}");
  EXPECT_EQ(SaidBy(nameless), "");
  EXPECT_EQ(SaidBy(folders.Make("a", R"({"_name_or_path":"lmsys/vicuna-7b-v1.3"})")),
            "vicuna: '_name_or_path' of " + folders.Make("a", R"({"_name_or_path":"lmsys/vicuna-7b-v1.3"})") +
                "/config.json is \"lmsys/vicuna-7b-v1.3\"");
  EXPECT_THAT(SaidBy(folders.Make("Llama-2-7b-chat-hf", "{}")), HasSubstr("llama-2: the folder's name is"));
  EXPECT_THAT(SaidBy(folders.Make("Llama-2-7b-chat-hf", "{}") + "/"), HasSubstr("llama-2: the folder's name is"));
  EXPECT_THAT(SaidBy(folders.Make("models--lmsys--vicuna-7b-v1.3/snapshots/0123abc", "{}")),
              HasSubstr("vicuna: the folder's name is \"vicuna-7b-v1.3\""));
  const std::string heads = folders.Make("heads", R"({"base_model_name_or_path":"lmsys/vicuna-7b-v1.3"})");
  EXPECT_THAT(SaidBy(nameless, heads), HasSubstr("vicuna: 'base_model_name_or_path' of " + heads));
  EXPECT_THAT(SaidBy(nameless, folders.Make("medusa-vicuna-7b-v1.3", "{}")),
              HasSubstr("vicuna: the name of the heads' folder"));
  // What a model was trained from, beside what it is.
  EXPECT_THAT(SaidBy(folders.Make("vicuna-7b-v1.5", R"({"_name_or_path":"meta-llama/Llama-2-7b-chat-hf"})")),
              HasSubstr("vicuna: the folder's name"));
}

TEST(ChatFamilyTest, HeadsDoNotMakeABaseModelAChatModel) {
  const Folders folders;
  const std::string base = folders.Make("Llama-2-7b-hf", R"({"_name_or_path":"meta-llama/Llama-2-7b-hf"})");
  EXPECT_EQ(SaidBy(base), "");
  EXPECT_EQ(SaidBy(base, folders.Make("heads", R"({"base_model_name_or_path":"lmsys/vicuna-7b-v1.3"})")), "");
  EXPECT_EQ(SaidBy("/no/such/folder", ""), "");
  EXPECT_EQ(SaidBy(folders.Make("odd", R"({"_name_or_path":7})")), "");
}

}  // namespace
}  // namespace hydrant::tokenizer::chat_family_test
