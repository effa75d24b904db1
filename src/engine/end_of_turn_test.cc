// SPDX-License-Identifier: Apache-2.0
#include "load/end_of_turn.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "base/mapped_file.h"
#include "tests/test_data.h"

namespace hydrant::engine::end_of_turn_test {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using Ids = std::vector<int32_t>;

std::string CaseFolder() { return test::SourceDir() + "/tests/cases/end_of_turn"; }

// The embedded model's tokenizer (<s> 1, </s> 2) with what is added to it: <|im_start|> 4096, <|im_end|> 4097.
class Folder {
 public:
  explicit Folder(const std::string& tokenizer_config) {
    dir_.Write("tokenizer.model", base::ReadTextFile(test::SourceDir() + "/models/tale-14m/tokenizer.model"));
    dir_.Write("added_tokens.json", R"({"<|im_start|>":4096,"<|im_end|>":4097})");
    dir_.Write("tokenizer_config.json", tokenizer_config);
  }
  load::EndOfTurn Find(const Ids& generation, const Ids& config, int64_t vocab_size = 4098) const {
    model::ModelConfig model;
    model.file = dir_.path() + "/config.json";
    model.vocab_size = vocab_size;
    model.generation_eos_token_ids = generation;
    model.config_eos_token_ids = config;
    return load::FindEndOfTurn(model, tokenizer::LoadTokenizer(dir_.path()).get(), dir_.path());
  }
  const test::TempDir& dir() const { return dir_; }

 private:
  test::TempDir dir_;
};

std::string Shown(const load::EndOfTurn& end) {
  std::string shown;
  for (const EosToken& token : end.tokens) {
    shown += (shown.empty() ? "" : "; ") + std::to_string(token.id) + " " + token.text;
    for (const std::string& name : token.named_by) shown += ", " + name;
    if (token.template_only) shown += " (template)";
  }
  return shown;
}

const std::string kChatMl =
    R"("chat_template":"{% for message in messages %}{{'<|im_start|>' + message['role'] + '\n' + message['content'] + '<|im_end|>' + '\n'}}{% endfor %}{% if add_generation_prompt %}{{ '<|im_start|>assistant\n' }}{% endif %}")";

TEST(EndOfTurnTest, EveryFileThatNamesATokenCounts) {
  const Folder folder(R"({"eos_token":"<|im_end|>"})");
  EXPECT_EQ(Shown(folder.Find({2}, {4097})),
            "2 </s>, generation_config.json; 4097 <|im_end|>, config.json, tokenizer_config.json");
  EXPECT_EQ(Shown(folder.Find({}, {2})), "2 </s>, config.json; 4097 <|im_end|>, tokenizer_config.json");
  EXPECT_EQ(Shown(folder.Find({}, {2}, 4097)), "2 </s>, config.json");  // the model cannot say 4097
  EXPECT_EQ(Shown(folder.Find({2, 2}, {})), "2 </s>, generation_config.json; 4097 <|im_end|>, tokenizer_config.json");
  EXPECT_THAT(folder.Find({2}, {4097}).warnings, IsEmpty());
}

TEST(EndOfTurnTest, TheTemplateEndsRepliesUnderItself) {
  const Folder folder(R"({"eos_token":"</s>",)" + kChatMl + "}");
  EXPECT_EQ(Shown(folder.Find({2}, {2})),
            "2 </s>, generation_config.json, config.json, tokenizer_config.json; "
            "4097 <|im_end|>, chat template chatml_plain (template)");
  const auto tokenizer = tokenizer::LoadTokenizer(folder.dir().path());
  EXPECT_EQ(load::EndOfReplyId("auto", tokenizer.get(), folder.dir().path()), 4097);
  EXPECT_EQ(load::EndOfReplyId("chatml", tokenizer.get(), folder.dir().path()), 4097);
  EXPECT_EQ(load::EndOfReplyId("vicuna", tokenizer.get(), folder.dir().path()), 2);
  EXPECT_EQ(load::EndOfReplyId("llama-3", tokenizer.get(), folder.dir().path()), -1);  // no such token
  EXPECT_EQ(load::EndOfReplyId("none", tokenizer.get(), folder.dir().path()), -1);
  EXPECT_EQ(load::EndOfReplyId("auto", nullptr, folder.dir().path()), -1);
}

TEST(EndOfTurnTest, TheOlderMapOfSpecialTokensNamesEosToo) {
  const Folder folder(R"({"eos_token":"</s>"})");
  folder.dir().Write("special_tokens_map.json", R"({"eos_token":{"content":"<|im_end|>"}})");
  EXPECT_EQ(Shown(folder.Find({}, {})), "4097 <|im_end|>, special_tokens_map.json");
}

TEST(EndOfTurnTest, AnEosThatIsTheTokenizersBosIsNotBelieved) {
  const Folder folder(R"({"eos_token":"</s>"})");
  const load::EndOfTurn end = folder.Find({}, {1});
  EXPECT_EQ(Shown(end), "2 </s>, tokenizer_config.json");
  EXPECT_THAT(end.warnings, ElementsAre(folder.dir().path() +
                                        "/config.json: 'eos_token_id' is 1, which is the tokenizer's BOS (\"<s>\"): it "
                                        "does not end a reply"));
  EXPECT_EQ(Shown(folder.Find({1}, {2})), "2 </s>, config.json, tokenizer_config.json");
  EXPECT_THAT(folder.Find({1}, {2}).warnings, ElementsAre(HasSubstr("generation_config.json: 'eos_token_id' is 1")));
  EXPECT_EQ(Shown(folder.Find({1, 2}, {2})),
            "1 <s>, generation_config.json; 2 </s>, generation_config.json, "
            "config.json, tokenizer_config.json");
  const load::EndOfTurn none = Folder("{}").Find({}, {1});
  EXPECT_THAT(none.tokens, IsEmpty());
  EXPECT_THAT(none.warnings, ElementsAre(HasSubstr("no other token does")));
  // The first Llama conversions: ids of another tokenizer, and empty texts.
  const load::EndOfTurn llama =
      Folder(R"({"tokenizer_class":"LlamaTokenizer","bos_token":"","eos_token":""})").Find({1}, {1});
  EXPECT_EQ(Shown(llama), "2 </s>, the tokenizer's class");
  // One token for both, as some tokenizers have it.
  const load::EndOfTurn both = Folder(R"({"bos_token":"</s>","eos_token":"</s>"})").Find({}, {2});
  EXPECT_EQ(Shown(both), "2 </s>, config.json, tokenizer_config.json");
  EXPECT_THAT(both.warnings, IsEmpty());
}

TEST(EndOfTurnTest, WithoutATokenizerTheConfigsAreAllThereIs) {
  model::ModelConfig config;
  config.file = "m/config.json";
  config.vocab_size = 10;
  config.config_eos_token_ids = {1};
  EXPECT_EQ(Shown(load::FindEndOfTurn(config, nullptr, "m")), "1 , config.json");
}

GenerationResult Reply(Engine& engine, const std::string& template_name) {
  const ChatMessage message{"user", "say it"};
  GenerationRequest request;
  std::string prompt;
  engine.RenderChat(std::span(&message, 1), template_name, &prompt);
  request.prompt_ids = engine.Tokenize(prompt, true, false);
  request.stop.max_tokens = 12;
  request.stop.eos_token_ids = engine.EndOfReply(template_name);
  return engine.Generate(request);
}

TEST(EndOfTurnTest, AReplyEndsAtTheTokenThatThreeFilesName) {
  EngineOptions options;
  options.model = CaseFolder();
  Engine engine(options);
  EXPECT_THAT(engine.info().eos_token_ids, ElementsAre(2, 321));
  EXPECT_THAT(engine.info().eos_tokens[1].named_by,
              ElementsAre("config.json", "tokenizer_config.json", "chat template chatml_plain"));
  const GenerationResult result = Reply(engine, "auto");
  EXPECT_EQ(result.text, " then");
  EXPECT_EQ(result.finish_reason, FinishReason::kEos);
  EXPECT_EQ(result.token_ids.back(), 321);
}

}  // namespace
}  // namespace hydrant::engine::end_of_turn_test
