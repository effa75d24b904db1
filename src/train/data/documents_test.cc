// SPDX-License-Identifier: Apache-2.0
#include "train/data/documents.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>

#include "base/json.h"
#include "hydrant/error.h"

namespace hydrant::train::documents_test {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;

// "LINE TEXT" of each part, "LINE json TEXT" of one of JSON; "..." where a document goes on.
std::vector<std::string> PartsOf(std::string_view content, size_t most = 1000, const std::string& name = "f") {
  std::vector<std::string> parts;
  SplitFile(content, name, [&](const FilePart& part) {
    parts.push_back(std::to_string(part.line) + (part.is_json ? " json " : " ") + (part.begins ? "" : "...") +
                    std::string(part.text) + (part.ends ? "" : "..."));
    return parts.size() < most;
  });
  return parts;
}

// "user:q assistant:a", a text in quotes, or why it is left out.
std::string WordsOf(const std::string& json) {
  const base::Json value = base::ParseJson(json, "f line 1");
  const Example example = ReadExample(base::JsonView(value, "f line 1"));
  if (example.left_out) return std::string(Words(*example.left_out));
  if (example.messages.empty()) return "\"" + example.text + "\"";
  std::string words;
  for (const tokenizer::Message& message : example.messages) {
    words += (words.empty() ? "" : " ") + message.role + ":" + message.content;
  }
  return words;
}

template <typename Call>
void ExpectRefused(const Call& call, const std::string& part) {
  try {
    call();
    ADD_FAILURE() << "expected: " << part;
  } catch (const FileError& error) {
    EXPECT_THAT(error.what(), testing::AllOf(testing::StartsWith("f"), HasSubstr(part)));
  }
}

TEST(SplitFileTest, TheFormIsFoundByContent) {
  EXPECT_THAT(PartsOf("{\"text\": \"a\"}\n\n {\"text\": \"b\"}\r\n"),
              ElementsAre("1 json {\"text\": \"a\"}", "3 json {\"text\": \"b\"}"));
  EXPECT_THAT(PartsOf("[\n {\"a\": [1]},\n\"b\"]"), ElementsAre("2 json {\"a\": [1]}", "3 json \"b\""));
  EXPECT_THAT(PartsOf("[]"), ElementsAre());
  EXPECT_THAT(PartsOf("\xef\xbb\xbf[Illustration: a cat]\nOnce"), ElementsAre("1 [Illustration: a cat]\nOnce"));
  EXPECT_THAT(PartsOf("{ braces } of a text"), ElementsAre("1 { braces } of a text"));
  EXPECT_THAT(PartsOf("["), ElementsAre("1 ["));
}

// A story may begin with a quote.
TEST(SplitFileTest, TextsOfJsonOnLinesAreToldByTheFilesName) {
  const std::string lines = "\"a\\nb\"\n\n\"c\"\n";
  EXPECT_THAT(PartsOf(lines, 9, "f.jsonl"), ElementsAre("1 json \"a\\nb\"", "3 json \"c\""));
  EXPECT_THAT(PartsOf(lines, 9, "f.JSON"), ElementsAre("1 json \"a\\nb\"", "3 json \"c\""));
  EXPECT_THAT(PartsOf(lines, 9, "f.txt"), ElementsAre("1 \"a\\nb\"\n\n\"c\""));
  EXPECT_THAT(PartsOf("Once.\n", 9, "f.jsonl"), ElementsAre("1 Once."));
}

TEST(SplitFileTest, MarksSeparateTheDocumentsOfAText) {
  EXPECT_THAT(PartsOf("a\nb\n<|endoftext|>\nc<|endoftext|><|endoftext|>\n \n<|endoftext|> d \n"),
              ElementsAre("1 a\nb", "4 c", "6 d"));
  EXPECT_THAT(PartsOf("<|endoftext|>\n"), ElementsAre());
  EXPECT_THAT(PartsOf("\n\na\n"), ElementsAre("3 a"));
}

TEST(SplitFileTest, WhoeverHasEnoughGetsNoMore) {
  EXPECT_THAT(PartsOf("a<|endoftext|>b<|endoftext|>c", 2), ElementsAre("1 a", "1 b"));
  EXPECT_THAT(PartsOf("{\"a\": 1}\n{\"b\": 2}\nnot", 2), ElementsAre("1 json {\"a\": 1}", "2 json {\"b\": 2}"));
}

TEST(SplitFileTest, LongDocumentsComeInPieces) {
  std::string text;
  while (text.size() < 3 * kPieceBytes) text += "some words of a line\n";
  text += "end";
  std::string joined;
  std::vector<std::string> parts;
  size_t lines = 1;
  SplitFile(text + "<|endoftext|>next", "f", [&](const FilePart& part) {
    parts.push_back((part.begins ? "[" : "") + std::string(part.ends ? "]" : ""));
    if (part.text == "next") return true;
    EXPECT_LE(part.text.size(), kPieceBytes);
    EXPECT_EQ(part.line, lines);
    lines += static_cast<size_t>(std::count(part.text.begin(), part.text.end(), '\n'));
    joined += part.text;
    return true;
  });
  EXPECT_EQ(joined, text);
  EXPECT_THAT(parts, ElementsAre("[", "", "", "]", "[]"));
}

TEST(SplitFileTest, EmptyFilesOtherBytesAndHugeValuesAreRefused) {
  ExpectRefused([] { PartsOf(""); }, "f: is empty, expected text or JSON");
  ExpectRefused([] { PartsOf("\xef\xbb\xbf \n"); }, "f: is empty");
  ExpectRefused([] { PartsOf("\x1f\x8b\x08 and more"); }, "f: is packed by gzip, expected text or JSON in UTF-8");
  const std::string huge = "{\"text\": \"" + std::string(kMostJsonBytes, 'x') + "\"}";
  ExpectRefused([&] { PartsOf("{\"text\": \"a\"}\n" + huge); },
                "f line 2: has a value of 16777228 bytes, at most 16777216");
  ExpectRefused([&] { PartsOf("[\n\n" + huge + "]"); }, "f line 3: has a value");
  ExpectRefused([] { PartsOf("[{\"a\": 1}\n"); }, "f line 2: ends within the array");
  const char* const nowhere = "x";  // only the size is looked at
  ExpectRefused([&] { PartsOf({nowhere, kMostFileBytes + 1}); }, "f: has 4096 MB, at most 4096 MB");
}

TEST(FirstPieceTest, TextsAreCutWhereWordsAndLinesEnd) {
  EXPECT_EQ(FirstPiece("abc", 3), "abc");
  EXPECT_EQ(FirstPiece("ab cd ef", 7), "ab cd");
  EXPECT_EQ(FirstPiece("ab\ncd.\nefghi", 9), "ab");  // not behind the point
  EXPECT_EQ(FirstPiece("ab cd (efghi", 9), "ab");    // nor before the bracket
  EXPECT_EQ(FirstPiece("ab\n\ncd", 5), "ab");        // a run of line breaks is whole
  EXPECT_EQ(FirstPiece("ab,\n\ncdefgh", 8), "ab,");  // no better place
  EXPECT_EQ(FirstPiece("abcdefgh", 5), "abcde");
  EXPECT_EQ(FirstPiece("ab\xC3\xA9\xF0\x9F\x98\x80zz", 6), "ab\xC3\xA9");
  EXPECT_EQ(FirstPiece("\x80\x80\x80\x80\x80\x80", 4), "\x80");  // no text, and something at least is taken off
}

TEST(ReadExampleTest, FormsOfConversations) {
  EXPECT_EQ(WordsOf(R"({"id": 1, "conversations": [{"from": "human", "value": "q"}, {"from": "gpt", "value": "a"}]})"),
            "user:q assistant:a");
  EXPECT_EQ(WordsOf(R"({"messages": [{"role": "system", "content": "s"}, {"role": "user", "content": "q"},
                        {"role": "assistant", "content": "a"}, {"role": "user", "content": "r"}]})"),
            "system:s user:q assistant:a");
  EXPECT_EQ(WordsOf(R"({"instruction": "do", "input": "this", "output": "done", "text": "all"})"),
            "user:do\n\nthis assistant:done");
  EXPECT_EQ(WordsOf(R"({"instruction": "do", "input": "", "output": "done"})"), "user:do assistant:done");
  EXPECT_EQ(WordsOf(R"({"prompt": "p", "completion": "c"})"), "user:p assistant:c");
  EXPECT_EQ(WordsOf(R"({"prompt": "p", "response": "r"})"), "user:p assistant:r");
  EXPECT_EQ(WordsOf(R"({"question": "q", "answer": "a"})"), "user:q assistant:a");
}

TEST(ReadExampleTest, FormsOfTexts) {
  EXPECT_EQ(WordsOf(R"({"text": " a\n"})"), "\" a\n\"");
  EXPECT_EQ(WordsOf(R"("a")"), "\"a\"");
  EXPECT_EQ(WordsOf(R"({"text": " \n"})"), "without text");
}

// 'distill-data' says beside a text which prompt it continues.
TEST(ReadExampleTest, ATextIsOneBesideHalfAPair) {
  EXPECT_EQ(WordsOf(R"({"asked": "a", "id": "x", "prompt": 0, "text": "a b"})"), "\"a b\"");
  EXPECT_EQ(WordsOf(R"({"instruction": "do", "text": "a"})"), "\"a\"");
  EXPECT_EQ(WordsOf(R"({"question": "q", "text": "a"})"), "\"a\"");
  EXPECT_EQ(WordsOf(R"({"prompt": "p", "completion": "c", "text": "pc"})"), "user:p assistant:c");
  EXPECT_EQ(WordsOf(R"({"messages": [{"role": "user", "content": "q"}, {"role": "assistant", "content": "a"}],
                        "text": "t"})"),
            "user:q assistant:a");
}

TEST(ReadExampleTest, FinishReasonSaysThatAReplyIsCut) {
  const auto is_cut = [](const std::string& reason) {
    const base::Json value = base::ParseJson(R"({"text": "a", "finish_reason": )" + reason + "}", "f");
    return ReadExample(base::JsonView(value, "f")).is_cut;
  };
  EXPECT_TRUE(is_cut("\"length\""));
  EXPECT_TRUE(is_cut("\"context\""));
  for (const char* other : {"\"stop\"", "\"eos\"", "null", "1", "[]"}) EXPECT_FALSE(is_cut(other)) << other;
}

TEST(ReadExampleTest, EmptyRepliesAreLeftOut) {
  const std::string none = "with a message without text";
  EXPECT_EQ(WordsOf(R"({"prompt": "p", "completion": ""})"), none);
  EXPECT_EQ(WordsOf(R"({"instruction": "do", "output": " \n"})"), none);
  EXPECT_EQ(WordsOf(R"({"conversations": [{"from": "human", "value": "q"}, {"from": "gpt", "value": ""}]})"), none);
  EXPECT_EQ(WordsOf(R"({"conversations": [{"from": "human", "value": "q"}, {"from": "gpt", "value": ""},
                        {"from": "human", "value": "q"}, {"from": "gpt", "value": "a"}]})"),
            none);
  EXPECT_EQ(WordsOf(R"({"prompt": "", "completion": "c"})"), "user: assistant:c");
}

TEST(ReadExampleTest, AReplyWithoutAQuestionIsDropped) {
  EXPECT_EQ(WordsOf(R"({"conversations": [{"from": "gpt", "value": "x"}, {"from": "human", "value": "q"},
                        {"from": "chatgpt", "value": "a"}]})"),
            "user:q assistant:a");
  EXPECT_EQ(WordsOf(R"({"conversations": [{"from": "system", "value": "s"}, {"from": "gpt", "value": "x"},
                        {"from": "user", "value": "q"}, {"from": "bing", "value": "a"}]})"),
            "system:s user:q assistant:a");
}

TEST(ReadExampleTest, ConversationsThatAreNoneAreLeftOut) {
  const std::string user = R"({"from": "human", "value": "q"})", reply = R"({"from": "gpt", "value": "a"})";
  const std::string system = R"({"from": "system", "value": "s"})";
  const auto left_out = [](const std::string& list) { return WordsOf("{\"conversations\": [" + list + "]}"); };
  const std::string roles = "whose roles are not user and assistant in turns";
  EXPECT_EQ(left_out(user + "," + user + "," + reply), roles);
  EXPECT_EQ(left_out(reply + "," + reply + "," + user + "," + reply), roles);
  EXPECT_EQ(left_out(user + "," + reply + "," + system), roles);
  EXPECT_EQ(left_out(user + R"(, {"from": "tool", "value": "t"})"), roles);
  EXPECT_EQ(left_out(user + R"(, {"from": "function_call"})"), roles);  // has no "value", and none is missed
  EXPECT_EQ(left_out(""), "without a question and a reply");
  EXPECT_EQ(left_out(reply), "without a question and a reply");
  EXPECT_EQ(left_out(user), "without a question and a reply");
  EXPECT_EQ(left_out(system), "without a question and a reply");
  EXPECT_EQ(WordsOf(R"({"messages": [{"role": "user", "content": "q"}, {"role": "assistant", "content": null}]})"),
            "with a message without text");
}

TEST(ReadExampleTest, OtherValuesAreRefusedByName) {
  const std::vector<std::pair<std::string, std::string>> cases = {
      {"7", "the JSON value is 7, expected a text, or an object with \"conversations\""},
      {"[1]", "expected a text, or an object"},
      {"{\"input\": \"a\"}", "expected a text, or an object"},
      {"{\"text\": 5}", "'text' is 5, expected a string"},
      {"{\"messages\": 5}", "'messages' is 5"},
      {"{\"messages\": [5]}", "'messages[0]'"},
      {"{\"messages\": [{\"role\": \"user\"}]}", "'messages[0].content'"},
      {"{\"messages\": [{\"role\": \"user\", \"content\": [1]}]}", "'messages[0].content' is [1], expected a string"},
      {"{\"conversations\": [{\"value\": \"a\"}]}", "'conversations[0].role'"},
      {"{\"instruction\": \"a\"}", "'output'"},
      {"{\"prompt\": \"a\"}", "'completion'"},
      {"{\"question\": \"a\"}", "'answer'"}};
  for (const auto& [json, part] : cases) ExpectRefused([&json = json] { WordsOf(json); }, part);
}

}  // namespace
}  // namespace hydrant::train::documents_test
