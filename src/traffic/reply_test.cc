// SPDX-License-Identifier: Apache-2.0
#include "traffic/reply.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "base/json.h"
#include "traffic/request.h"

namespace hydrant::traffic::reply_test {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;

std::string Event(const std::string& data) { return "data: " + data + "\n\n"; }

TEST(ReplyReaderTest, AChatOfOursHasTextTimesUsageAndSpeculation) {
  Reply reply;
  ReplyReader reader(reply);
  EXPECT_TRUE(reader.Add(Event(R"({"choices":[{"delta":{"role":"assistant","content":""}}]})"), 0.5));
  EXPECT_EQ(reply.num_events, 0) << "the role is no text";
  EXPECT_TRUE(reader.Add(Event(R"({"choices":[{"delta":{"content":"a"},"finish_reason":null}],"usage":null})"), 1));
  EXPECT_TRUE(reader.Add(Event(R"({"choices":[{"delta":{"content":"b c"}}]})"), 1.5));
  EXPECT_FALSE(reader.is_whole());
  EXPECT_TRUE(reader.Add(Event(R"({"choices":[{"delta":{},"finish_reason":"length"}]})"), 2));
  EXPECT_TRUE(reader.is_whole());
  EXPECT_EQ(reply.num_tokens, 2) << "events, as long as there is no usage";
  EXPECT_TRUE(reader.Add(Event(R"({"choices":[],"usage":{"prompt_tokens":4,"completion_tokens":9},)"
                               R"("speculation":{"steps":4,"tokens_per_step":2.0}})") +
                             Event("[DONE]"),
                         2.5));
  EXPECT_EQ(reply.text, "ab c");
  EXPECT_EQ(reply.first, 1);
  EXPECT_EQ(reply.last, 1.5);
  EXPECT_THAT(reply.gaps, ElementsAre(0.5));
  EXPECT_EQ(reply.num_tokens, 9);
  EXPECT_EQ(reply.num_prompt_tokens, 4);
  EXPECT_TRUE(reply.has_usage);
  EXPECT_EQ(reply.num_steps, 4);
  EXPECT_EQ(reply.num_step_tokens, 8);
}

TEST(ReplyReaderTest, CompletionsAndServersWithoutUsage) {
  Reply reply;
  ReplyReader reader(reply);
  EXPECT_TRUE(reader.Add(Event(R"({"choices":[{"text":"a"}]})") + Event(R"({"choices":[{"text":"b"}]})"), 1));
  EXPECT_TRUE(reader.Add(Event("[DONE]"), 1));
  EXPECT_TRUE(reader.is_whole());
  EXPECT_EQ(reply.num_tokens, 2);
  EXPECT_FALSE(reply.has_usage);
  EXPECT_EQ(reply.num_steps, 0);
}

TEST(ReplyReaderTest, WhatIsNoEventOfTheApiFailsTheReply) {
  const auto expect_failed = [](const std::string& data, Failure failure, const std::string& part) {
    Reply reply;
    ReplyReader reader(reply);
    EXPECT_FALSE(reader.Add(Event(data), 1)) << data;
    EXPECT_EQ(reply.failure, failure) << data;
    EXPECT_THAT(reply.problem, HasSubstr(part));
  };
  expect_failed("not JSON", Failure::kMalformed, "is not valid JSON");
  expect_failed("[1", Failure::kMalformed, "is not valid JSON");
  expect_failed(R"({"choices":7})", Failure::kMalformed, "'choices' is 7");
  expect_failed(R"({"choices":["x"]})", Failure::kMalformed, "");
  expect_failed(R"({"choices":[{"text":7}]})", Failure::kMalformed, "expected a string");
  expect_failed(R"({"usage":{"completion_tokens":-1}})", Failure::kMalformed, "expected an integer");
  expect_failed(R"({"usage":{}})", Failure::kMalformed, "completion_tokens");
  expect_failed(R"({"error":{"message":"out of memory"}})", Failure::kError, "out of memory");
}

TEST(MessageOfErrorTest, TheFormsOfSeveralServers) {
  EXPECT_EQ(MessageOfError(R"({"error":{"message":"m","type":"t"}})"), "m");
  EXPECT_EQ(MessageOfError(R"({"error":"m"})"), "m");
  EXPECT_EQ(MessageOfError(R"({"object":"error","message":"m"})"), "m");
  EXPECT_EQ(MessageOfError(R"({"detail":"m"})"), "m");
  EXPECT_EQ(MessageOfError("<html>"), "<html>");
  EXPECT_EQ(MessageOfError(std::string(1000, 'x')).size(), 300U);
}

TEST(RequestBodyTest, OnlyOpenAisFieldsUnlessMoreIsAskedFor) {
  RequestSettings settings{.model = "m", .max_tokens = 9, .seed = 3};
  const std::vector<Message> messages = {{"system", "s"}, {"user", "q"}};
  base::Json body = base::ParseJson(RequestBody(settings, messages, 4), "body");
  EXPECT_EQ(body, base::ParseJson(R"({"model":"m","max_tokens":9,"temperature":0.0,"seed":7,"stream":true,
      "stream_options":{"include_usage":true},
      "messages":[{"role":"system","content":"s"},{"role":"user","content":"q"}]})",
                                  "expected"));
  settings.is_chat = false;
  settings.is_plain = settings.ignore_eos = true;
  body = base::ParseJson(RequestBody(settings, messages, 4), "body");
  EXPECT_EQ(body["prompt"], "s\n\nq");
  EXPECT_FALSE(body.contains("messages"));
  EXPECT_EQ(body["speculation"]["enabled"], false);
  EXPECT_EQ(body["ignore_eos"], true);
}

}  // namespace
}  // namespace hydrant::traffic::reply_test
