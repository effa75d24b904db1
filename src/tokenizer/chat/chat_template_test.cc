// SPDX-License-Identifier: Apache-2.0
#include "tokenizer/chat/chat_template.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>

#include "base/json.h"
#include "hydrant/error.h"
#include "tests/test_data.h"
#include "tokenizer/utf8.h"

namespace hydrant::tokenizer::chat_template_test {
namespace {

using base::Json;
using ::testing::HasSubstr;

std::vector<Message> MessagesOf(const Json& conversation) {
  std::vector<Message> messages;
  for (const Json& message : conversation) messages.push_back({message["role"], message["content"]});
  return messages;
}

void CheckPrompt(const std::string& name, const Json& expected, const std::vector<Message>& messages,
                 const TemplateTokens& tokens, bool add_generation_prompt) {
  if (expected.is_null()) {
    EXPECT_THROW(RenderTemplate(name, messages, tokens, add_generation_prompt), UserError);
  } else {
    EXPECT_EQ(RenderTemplate(name, messages, tokens, add_generation_prompt), expected.get<std::string>());
  }
}

// Returns the number of prompts compared.
size_t CheckGolden(const Json& golden) {
  size_t num_prompts = 0;
  for (const auto& [name, family] : golden["families"].items()) {
    const auto text_or_empty = [](const Json& text) { return text.is_null() ? "" : text.get<std::string>(); };
    const TemplateTokens tokens = {text_or_empty(family["bos_token"]), text_or_empty(family["eos_token"])};
    EXPECT_EQ(UsualTokens(name).bos, tokens.bos);
    EXPECT_EQ(UsualTokens(name).eos, tokens.eos);
    for (const Json& prompt : family["cases"]) {
      const auto conversation = prompt["conversation"].get<std::string>();
      SCOPED_TRACE(name + " " + conversation);
      const std::vector<Message> messages = MessagesOf(golden["conversations"][conversation]);
      CheckPrompt(name, prompt["prompt"], messages, tokens, false);
      CheckPrompt(name, prompt["prompt_generation"], messages, tokens, true);
      num_prompts += 2;
    }
  }
  return num_prompts;
}

TEST(ChatTemplateTest, RendersTheCommittedPrompts) {
  const Json golden = base::ReadJsonFile(test::SourceDir() + "/tests/golden/chat_templates_subset.json");
  EXPECT_EQ(golden["families"].size() + 1, TemplateNames().size());  // chatml_qwen25 has a test of its own
  EXPECT_EQ(CheckGolden(golden), 11U * 16 * 2);
}

TEST(ChatTemplateTest, RendersAndRecognisesAllReferenceTemplates) {
  HYDRANT_NEED_SHARED();
  const Json golden = base::ReadJsonFile(test::SharedDir() + "/golden/chat_templates.json");
  EXPECT_EQ(CheckGolden(golden), 11U * 28 * 2);
  for (const auto& [name, family] : golden["families"].items()) {
    auto jinja = family["template"].get<std::string>();
    EXPECT_EQ(RecognizeTemplate(jinja), name);
    jinja[jinja.size() / 2] ^= 1;
    EXPECT_EQ(RecognizeTemplate(jinja), "") << name;
  }
}

TEST(ChatTemplateTest, Qwen25NamesItselfWithoutASystemMessage) {
  const std::vector<Message> messages = {{"user", "Hi"}};
  EXPECT_EQ(RenderTemplate("chatml_qwen25", messages, UsualTokens("chatml_qwen25"), true),
            "<|im_start|>system\nYou are Qwen, created by Alibaba Cloud. You are a helpful assistant.<|im_end|>\n"
            "<|im_start|>user\nHi<|im_end|>\n<|im_start|>assistant\n");
}

TEST(ChatTemplateTest, PrintsMessagesOfToolsAsJson) {
  const std::vector<Message> messages = {{"ipython", "a\"b\\\n\x01\xC3\xA9"}};
  EXPECT_THAT(RenderTemplate("llama-3.1", messages, {}, false), HasSubstr("\"a\\\"b\\\\\\n\\u0001\xC3\xA9\""));
}

TEST(ChatTemplateTest, OffersTheNearestName) {
  const std::vector<Message> messages = {{"user", "hi"}};
  try {
    RenderTemplate("vicunia", messages, {}, true);
    FAIL();
  } catch (const UserError& e) {
    EXPECT_THAT(e.what(), HasSubstr("\"vicunia\""));
    EXPECT_THAT(e.hint(), HasSubstr("did you mean \"vicuna\"?"));
  }
}

// The template of the embedded default model, whose text is ours.
Json OwnConfig() { return base::ReadJsonFile(test::SourceDir() + "/models/tale-14m/tokenizer_config.json"); }

TEST(ChatTemplateTest, RecognisesTheTemplateOfTheDefaultModel) {
  const FolderTemplate found = ReadFolderTemplate(test::SourceDir() + "/models/tale-14m");
  EXPECT_EQ(found.name, "vicuna");
  EXPECT_EQ(found.tokens.bos, "<s>");
  EXPECT_EQ(found.tokens.eos, "</s>");
}

TEST(ChatTemplateTest, FindsTheTextInAllItsPlaces) {
  const auto jinja = OwnConfig()["chat_template"].get<std::string>();
  const test::TempDir folder;
  EXPECT_EQ(ReadFolderTemplate(folder.path()).name, "");
  folder.Write("tokenizer_config.json", R"({"bos_token":{"content":"<B>"},"eos_token":null})");
  EXPECT_EQ(ReadFolderTemplate(folder.path()).name, "");
  EXPECT_EQ(ReadTemplateTokens(folder.path(), "vicuna").bos, "<B>");
  EXPECT_EQ(ReadTemplateTokens(folder.path(), "vicuna").eos, "</s>");

  const Json list = {{{"name", "tool_use"}, {"template", "x"}}, {{"name", "default"}, {"template", jinja}}};
  folder.Write("tokenizer_config.json", Json{{"chat_template", list}}.dump());
  EXPECT_EQ(ReadFolderTemplate(folder.path()).name, "vicuna");

  folder.Write("tokenizer_config.json", R"({"chat_template":"{{ other }}"})");
  folder.Write("chat_template.jinja", jinja + "\n");
  EXPECT_EQ(ReadFolderTemplate(folder.path()).name, "vicuna");
}

// Jinja reads every kind of line break as one line feed.
TEST(ChatTemplateTest, RecognisesATextWithOtherLineEnds) {
  const auto own = OwnConfig()["chat_template"].get<std::string>();
  for (const char* end : {"\n", "\r\n", "\r"}) EXPECT_EQ(RecognizeTemplate(own + end), "vicuna");
  const Json config = base::ReadJsonFile(test::SourceDir() + "/tests/cases/end_of_turn/tokenizer_config.json");
  const std::string text = ReplaceAll(config["chat_template"].get<std::string>(), "\n", "\r\n");
  ASSERT_NE(text.find("\r\n"), std::string::npos);
  EXPECT_EQ(RecognizeTemplate(text), "chatml_plain");
  const test::TempDir folder;
  folder.Write("chat_template.jinja", text);
  EXPECT_EQ(ReadFolderTemplate(folder.path()).name, "chatml_plain");
  HYDRANT_NEED_SHARED();
  const Json golden = base::ReadJsonFile(test::SharedDir() + "/golden/chat_templates.json");
  for (const auto& [name, family] : golden["families"].items()) {
    EXPECT_EQ(RecognizeTemplate(ReplaceAll(family["template"].get<std::string>(), "\n", "\r\n")), name);
  }
}

TEST(ChatTemplateTest, RefusesUnknownTextsAndOffersTheFlag) {
  const test::TempDir folder;
  const auto refusal = [&](const std::string& config) -> FileError {
    folder.Write("tokenizer_config.json", config);
    try {
      ReadFolderTemplate(folder.path());
    } catch (const FileError& e) {
      return e;
    }
    return {"", "accepted"};
  };
  const FileError unknown = refusal(R"({"chat_template":"{{ bos_token }}"})");
  EXPECT_EQ(unknown.file(), folder.path() + "/tokenizer_config.json");
  EXPECT_THAT(unknown.what(), HasSubstr("none of the known ones"));
  EXPECT_THAT(unknown.hint(), HasSubstr("RenderChat::template_name"));
  EXPECT_THAT(refusal(R"({"chat_template":[{"name":"rag","template":"x"}]})").what(), HasSubstr("\"default\""));
  EXPECT_THAT(refusal(R"({"chat_template":7})").what(), HasSubstr("'chat_template' is 7, expected a string"));
  EXPECT_THAT(refusal(R"([])").what(), HasSubstr("expected an object"));
  EXPECT_THAT(refusal(R"({"chat_template":)").what(), HasSubstr("is not valid JSON"));
}

}  // namespace
}  // namespace hydrant::tokenizer::chat_template_test
