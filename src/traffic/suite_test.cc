// SPDX-License-Identifier: Apache-2.0
#include "traffic/suite.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>
#include <string_view>
#include <vector>

#include "hydrant/error.h"
#include "tests/test_data.h"

namespace hydrant::traffic::suite_test {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;

std::vector<std::string> FirstTurns(const std::string& content) {
  std::vector<std::string> turns;
  for (const Prompt& prompt : ParseSuite(content, "suite").prompts) turns.push_back(prompt.turns.front());
  return turns;
}

void ExpectRefused(std::string_view content, const std::string& part) {
  try {
    static_cast<void>(ParseSuite(content, "suite"));
    ADD_FAILURE() << content;
  } catch (const FileError& error) {
    EXPECT_THAT(error.what(), testing::AllOf(testing::StartsWith("suite"), HasSubstr(part))) << content;
  }
}

TEST(SuiteTest, LinesWithTurnsAreSpecBenchAndMtBench) {
  const Suite suite = ParseSuite(
      "{\"question_id\": 1, \"category\": \"chat\", \"turns\": [\"a\", \"b\"]}\n\n"
      "{\"question_id\": 2, \"category\": \"chat\", \"turns\": [\"c\"], \"reference\": [\"r\"]}\r\n",
      "suite");
  EXPECT_EQ(suite.form, "lines of JSON objects with \"turns\"");
  ASSERT_EQ(suite.prompts.size(), 2U);
  EXPECT_THAT(suite.prompts[0].turns, ElementsAre("a", "b"));
  EXPECT_THAT(suite.prompts[1].turns, ElementsAre("c"));
}

TEST(SuiteTest, ShareGptGivesTheHumansFirstText) {
  const std::string one =
      R"({"id": "x", "conversations": [{"from": "system", "value": "s"}, {"from": "human", "value": "q"},
          {"from": "gpt", "value": "a"}, {"from": "human", "value": "again"}]})";
  const Suite suite = ParseSuite("[\n" + one + ",\n" + one + "]\n", "suite");
  EXPECT_EQ(suite.form, "an array of JSON objects with \"conversations\"");
  ASSERT_EQ(suite.prompts.size(), 2U);
  EXPECT_EQ(suite.prompts[1], (Prompt{.before = {}, .turns = {"q"}}));
}

TEST(SuiteTest, EveryTurnLeavesRepliesOut) {
  const Suite suite =
      ParseSuite(R"({"conversations": [{"from": "system", "value": "s"}, {"from": "human", "value": "q"},)"
                 R"( {"from": "gpt", "value": "a"}, {"from": "human", "value": "again"}]})"
                 "\n"
                 R"({"messages": [{"role": "user", "content": "q"}, {"role": "assistant", "content": "a"},)"
                 R"( {"role": "user", "content": "r"}, {"role": "assistant", "content": "b"}]})",
                 "suite", Asked::kEveryTurn);
  ASSERT_EQ(suite.prompts.size(), 2U);
  EXPECT_EQ(suite.prompts[0], (Prompt{.before = {{"system", "s"}}, .turns = {"q", "again"}}));
  EXPECT_EQ(suite.prompts[1], (Prompt{.before = {}, .turns = {"q", "r"}}));
  for (const char* bad : {R"({"messages": [{"role": "assistant", "content": "a"}]})", R"({"conversations": []})",
                          R"({"messages": [{"role": "user", "content": "q"}, {"role": "system", "content": "s"}]})"}) {
    EXPECT_THROW(static_cast<void>(ParseSuite(bad, "suite", Asked::kEveryTurn)), FileError) << bad;
  }
}

TEST(SuiteTest, MessagesAreSentUpToTheUsersLast) {
  const Suite suite =
      ParseSuite(R"({"messages": [{"role": "system", "content": "s"}, {"role": "user", "content": "q"}, )"
                 R"({"role": "assistant", "content": "a"}, {"role": "user", "content": "r"}, )"
                 R"({"role": "assistant", "content": "b"}]})",
                 "suite");
  ASSERT_EQ(suite.prompts.size(), 1U);
  EXPECT_THAT(suite.prompts[0].before,
              ElementsAre(Message{"system", "s"}, Message{"user", "q"}, Message{"assistant", "a"}));
  EXPECT_THAT(suite.prompts[0].turns, ElementsAre("r"));
}

TEST(SuiteTest, TensorRtLlmListsHaveInputsOrInstructions) {
  EXPECT_THAT(FirstTurns(R"([{"input": "i", "output": "o"}, {"instruction": "do", "input": "this"},
                             {"instruction": "do", "input": ""}])"),
              ElementsAre("i", "do\n\nthis", "do"));
  EXPECT_THAT(FirstTurns("{\"task_id\": 0, \"prompt\": \"p\", \"output_tokens\": 8}\n{\"text\": \"t\"}"),
              ElementsAre("p", "t"));
}

TEST(SuiteTest, OtherTextIsAPromptALine) {
  const Suite suite = ParseSuite("\xef\xbb\xbfOnce upon a time\n\n  The dog \r\n", "suite");
  EXPECT_EQ(suite.form, "lines of text");
  ASSERT_EQ(suite.prompts.size(), 2U);
  EXPECT_THAT(suite.prompts[0].turns, ElementsAre("Once upon a time"));
  EXPECT_THAT(suite.prompts[1].turns, ElementsAre("The dog"));
  EXPECT_THAT(FirstTurns(R"(["a, ] \" {", "b"])"), ElementsAre("a, ] \" {", "b"));
}

TEST(SuiteTest, ErrorsNameTheLineAndWhatWasExpected) {
  ExpectRefused("", "has no prompt");
  ExpectRefused(" \n", "has no prompt");
  ExpectRefused("[]", "is an empty list");
  ExpectRefused("{\"turns\": [\"a\"]}\n{\"question\": \"b\"}",
                "line 2: the JSON value is {\"question\":\"b\"}, expected a text, or an");
  ExpectRefused("{\"turns\": []}", "line 1: 'turns' is [], expected one turn at least");
  ExpectRefused("{\"turns\": [\"a\", 5]}", "line 1: 'turns[1]' is 5, expected a string");
  ExpectRefused("{\"turns\": [\" \"]}", "expected a text that is not empty");
  ExpectRefused("{\"turns\": [\"a\"]}\nnot JSON", "line 2: is not valid JSON");
  ExpectRefused("{\"conversations\": [{\"from\": \"gpt\", \"value\": \"a\"}]}", "expected a message from \"human\"");
  ExpectRefused("{\"messages\": [{\"role\": \"tool\", \"content\": \"a\"}]}", "expected system, user or assistant");
  ExpectRefused("{\"messages\": [{\"role\": \"system\", \"content\": \"a\"}]}", "expected a message of the user");
  ExpectRefused("[\n\"a\",\n7]", "line 3: the JSON value is 7, expected a text, or an object");
  ExpectRefused("[\"a\"\n", "line 2: ends within the array");
  ExpectRefused("[\"a\",\n]", "line 2: expected a value behind ','");
  ExpectRefused("[,\"a\"]", "line 1: expected a value in front of ','");
  ExpectRefused("[\"a\"] x", "has more behind the array");
  ExpectRefused("[\"a\" \"b\"]", "is not valid JSON");
  ExpectRefused("[{\"turns\": [\"a\"}", "");
  ExpectRefused("[\"\\", "");
  ExpectRefused("[" + std::string(100'000, '['), "");
  ExpectRefused("\x1f\x8b\x08 and more", "is packed by gzip");
}

TEST(SuiteTest, PromptsAndFilesHaveLimits) {
  ExpectRefused("a\n" + std::string(kMaxPromptBytes + 1, 'x'), "line 2: has a prompt of 4194305 bytes");
  const test::TempDir dir;
  EXPECT_EQ(ReadSuite(dir.Write("s.txt", "one\ntwo\n")).prompts.size(), 2U);
  EXPECT_THROW(static_cast<void>(ReadSuite(dir.path() + "/none")), FileError);
}

// Every beginning of every form: an answer or a FileError, never anything else.
TEST(SuiteTest, TextsCutAnywhereAreTakenOrRefused) {
  const std::string forms[] = {"[{\"turns\": [\"a\", \"\\u00e9\"]}, {\"input\": \"b\"}]",
                               "{\"messages\": [{\"role\": \"user\", \"content\": \"q\"}]}",
                               "[\"a\", [[], {}], \"b\\\"\"]"};
  for (const std::string& form : forms) {
    for (size_t size = 0; size <= form.size(); ++size) {
      try {
        EXPECT_FALSE(ParseSuite(form.substr(0, size), "suite").prompts.empty());
      } catch (const FileError&) {
        continue;
      }
    }
  }
}

}  // namespace
}  // namespace hydrant::traffic::suite_test
