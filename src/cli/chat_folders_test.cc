// SPDX-License-Identifier: Apache-2.0
// What folders say about chats, as the program hears it: their templates, the ends of replies, their tokens.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <string>
#include <vector>

#include "base/json.h"
#include "base/mapped_file.h"
#include "tests/program.h"
#include "tests/test_data.h"

namespace hydrant::test::chat_folders_test {
namespace {

using testing::HasSubstr;

std::string CaseFolder(const std::string& name) { return SourceDir() + "/tests/cases/" + name; }

// A small model whose folder has a name of one's own, without a chat template.
class NamedFolder {
 public:
  explicit NamedFolder(const std::string& name) : path_(dir_.path() + "/" + name), name_(name) {
    std::filesystem::copy(CaseFolder("end_of_turn"), path_);
    Change("tokenizer_config.json", "chat_template", nullptr);
  }
  void Change(const std::string& file, const std::string& key, const Json& value) const {
    Json json = base::ReadJsonFile(path_ + "/" + file);
    json[key] = value;
    dir_.Write(name_ + "/" + file, json.dump());
  }
  const std::string& path() const { return path_; }

 private:
  TempDir dir_;
  std::string path_, name_;
};

Outcome RunPrompt(const std::string& model, const std::vector<std::string>& more = {}) {
  std::vector<std::string> args = {"run", "--model", model, "--prompt", "say it", "--max-tokens", "4", "--json"};
  args.insert(args.end(), more.begin(), more.end());
  return Hydrant(args);
}

std::string WarningsOf(const Outcome& outcome) { return JsonOf(outcome)["warnings"].dump(); }

TEST(ChatFoldersTest, AReplyEndsWhereAnyFileSaysSo) {
  const Json json = JsonOf(
      Hydrant({"run", "--model", CaseFolder("end_of_turn"), "--prompt", "say it", "--max-tokens", "12", "--json"}));
  EXPECT_EQ(json["text"], " then");
  EXPECT_EQ(json["finish_reason"], "eos");
  EXPECT_EQ(json["token_ids"].back(), 321);
  EXPECT_EQ(json["eos_token_ids"], Json({2, 321}));
  EXPECT_EQ(json["eos_tokens"][1]["named_by"],
            Json({"config.json", "tokenizer_config.json", "chat template chatml_plain"}));
  const Json base = JsonOf(Hydrant({"inspect", CaseFolder("end_of_turn"), "--json"}))["base"];
  EXPECT_EQ(base["eos_token_ids"], Json({2, 321}));
  EXPECT_EQ(base["eos_named_by"]["2 </s>"], "generation_config.json");
  EXPECT_EQ(base["eos_named_by"]["321 <|im_end|>"],
            "config.json and tokenizer_config.json and chat template chatml_plain");
}

TEST(ChatFoldersTest, AConversationKeepsItsTurnsTogetherWithoutLegacySpaces) {
  const std::string folder = CaseFolder("legacy_false");
  const Json json = JsonOf(Hydrant({"tokenize", "--model", folder, "--chat", folder + "/chat.json"}));
  EXPECT_EQ(json["ids"], base::ReadJsonFile(folder + "/expected.json")["chat_ids"]);
}

TEST(ChatFoldersTest, TheTemplateAloneMayEndAReply) {
  const NamedFolder folder("m");
  folder.Change("config.json", "eos_token_id", 2);
  folder.Change("tokenizer_config.json", "eos_token", "</s>");
  EXPECT_EQ(JsonOf(RunPrompt(folder.path()))["eos_token_ids"], Json({2}));
  const Json json = JsonOf(RunPrompt(folder.path(), {"--template", "chatml_plain"}));
  EXPECT_EQ(json["eos_token_ids"], Json({2, 321}));
  EXPECT_EQ(json["finish_reason"], "eos");
}

TEST(ChatFoldersTest, AnEosThatIsBosIsWarnedOf) {
  const NamedFolder folder("m");
  folder.Change("config.json", "eos_token_id", 1);
  const Outcome outcome = RunPrompt(folder.path());
  EXPECT_THAT(WarningsOf(outcome), HasSubstr("config.json: 'eos_token_id' is 1, which is the tokenizer's BOS"));
  EXPECT_THAT(outcome.err, HasSubstr("which is the tokenizer's BOS"));
  EXPECT_THAT(Hydrant({"inspect", folder.path()}).out, HasSubstr("which is the tokenizer's BOS"));
}

TEST(ChatFoldersTest, AChatModelWithoutATemplateIsKnownByItsName) {
  const NamedFolder vicuna("vicuna-7b-v1.3");
  const Outcome outcome = RunPrompt(vicuna.path());
  EXPECT_THAT(WarningsOf(outcome), HasSubstr("Vicuna expects --template vicuna"));
  EXPECT_THAT(outcome.err, HasSubstr("warning: " + vicuna.path() + ": has no chat template"));
  EXPECT_EQ(JsonOf(outcome)["template"], "none");
  EXPECT_EQ(WarningsOf(RunPrompt(vicuna.path(), {"--template", "vicuna"})), "[]");
  EXPECT_EQ(WarningsOf(RunPrompt(vicuna.path(), {"--template", "none"})), "[]");
  const Outcome system = RunPrompt(vicuna.path(), {"--system", "Be brief."});
  EXPECT_EQ(system.code, 2);
  EXPECT_THAT(system.err, HasSubstr("--template vicuna"));
  EXPECT_EQ(
      WarningsOf(Hydrant({"run", "--model", vicuna.path(), "--prompt-ids", "[1,262]", "--max-tokens", "2", "--json"})),
      "[]");

  const NamedFolder nameless("m");
  EXPECT_EQ(WarningsOf(RunPrompt(nameless.path())), "[]");
  nameless.Change("config.json", "_name_or_path", "mistralai/Mistral-7B-Instruct-v0.2");
  EXPECT_THAT(WarningsOf(RunPrompt(nameless.path())), HasSubstr("Mistral-Instruct expects --template mistral "));
  EXPECT_EQ(WarningsOf(RunPrompt(NamedFolder("Llama-2-7b-hf").path())), "[]");
}

TEST(ChatFoldersTest, DetokenizeTakesIdsThatPadTheVocabulary) {
  const NamedFolder folder("m");
  folder.Change("config.json", "vocab_size", 384);
  EXPECT_EQ(JsonOf(Hydrant({"detokenize", "--model", folder.path(), "--ids", "[262,383,321]"}))["text"],
            JsonOf(Hydrant({"detokenize", "--model", folder.path(), "--ids", "[262,321]"}))["text"]);
  EXPECT_EQ(JsonOf(Hydrant({"detokenize", "--model", folder.path() + "/tokenizer.model", "--ids", "[383]"}))["text"],
            "");
  ExpectRefused({"detokenize", "--model", folder.path(), "--ids", "[384]"}, "token id 384 is outside the vocabulary");
}

TEST(ChatFoldersTest, TokenizersWarnOnStderr) {
  const NamedFolder folder("m");
  folder.Change("tokenizer_config.json", "add_eos_token", true);
  const std::string warning = "warning: " + folder.path() + "/tokenizer_config.json: 'add_eos_token' is true";
  EXPECT_THAT(Hydrant({"tokenize", "--model", folder.path(), "--text", "a"}).err, HasSubstr(warning));
  EXPECT_THAT(Hydrant({"detokenize", "--model", folder.path(), "--ids", "[262]"}).err, HasSubstr(warning));
  EXPECT_THAT(Hydrant({"inspect", folder.path()}).err, HasSubstr(warning));
  EXPECT_THAT(WarningsOf(RunPrompt(folder.path())), HasSubstr("'add_eos_token' is true"));
}

}  // namespace
}  // namespace hydrant::test::chat_folders_test
