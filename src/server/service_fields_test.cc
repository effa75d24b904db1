// SPDX-License-Identifier: Apache-2.0
// What single fields of a request ask for: log probabilities, guesses of the client, limits, shared beginnings.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "base/json.h"
#include "tests/served.h"

namespace hydrant::server::service_fields_test {
namespace {

using base::Json;
using base::ParseJson;
using test::EventsOf;
using test::HttpClient;
using test::HttpReply;
using test::Served;
using test::TaleEngine;
using testing::HasSubstr;

ServiceOptions Options() { return {.model_name = "tale", .template_name = "none"}; }

GenerationRequest Alone(const std::string& prompt, int32_t max_tokens) {
  GenerationRequest request;
  request.prompt_ids = TaleEngine().Tokenize(prompt, true, true);
  request.stop.max_tokens = max_tokens;
  request.use_drafter = false;
  return request;
}

// Of one slow core, so that a reply takes seconds.
Engine& SlowEngine() {
  static Engine engine([] {
    EngineOptions slow;
    slow.model = test::SourceDir() + "/models/tale-14m";
    slow.cpu_target = "portable";
    slow.threads = 1;
    slow.max_running = 1;
    return slow;
  }());
  return engine;
}

TEST(ServiceFieldsTest, LogprobsOfCompletionsAreTheEngines) {
  Served served(TaleEngine(), Options());
  GenerationRequest alone = Alone("Once upon a time", 12);
  alone.num_logprobs = 2;
  const GenerationResult expected = TaleEngine().Generate(alone);
  Json body = {{"prompt", "Once upon a time"}, {"max_tokens", 12}, {"temperature", 0}, {"logprobs", 2}};
  const Json choice = served.Complete(body)["choices"][0];
  const Json& logprobs = choice["logprobs"];
  ASSERT_EQ(logprobs["tokens"].size(), 12U);
  std::string joined;
  for (size_t i = 0; i < 12; ++i) {
    EXPECT_EQ(logprobs["text_offset"][i], joined.size());
    joined += logprobs["tokens"][i];
    EXPECT_FLOAT_EQ(logprobs["token_logprobs"][i], expected.logprobs[i].chosen);
    EXPECT_GE(logprobs["top_logprobs"][i].size(), 2U);
    EXPECT_FLOAT_EQ(logprobs["top_logprobs"][i][TaleEngine().TokenBytes(expected.logprobs[i].top[1].token_id)],
                    expected.logprobs[i].top[1].value);
  }
  EXPECT_EQ(joined, choice["text"]);
  EXPECT_EQ(served.Complete({{"prompt", "x"}})["choices"][0]["logprobs"], nullptr);
  body["stream"] = true;
  Json together = Json::object();
  for (const Json& event : EventsOf(served.Post("/v1/completions", body).body)) {
    for (const auto& [name, list] : event["choices"][0]["logprobs"].items()) {
      for (const Json& value : list) together[name].push_back(value);
    }
  }
  EXPECT_EQ(together, logprobs);
}

TEST(ServiceFieldsTest, LogprobsOfChatsHaveTheirOwnForm) {
  Served served(TaleEngine(), Options());
  GenerationRequest alone = Alone("Hello", 6);
  alone.num_logprobs = 3;
  const GenerationResult expected = TaleEngine().Generate(alone);
  Json body = {{"messages", {{{"role", "user"}, {"content", "Hello"}}}},
               {"max_tokens", 6},
               {"temperature", 0},
               {"logprobs", true},
               {"top_logprobs", 3}};
  const Json content = served.Complete(body, "/v1/chat/completions")["choices"][0]["logprobs"]["content"];
  ASSERT_EQ(content.size(), expected.token_ids.size());
  std::string joined;
  for (size_t i = 0; i < content.size(); ++i) {
    EXPECT_FLOAT_EQ(content[i]["logprob"], expected.logprobs[i].chosen);
    EXPECT_EQ(content[i]["top_logprobs"].size(), 3U);
    EXPECT_EQ(content[i]["top_logprobs"][0]["token"], TaleEngine().TokenBytes(expected.logprobs[i].top[0].token_id));
    for (const Json& byte : content[i]["bytes"]) joined += static_cast<char>(byte.get<int>());
  }
  EXPECT_EQ(joined, expected.text);
  body["logprobs"] = false;
  EXPECT_THAT(served.Post("/v1/chat/completions", body).body, HasSubstr("'top_logprobs' needs 'logprobs'"));
  body["top_logprobs"] = 21;
  EXPECT_EQ(served.Post("/v1/chat/completions", body).status, 400);
}

TEST(ServiceFieldsTest, EchoWithNoTokensScoresThePrompt) {
  Served served(TaleEngine(), Options());
  GenerationRequest alone = Alone("Once upon a time there was a cat", 0);
  alone.num_logprobs = 0;
  alone.score_prompt = true;
  const GenerationResult expected = TaleEngine().Generate(alone);
  Json body = {
      {"prompt", "Once upon a time there was a cat"}, {"max_tokens", 0}, {"echo", true}, {"logprobs", 0}, {"n", 2}};
  const Json json = served.Complete(body);
  for (const Json& choice : json["choices"]) {
    EXPECT_EQ(choice["text"], "Once upon a time there was a cat");
    EXPECT_EQ(choice["finish_reason"], "length");
    const Json& values = choice["logprobs"]["token_logprobs"];
    ASSERT_EQ(values.size(), alone.prompt_ids.size());
    // The text has neither the token that begins it nor the space of the first word.
    const std::vector<int64_t> offsets = choice["logprobs"]["text_offset"];
    EXPECT_EQ(offsets[0], 0);
    EXPECT_EQ(offsets[1], 0);
    EXPECT_EQ(choice["text"].get<std::string>().substr(static_cast<size_t>(offsets.back())),
              choice["logprobs"]["tokens"].back());
    EXPECT_EQ(values[0], nullptr);
    for (size_t i = 1; i < values.size(); ++i) EXPECT_FLOAT_EQ(values[i], expected.prompt_logprobs[i - 1].chosen);
  }
  EXPECT_EQ(json["usage"]["completion_tokens"], 0);
  body["max_tokens"] = 3;
  EXPECT_EQ(served.Complete(body)["choices"][1]["logprobs"]["tokens"].size(), alone.prompt_ids.size() + 3);
  body["stream"] = true;
  EXPECT_THAT(served.Post("/v1/completions", body).body, HasSubstr("not streamed"));
}

TEST(ServiceFieldsTest, PredictionsAreCountedApartAndChangeNoText) {
  Served served(TaleEngine(), Options());
  const std::string text = TaleEngine().Generate(Alone("Once upon a time", 60)).text;
  Json body = {{"prompt", "Once upon a time"}, {"max_tokens", 60}, {"temperature", 0}};
  body["prediction"] = {{"type", "content"}, {"content", Json::array({{{"type", "text"}, {"text", text}}})}};
  const Json guessed = served.Complete(body);
  EXPECT_EQ(guessed["choices"][0]["text"], text);
  const Json& details = guessed["usage"]["completion_tokens_details"];
  EXPECT_GE(details["accepted_prediction_tokens"], 40);
  EXPECT_LT(guessed["speculation"]["steps"], 12);
  body["prediction"]["content"] = "the " + text.substr(text.size() / 2) + " zebra zebra";
  const Json half = served.Complete(body);
  EXPECT_EQ(half["choices"][0]["text"], text);
  EXPECT_GT(half["usage"]["completion_tokens_details"]["rejected_prediction_tokens"], 0);
  for (const Json& wrong : {Json(5), Json::object(), Json({{"type", "content"}}), Json({{"type", "x"}})}) {
    body["prediction"] = wrong;
    EXPECT_EQ(served.Post("/v1/completions", body).status, 400) << wrong;
  }
  body["prediction"] = {{"type", "content"}, {"content", std::string(100'000, 'x')}};
  EXPECT_THAT(served.Post("/v1/completions", body).body, HasSubstr("more than a reply"));
}

TEST(ServiceFieldsTest, LookupsHaveRulesAndLengths) {
  ServiceOptions options = Options();
  options.defaults.generation.lookup = {.max_tokens = 8, .max_match = 4};
  Served served(TaleEngine(), options);
  const std::string prompt = "a dog and a cat and a dog and a cow and a dog and a";
  const auto expect = [&](Json speculation, const LookupOptions& lookup) {
    GenerationRequest request = Alone(prompt, 40);
    request.use_drafter = true;
    request.tree = "chain";
    request.lookup = lookup;
    const GenerationResult result = TaleEngine().Generate(request);
    EXPECT_GT(result.num_lookup_steps, 0);
    speculation["tree"] = "chain";
    const Json json =
        served.Complete({{"prompt", prompt}, {"max_tokens", 40}, {"temperature", 0}, {"speculation", speculation}});
    EXPECT_EQ(json["choices"][0]["text"], result.text);
    EXPECT_EQ(json["speculation"]["drafted_tokens"], result.num_drafted) << speculation;
  };
  expect(Json::object(), {.max_tokens = 8, .max_match = 4});
  expect({{"lookup_rule", "first"}}, {.max_tokens = 8, .rule = LookupRule::kFirst, .max_match = 4});
  expect({{"lookup_rule", "first"}, {"lookup_max_match", 1}},
         {.max_tokens = 8, .rule = LookupRule::kFirst, .max_match = 1});
  expect({{"lookup", 5}, {"lookup_min", 2}}, {.max_tokens = 5, .min_match = 2, .max_match = 4});
  const Json refused = {{"prompt", "a"}, {"speculation", {{"lookup_min", 5}}}};
  const Json error = ParseJson(served.Post("/v1/completions", refused).body, "the reply")["error"];
  EXPECT_EQ(error["param"], "speculation.lookup_min");
  EXPECT_EQ(error["message"], "'speculation.lookup_min' is 5, expected 4 at most, as 'lookup_max_match' is");
}

TEST(ServiceFieldsTest, AServerWithoutADrafterRefusesTreesAndChains) {
  Served served(SlowEngine(), Options());
  for (const auto& [field, value] : {std::pair<std::string, Json>{"draft_depth", 3}, {"tree", "dynamic"}}) {
    const HttpReply reply = served.Post("/v1/completions", {{"prompt", "a"}, {"speculation", {{field, value}}}});
    EXPECT_EQ(reply.status, 400);
    const Json error = ParseJson(reply.body, "the reply")["error"];
    EXPECT_EQ(error["param"], "speculation." + field);
    EXPECT_THAT(error["message"].get<std::string>(), HasSubstr("the server's --draft"));
  }
}

TEST(ServiceFieldsTest, DraftsOfTheClientAreVerifiedAndCounted) {
  Served served(TaleEngine(), Options());
  std::vector<int32_t> draft = TaleEngine().Generate(Alone("Once upon a time", 10)).token_ids;
  draft[6] = 5;
  const Json json = served.Complete(
      {{"prompt", "Once upon a time"}, {"max_tokens", 30}, {"temperature", 0}, {"draft_token_ids", draft}});
  EXPECT_EQ(json["choices"][0]["text"], TaleEngine().Generate(Alone("Once upon a time", 30)).text);
  EXPECT_EQ(json["speculation"]["given_tokens"], 9) << "the first is the prompt's own";
  EXPECT_EQ(json["speculation"]["given_accepted_tokens"], 5);
  const Json wrong = {{"prompt", {"a", "b"}}, {"draft_token_ids", {5}}};
  EXPECT_THAT(served.Post("/v1/completions", wrong).body, HasSubstr("belongs to one prompt"));
  EXPECT_EQ(served.Post("/v1/completions", {{"prompt", "a"}, {"draft_token_ids", {999999}}}).status, 400);
}

TEST(ServiceFieldsTest, LimitsOnTokensAndTime) {
  ServiceOptions options = Options();
  options.max_tokens = 8;
  Served served(TaleEngine(), options);
  EXPECT_THAT(served.Post("/v1/completions", {{"prompt", "x"}, {"max_tokens", 9}}).body, HasSubstr("gives 8 at most"));
  const Json json = served.Complete({{"prompt", "Once"}, {"ignore_eos", true}});
  EXPECT_EQ(json["usage"]["completion_tokens"], 8);
}

TEST(ServiceFieldsTest, WhatIsNotReadyInTimeEndsWithAnErrorAndOthersGoOn) {
  ServiceOptions options = Options();
  options.request_timeout = std::chrono::seconds(1);
  Served served(SlowEngine(), options);
  const Json late = {{"prompt", "Once upon a time"}, {"max_tokens", 400}, {"ignore_eos", true}, {"n", 8}};
  const HttpReply reply = served.Post("/v1/completions", late);
  EXPECT_EQ(reply.status, 504);
  EXPECT_EQ(reply.json()["error"]["code"], "timeout");
  Json streamed = late;
  streamed["stream"] = true;
  EXPECT_THAT(served.Post("/v1/completions", streamed).body, HasSubstr("\"timeout\""));
  EXPECT_EQ(served.service().num_open(), 0);
  Served patient(SlowEngine(), Options());
  EXPECT_EQ(patient.Complete({{"prompt", "Once"}, {"max_tokens", 2}})["usage"]["completion_tokens"], 2);
}

TEST(ServiceFieldsTest, WhatStillRunsAtTheEndIsToldSo) {
  Served served(SlowEngine(), Options());
  Json body = {{"prompt", "Once upon a time"}, {"max_tokens", 400}, {"ignore_eos", true}, {"n", 8}};
  HttpClient whole(served.port()), stream(served.port());
  whole.Send(HttpClient::PostText("/v1/completions", base::DumpJson(body)));
  body["stream"] = true;
  stream.Send(HttpClient::PostText("/v1/completions", base::DumpJson(body)));
  for (int i = 0; i < 1000 && served.service().num_open() < 16; ++i) {
    std::this_thread::sleep_for(std::chrono::milliseconds(10));
  }
  served.service().EndAll();
  const HttpReply reply = whole.ReadReply();
  EXPECT_EQ(reply.status, 503);
  EXPECT_THAT(reply.body, HasSubstr("the server is ending"));
  const HttpReply events = stream.ReadReply();
  EXPECT_EQ(events.status, 200);
  EXPECT_THAT(events.body, HasSubstr("the server is ending"));
  EXPECT_EQ(served.service().num_open(), 0);
}

TEST(ServiceFieldsTest, WhatWouldBePassedOverIsRefused) {
  Served served(TaleEngine(), Options());
  Json body = {{"messages", {{{"role", "system"}, {"content", "Rhyme."}}, {{"role", "user"}, {"content", "Hello"}}}},
               {"max_tokens", 3}};
  const Json error = served.Post("/v1/chat/completions", body).json()["error"];
  EXPECT_EQ(error["param"], "messages");
  EXPECT_THAT(error["message"].get<std::string>(), HasSubstr("--template"));
  body["messages"].erase(0);
  body["max_completion_tokens"] = 3;
  EXPECT_EQ(served.Complete(body, "/v1/chat/completions")["usage"]["completion_tokens"], 3);
  body["max_completion_tokens"] = 4;
  EXPECT_EQ(served.Post("/v1/chat/completions", body).json()["error"]["param"], "max_completion_tokens");
}

TEST(ServiceFieldsTest, ASharedPromptIsComputedOnceAndOtherKeysShareNothing) {
  Engine engine([] {
    EngineOptions options;
    options.model = test::SourceDir() + "/models/tale-14m";
    options.weights = "w8a8";
    return options;
  }());
  ServiceOptions options = Options();
  const test::TempDir dir;
  options.keys = ApiKeys::Read(dir.Write("keys", "first-0123456789 a\nsecond-0123456789 b\n"));
  Served served(engine, options);
  std::vector<int32_t> prompt;
  for (int32_t i = 0; i < 400; ++i) prompt.push_back(10 + i);
  const auto ask = [&](const std::string& key, int32_t last) {
    std::vector<int32_t> ids = prompt;
    ids.push_back(last);
    const std::string body =
        base::DumpJson({{"prompt", ids}, {"max_tokens", 4}, {"temperature", 0}, {"return_token_ids", true}});
    const HttpReply reply =
        HttpClient(served.port()).PostRaw("/v1/completions", body, "Authorization: Bearer " + key + "\r\n");
    EXPECT_EQ(reply.status, 200) << reply.body;
    GenerationRequest alone;
    alone.prompt_ids = ids;
    alone.stop.max_tokens = 4;
    EXPECT_EQ(reply.json()["choices"][0]["token_ids"], TaleEngine().Generate(alone).token_ids);
  };
  std::vector<std::thread> threads;
  for (int32_t i = 0; i < 16; ++i) threads.emplace_back([&, i] { ask("first-0123456789", 500 + i); });
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(engine.stats().num_prompt_rows, 401 + 15 * (401 - 384)) << "384 of them were computed once";
  ask("second-0123456789", 700);
  EXPECT_EQ(engine.stats().num_prompt_rows, 401 + 15 * (401 - 384) + 401);
  ask("first-0123456789", 700);
  EXPECT_EQ(engine.stats().num_prompt_rows, 401 + 16 * (401 - 384) + 401);
  const std::string metrics =
      HttpClient(served.port()).Get("/metrics", "Authorization: Bearer first-0123456789\r\n").body;
  EXPECT_THAT(metrics, HasSubstr("hydrant_prompt_tokens_computed_total 1074\n"));
  EXPECT_THAT(metrics, HasSubstr("hydrant_sequences_running 0\n"));
  EXPECT_THAT(metrics, HasSubstr("hydrant_kv_blocks{state=\"used\"} 0\n"));
}

}  // namespace
}  // namespace hydrant::server::service_fields_test
