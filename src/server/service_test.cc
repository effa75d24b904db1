// SPDX-License-Identifier: Apache-2.0
// The API over the embedded model: the text of each reply is what the engine gives that request alone.
#include "server/service.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <memory>
#include <mutex>
#include <set>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "base/json.h"
#include "base/mapped_file.h"
#include "tests/served.h"

namespace hydrant::server::service_test {
namespace {

using base::Json;
using test::EventsOf;
using test::HttpClient;
using test::HttpReply;
using testing::HasSubstr;

Engine& TheEngine() { return test::TaleEngine(); }

class ServiceTest : public testing::Test {
 protected:
  void SetUp() override { Start({.max_open = 64}); }
  void Start(ServiceOptions options) {
    options.model_name = "tale";
    if (options.template_name.empty()) options.template_name = "none";
    options.defaults.generation.sampling.temperature = 1;
    served_.reset();
    served_ = std::make_unique<test::Served>(TheEngine(), options);
  }
  uint16_t port() const { return served_->port(); }
  HttpReply Post(const std::string& path, const Json& body) const { return served_->Post(path, body); }
  Json Complete(const Json& body) const { return served_->Complete(body); }
  void ExpectRefused(const std::string& path, const Json& body, const std::string& part, const std::string& param,
                     int status = 400) {
    const HttpReply reply = Post(path, body);
    EXPECT_EQ(reply.status, status) << body;
    const Json error = reply.json().at("error");
    EXPECT_THAT(error.at("message").get<std::string>(), HasSubstr(part)) << body;
    EXPECT_EQ(error.at("param"), param.empty() ? Json() : Json(param)) << body;
  }

  std::unique_ptr<test::Served> served_;
};

GenerationRequest Alone(const std::string& prompt, int32_t max_tokens, float temperature = 0, uint64_t seed = 0) {
  GenerationRequest request;
  request.prompt_ids = TheEngine().Tokenize(prompt, true, true);
  request.stop.max_tokens = max_tokens;
  request.sampling.temperature = temperature;
  request.sampling.seed = seed;
  request.use_drafter = false;
  return request;
}

TEST_F(ServiceTest, ACompletionIsTheEnginesOwnText) {
  const GenerationResult expected = TheEngine().Generate(Alone("Once upon a time", 20));
  const Json json = Complete({{"model", "tale"},
                              {"prompt", "Once upon a time"},
                              {"max_tokens", 20},
                              {"temperature", 0},
                              {"speculation", {{"tree", "chain"}}},
                              {"return_token_ids", true}});
  EXPECT_EQ(json["object"], "text_completion");
  EXPECT_THAT(json["id"].get<std::string>(), testing::StartsWith("cmpl-"));
  EXPECT_EQ(json["choices"][0]["text"], expected.text);
  EXPECT_EQ(json["choices"][0]["token_ids"], expected.token_ids);
  EXPECT_EQ(json["choices"][0]["finish_reason"], "length");
  EXPECT_EQ(json["usage"]["completion_tokens"], 20);
  EXPECT_EQ(json["usage"]["total_tokens"], json["usage"]["prompt_tokens"].get<int>() + 20);
  EXPECT_EQ(json["usage"]["completion_tokens_details"]["accepted_prediction_tokens"], 0);
  EXPECT_GT(json["speculation"]["accepted_tokens"], 0);
  EXPECT_GT(json["speculation"]["tokens_per_step"], 1);
}

TEST_F(ServiceTest, StreamsGiveTheSameTextInSteps) {
  Json body = {{"prompt", "Once upon a time"}, {"max_tokens", 40}, {"temperature", 0.8}, {"seed", 5}};
  const Json whole = Complete(body);
  EXPECT_EQ(whole["choices"][0]["text"], TheEngine().Generate(Alone("Once upon a time", 40, 0.8F, 5)).text);
  body["stream"] = true;
  body["stream_options"] = {{"include_usage", true}, {"include_speculation", true}};
  body["return_token_ids"] = true;
  const HttpReply reply = Post("/v1/completions", body);
  EXPECT_EQ(reply.Header("content-type"), "text/event-stream; charset=utf-8");
  std::string text, shown;
  std::vector<int32_t> ids;
  int with_text = 0;
  const std::vector<Json> events = EventsOf(reply.body);
  for (const Json& event : events) {
    if (event["choices"].empty()) continue;
    const Json& choice = event["choices"][0];
    text += choice["text"];
    if (!choice.contains("token_ids")) continue;
    ++with_text;
    for (const Json& id : choice["token_ids"]) ids.push_back(id);
    for (const Json& token : choice["speculation"]["tokens"]) shown += token["text"];
    for (const Json& token : choice["speculation"]["tokens"]) {
      EXPECT_EQ(token["source"], token["depth"] == 0 ? "base" : "heads");
    }
    if (!choice["speculation"].contains("step")) continue;
    const Json& step = choice["speculation"]["step"];
    EXPECT_EQ(step["parents"].size(), step["texts"].size());
    EXPECT_LT(step["accepted"].size(), step["texts"].size());
  }
  EXPECT_EQ(text, whole["choices"][0]["text"]);
  EXPECT_EQ(shown, text);
  EXPECT_EQ(ids.size(), 40U);
  EXPECT_LT(with_text, 40) << "one event a step";
  EXPECT_EQ(events[events.size() - 2]["choices"][0]["finish_reason"], "length");
  EXPECT_EQ(events.back()["usage"], whole["usage"]);
  EXPECT_EQ(events.back()["seed"], 5);
}

TEST_F(ServiceTest, ChoicesHaveNoiseOfTheirOwnAndTheFirstIsThatOfRun) {
  const Json json = Complete({{"prompt", "The dog"}, {"max_tokens", 12}, {"seed", 7}, {"n", 3}});
  ASSERT_EQ(json["choices"].size(), 3U);
  std::set<std::string> texts;
  for (int32_t c = 0; c < 3; ++c) {
    const std::string text = json["choices"][static_cast<size_t>(c)]["text"];
    EXPECT_EQ(text, TheEngine().Generate(Alone("The dog", 12, 1, SeedOfChoice(7, c))).text);
    texts.insert(text);
  }
  EXPECT_EQ(SeedOfChoice(7, 0), 7U);
  EXPECT_EQ(texts.size(), 3U);
  EXPECT_EQ(json["usage"]["completion_tokens"], 36);
}

TEST_F(ServiceTest, SeveralPromptsAndIdsAndEcho) {
  const std::vector<int32_t> ids = TheEngine().Tokenize("The cat", true, true);
  const Json json =
      Complete({{"prompt", Json::array({"The dog", ids})}, {"max_tokens", 5}, {"temperature", 0}, {"echo", true}});
  EXPECT_EQ(json["choices"][0]["text"], "The dog" + TheEngine().Generate(Alone("The dog", 5)).text);
  EXPECT_EQ(json["choices"][1]["text"], "The cat" + TheEngine().Generate(Alone("The cat", 5)).text);
  EXPECT_EQ(json["choices"][1]["index"], 1);
  EXPECT_EQ(Complete({{"prompt", ids}, {"max_tokens", 5}, {"temperature", 0}})["choices"][0]["text"],
            TheEngine().Generate(Alone("The cat", 5)).text);
}

TEST_F(ServiceTest, StopStringsEndTheText) {
  const std::string whole = TheEngine().Generate(Alone("Once upon a time", 40)).text;
  const std::string stop = whole.substr(20, 4);
  const Json json = Complete({{"prompt", "Once upon a time"}, {"max_tokens", 40}, {"temperature", 0}, {"stop", stop}});
  EXPECT_EQ(json["choices"][0]["text"], whole.substr(0, whole.find(stop)));
  EXPECT_EQ(json["choices"][0]["finish_reason"], "stop");
}

TEST_F(ServiceTest, ASeedThatTheServerChoseIsReturnedAndRepeatsTheText) {
  const Json body = {{"prompt", "The dog"}, {"max_tokens", 24}};
  const Json first = Complete(body), second = Complete(body);
  EXPECT_NE(first["seed"], second["seed"]);
  Json again = body;
  again["seed"] = first["seed"];
  EXPECT_EQ(Complete(again)["choices"][0]["text"], first["choices"][0]["text"]);
  again["seed"] = -1;
  const Json signed_seed = Complete(again);
  again["seed"] = signed_seed["seed"];
  EXPECT_EQ(again["seed"], UINT64_MAX);
  EXPECT_EQ(Complete(again)["choices"][0]["text"], signed_seed["choices"][0]["text"]);
}

TEST_F(ServiceTest, TooManyWaitForNobody) {
  Start({.max_open = 3});
  ExpectRefused("/v1/completions", {{"prompt", "The"}, {"n", 4}}, "asks for 4 sequences, and 3", "n");
  HttpClient busy(port());
  const Json slow = {{"prompt", "The"}, {"n", 3}, {"max_tokens", 400}, {"ignore_eos", true}, {"stream", true}};
  busy.Send(HttpClient::PostText("/v1/completions", base::DumpJson(slow)));
  ASSERT_TRUE(busy.Until("data: "));
  ExpectRefused("/v1/completions", {{"prompt", "The"}}, "try again later", "", 429);
  EXPECT_EQ(Post("/v1/completions", {{"prompt", "The"}}).Header("retry-after"), "1");
  busy.Close();
  for (int i = 0; i < 1000 && served_->service().num_open() > 0; ++i) {
    std::this_thread::sleep_for(std::chrono::milliseconds(10));
  }
  EXPECT_EQ(Complete({{"prompt", "The"}, {"n", 3}})["choices"].size(), 3U);
}

TEST_F(ServiceTest, WrongRequestsAreRefusedByTheirField) {
  const auto refused = [this](const Json& given, const std::string& part, const std::string& param) {
    Json body = given;
    if (!body.contains("prompt")) body["prompt"] = "x";
    ExpectRefused("/v1/completions", body, part, param);
  };
  refused({{"temperature", "hot"}}, "'temperature' is \"hot\", expected a number", "temperature");
  refused({{"temperature", -1}}, "expected a number, 0 to 100", "temperature");
  refused({{"max_tokens", -1}}, "expected an integer, 0 to", "max_tokens");
  refused({{"max_tokens", 1.5}}, "expected an integer", "max_tokens");
  refused({{"n", 1000}}, "1 to 128", "n");
  refused({{"tempratur", 1}}, "Unrecognized request argument supplied: tempratur", "tempratur");
  refused({{"logit_bias", {{"5", 1}}}}, "cannot do that", "logit_bias");
  refused({{"stop", Json::array({1})}}, "a string, or a list", "stop");
  refused({{"stop", ""}}, "stop string is empty", "stop");
  refused({{"speculation", {{"tree", "nope"}}}}, "speculation.tree", "speculation.tree");
  refused({{"draft_token_ids", {999999}}}, "draft_token_ids token 0", "draft_token_ids");
  refused({{"prompt", Json::array({1, -2})}}, "a list of token ids", "prompt");
  refused({{"prompt", Json::array({1, 999999})}}, "999999", "prompt");
  refused({{"prompt", Json::array()}}, "expected a text", "prompt");
  refused({{"stream_options", {{"include_usage", true}}}}, "needs 'stream'", "stream_options");
  refused({{"speculation", {{"tree", "/etc/passwd"}}}}, "a preset's name", "speculation.tree");
  refused({{"speculation", {{"tre", "x"}}}}, "speculation.tre", "speculation.tre");
  refused({{"speculation", {{"tree", "dynamic"}}}}, "fill trees of a given shape", "speculation.tree");
  refused({{"speculation", {{"tree", ""}}}}, "a preset's name", "speculation.tree");
  refused({{"speculation", {{"tree", "auto"}, {"draft_depth", 2}}}}, "is of the tree \"dynamic\"",
          "speculation.draft_depth");
  refused({{"speculation", {{"tree", "auto"}, {"beam_width", 2}}}}, "is of the tree \"beam\"",
          "speculation.beam_width");
  refused({{"speculation", {{"beam_width", 3}, {"draft_depth", 2}}}}, "and this one is \"beam\"",
          "speculation.draft_depth");
  refused({{"speculation", {{"beam_width", 3}, {"draft_width", 2}}}}, "is of the tree", "speculation.beam_width");
  refused({{"speculation", {{"draft_depth", 9}}}}, "is 5 deep", "speculation.draft_depth");
  refused({{"speculation", {{"epsilon", 0.1}}}}, "typical acceptance only", "speculation.epsilon");
  refused({{"temperature", 1}, {"speculation", {{"accept", "rejection"}, {"tree", "auto"}}}}, "with the rejection rule",
          "speculation.tree");
  refused({{"temperature", 1}, {"speculation", {{"accept", "rejection"}, {"draft_p_min", 0.1}}}},
          "with the rejection rule", "speculation.draft_p_min");
  refused({{"temperature", 1}, {"speculation", {{"accept", "rejection"}, {"lookup", 3}}}}, "with the rejection rule",
          "speculation.lookup");
  refused({{"speculation", {{"draft_width", 65}}}}, "1 to 64", "speculation.draft_width");
  refused({{"speculation", {{"beam_width", 51}}}}, "1 to 50", "speculation.beam_width");
  refused({{"speculation", {{"beam_length", 1}}}}, "2 to 65", "speculation.beam_length");
  refused({{"speculation", {{"beam_width", 50}, {"beam_length", 12}}}}, "511 drafted tokens at most",
          "speculation.beam_width");
  refused({{"speculation", {{"beam_width", 5}}}}, "fill trees of a given shape", "speculation.tree");
  refused({{"speculation", {{"lookup", 65}}}}, "0 to 64", "speculation.lookup");
  refused({{"speculation", {{"lookup_rule", "frist"}}}}, "\"last\" or \"first\"", "speculation.lookup_rule");
  refused({{"speculation", {{"lookup_max_match", 0}}}}, "1 to 64", "speculation.lookup_max_match");
  refused({{"speculation", {{"lookup_min", 3}}}}, "'lookup' above 0 beside it", "speculation.lookup_min");
  refused({{"speculation", {{"tree", "[[0,0,0,0,0]]"}}}}, "is 5 deep", "speculation.tree");
  refused({{"speculation", {{"lookup_min", 4}, {"lookup_max_match", 3}}}}, "4 at least",
          "speculation.lookup_max_match");
  refused({{"speculation", 5}}, "expected an object", "speculation");
  ExpectRefused("/v1/completions", {{"max_tokens", 5}}, "'prompt' is missing", "prompt");
  ExpectRefused("/v1/completions", Json::array(), "expected an object", "");
  ExpectRefused("/v1/completions", {{"model", "gpt-5"}, {"prompt", "x"}}, "does not exist", "model", 404);
  std::string text;
  for (int i = 0; i < 600; ++i) text += "dog ";
  const HttpReply too_long = Post("/v1/completions", {{"prompt", text}});
  EXPECT_EQ(too_long.json()["error"]["code"], "context_length_exceeded");
  HttpClient client(port());
  EXPECT_EQ(client.PostRaw("/v1/completions", std::string(R"({"prompt":"x","prompt":"y"})")).status, 400);
  EXPECT_EQ(client.PostRaw("/v1/completions", std::string("{")).status, 400);
  EXPECT_EQ(client.PostRaw("/v1/completions", std::string(100000, '[')).status, 400);
  EXPECT_EQ(client.Get("/nothing").status, 404);
  EXPECT_EQ(client.PostRaw("/nothing", "{}").status, 404);
}

TEST_F(ServiceTest, ChatsAreRenderedAndStreamed) {
  Start({.template_name = "vicuna"});
  Json body = {{"messages",
                {{{"role", "developer"}, {"content", "You are a poet."}},
                 {{"role", "user"}, {"content", Json::array({{{"type", "text"}, {"text", "Hello"}}})}}}},
               {"max_completion_tokens", 16},
               {"temperature", 0}};
  const std::vector<ChatMessage> messages = {{"system", "You are a poet."}, {"user", "Hello"}};
  std::string prompt;
  ASSERT_TRUE(TheEngine().RenderChat(messages, "vicuna", &prompt));
  GenerationRequest alone = Alone("", 16);
  alone.prompt_ids = TheEngine().Tokenize(prompt, true, false);
  const GenerationResult result = TheEngine().Generate(alone);
  const std::string expected = result.text;
  const std::string reason = result.finish_reason == FinishReason::kEos ? "stop" : "length";
  const HttpReply reply = Post("/v1/chat/completions", body);
  ASSERT_EQ(reply.status, 200) << reply.body;
  EXPECT_EQ(reply.json()["choices"][0]["message"]["content"], expected);
  EXPECT_EQ(reply.json()["choices"][0]["message"]["role"], "assistant");
  EXPECT_EQ(reply.json()["object"], "chat.completion");
  body["stream"] = true;
  const std::vector<Json> events = EventsOf(Post("/v1/chat/completions", body).body);
  EXPECT_EQ(events[0]["choices"][0]["delta"]["role"], "assistant");
  std::string text;
  for (const Json& event : events) text += event["choices"][0]["delta"].value("content", "");
  EXPECT_EQ(text, expected);
  EXPECT_EQ(events.back()["choices"][0]["finish_reason"], reason);
  ExpectRefused("/v1/chat/completions", {{"messages", Json::array()}}, "one at least", "messages");
  ExpectRefused("/v1/chat/completions", {{"messages", {{{"role", "tool"}, {"content", "x"}}}}}, "expected system",
                "messages[0].role");
  body["tools"] = {{{"type", "function"}}};
  ExpectRefused("/v1/chat/completions", body, "'tools'", "tools");
}

TEST_F(ServiceTest, ThePageAndItsFilesAreInTheProgram) {
  HttpClient client(port());
  const HttpReply page = client.Get("/");
  EXPECT_EQ(page.status, 200);
  EXPECT_EQ(page.Header("content-type"), "text/html; charset=utf-8");
  EXPECT_THAT(page.Header("content-security-policy"), HasSubstr("script-src 'self'"));
  for (const char* name : {"app.js", "style.css"}) {
    EXPECT_THAT(page.body, HasSubstr(std::string("/page/") + name));
    EXPECT_EQ(client.Get(std::string("/page/") + name).body,
              base::ReadTextFile(test::SourceDir() + "/src/server/page/" + name));
  }
  EXPECT_EQ(client.Get("/page/").status, 404);
  EXPECT_EQ(client.Get("/page/../service.cc").status, 404);
}

TEST_F(ServiceTest, TextsAndIdsAndWhatIsServed) {
  HttpClient client(port());
  EXPECT_EQ(client.Get("/health").status, 200);
  EXPECT_EQ(client.Get("/ready").status, 200);
  EXPECT_EQ(client.Get("/v1/models").json()["data"][0]["id"], "tale");
  EXPECT_EQ(client.Get("/v1/models/tale").json()["id"], "tale");
  const std::vector<int32_t> ids = TheEngine().Tokenize("Once upon a time", true, true);
  EXPECT_EQ(client.Post("/tokenize", Json{{"prompt", "Once upon a time"}}).json()["tokens"], ids);
  EXPECT_THAT(client.Post("/detokenize", Json{{"tokens", ids}}).json()["prompt"].get<std::string>(),
              HasSubstr("Once upon a time"));
  EXPECT_EQ(client.Post("/detokenize", Json{{"tokens", {9999999}}}).status, 400);
  served_->service().SayNotReady();
  EXPECT_EQ(client.Get("/ready").status, 503);
  EXPECT_EQ(client.Post("/v1/completions", Json{{"prompt", "x"}}).status, 200) << "it came before proxies have heard";
  served_->service().Drain();
  EXPECT_EQ(client.Get("/health").status, 200);
  EXPECT_EQ(client.Get("/ready").status, 503);
  EXPECT_EQ(client.Post("/v1/completions", Json{{"prompt", "x"}}).status, 503);
}

TEST_F(ServiceTest, RepliesCarryTheRequestsId) {
  std::mutex mutex;
  std::vector<ReplyRecord> records;
  Start({.on_reply = [&](const ReplyRecord& record) {
    const std::lock_guard lock(mutex);
    records.push_back(record);
  }});
  HttpClient client(port());
  EXPECT_EQ(client.Get("/health", "X-Request-Id: mine-7\r\nX-Forwarded-For: 10.1.2.3\r\n").Header("x-request-id"),
            "mine-7");
  const std::string made = client.Get("/nothing", "X-Request-Id: two words\r\n").Header("x-request-id");
  EXPECT_TRUE(made.starts_with("req-")) << made;
  EXPECT_TRUE(client.Get("/health", "X-Request-Id: " + std::string(129, 'x') + "\r\n")
                  .Header("x-request-id")
                  .starts_with("req-"));
  const HttpReply stream =
      client.PostRaw("/v1/completions", R"({"prompt":"x","stream":true})", "X-Request-Id: mine-8\r\n");
  EXPECT_EQ(stream.Header("x-request-id"), "mine-8");
  served_.reset();
  ASSERT_EQ(records.size(), 4U);
  EXPECT_EQ(records[0].id, "mine-7");
  EXPECT_EQ(records[0].forwarded_for, "10.1.2.3");
  EXPECT_EQ(records[1].id, made);
  EXPECT_EQ(records[3].id, "mine-8");
  const Json line = base::ParseJson(LogLine(records[0]), "the line");
  EXPECT_EQ(line["id"], "mine-7");
  EXPECT_EQ(line["forwarded_for"], "10.1.2.3");
}

TEST_F(ServiceTest, AWrongMethodIsToldTheRightOnes) {
  HttpClient client(port());
  const HttpReply get = client.Get("/v1/completions");
  EXPECT_EQ(get.status, 405);
  EXPECT_EQ(get.Header("allow"), "POST");
  const HttpReply post = client.PostRaw("/health", "{}");
  EXPECT_EQ(post.status, 405);
  EXPECT_EQ(post.Header("allow"), "GET, HEAD");
  client.Send("DELETE /nothing HTTP/1.1\r\nHost: t\r\n\r\n");
  EXPECT_EQ(client.ReadReply().status, 404);
}

}  // namespace
}  // namespace hydrant::server::service_test
