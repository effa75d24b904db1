// SPDX-License-Identifier: Apache-2.0
// The load generator against servers over real sockets, with all that goes wrong there.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <memory>
#include <mutex>
#include <set>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "base/json.h"
#include "hydrant/error.h"
#include "server/http/http_server.h"
#include "traffic/figures.h"
#include "traffic/load.h"

namespace hydrant::traffic::server_test {
namespace {

using namespace std::chrono_literals;
using base::Json;
using server::Exchange;
using server::HttpRequest;
using testing::ElementsAre;
using testing::HasSubstr;
using testing::Pair;

std::string Event(const Json& json) { return "data: " + base::DumpJson(json) + "\n\n"; }
std::string TextEvent(const std::string& text) {
  return Event({{"choices", Json::array({{{"delta", {{"content", text}}}, {"finish_reason", nullptr}}})}});
}
std::string LastEvents(int tokens) {
  return Event({{"choices", Json::array({{{"delta", Json::object()}, {"finish_reason", "stop"}}})}}) +
         Event({{"choices", Json::array()}, {"usage", {{"prompt_tokens", 3}, {"completion_tokens", tokens}}}}) +
         "data: [DONE]\n\n";
}

// Answers by the text of the last message: "slow" takes 300 ms, "429" and "cut" fail, anything else is echoed.
class TrafficTest : public testing::Test {
 protected:
  void SetUp() override {
    http_ = std::make_unique<server::HttpServer>(
        server::HttpOptions{.port = 0},
        [this](const HttpRequest& request, const std::shared_ptr<Exchange>& exchange) { Handle(request, exchange); });
    http_->Start();
    server_.url = ParseServerUrl("http://127.0.0.1:" + std::to_string(http_->port()));
  }
  void TearDown() override {
    for (std::thread& thread : threads_) thread.join();
    http_->Stop();
  }

  void Handle(const HttpRequest& request, const std::shared_ptr<Exchange>& exchange) {
    if (request.path == "/v1/models") {
      if (!key_.empty() && request.Header("authorization") != "Bearer " + key_) {
        return exchange->Send({.status = 401, .body = R"({"error":{"message":"no key"}})"});
      }
      return exchange->Send({.body = models_});
    }
    const Json body = base::ParseJson(request.body, "the request");
    const std::string text = body["messages"].back()["content"];
    const int open = ++open_;
    {
      const std::lock_guard lock(mutex_);
      most_open_ = std::max(most_open_, open);
      bodies_.push_back(body);
      // What a handler writes is sent by its own thread, so the pauses are another one's.
      threads_.emplace_back([this, text, body, exchange] { Answer(text, body, *exchange); });
    }
  }
  void Answer(const std::string& text, const Json& body, Exchange& exchange) {
    struct Open {
      std::atomic<int>* count;
      void Close() {
        if (count != nullptr) --*std::exchange(count, nullptr);
      }
      ~Open() { Close(); }
    } open{&open_};
    if (text == "429") return exchange.Send({.status = 429, .body = R"({"error":{"message":"too many"}})"});
    if (text == "html") return exchange.Send({.content_type = "text/html", .body = "<html>"});
    exchange.Begin({.content_type = "text/event-stream"});
    if (text == "slow") std::this_thread::sleep_for(300ms);
    exchange.Write(TextEvent(text + " of " + std::to_string(body["messages"].size())));
    if (text == "cut") return;  // the exchange's end without its own: the connection ends in the middle
    if (text == "short") return exchange.End();  // no [DONE]
    if (text == "bad") exchange.Write("data: {\n\n");
    if (text == "differs" && body.contains("speculation")) exchange.Write(TextEvent("!"));
    std::this_thread::sleep_for(20ms);
    exchange.Write(TextEvent("."));
    open.Close();  // who has the last event may ask again at once
    exchange.Write(LastEvents(5));
    exchange.End();
  }

  LoadResult Run(const std::string& suite, const LoadPlan& plan) {
    return RunLoad(server_, ParseSuite(suite, "suite"), settings_, plan, [](const LoadProgress&) { return true; });
  }

  Server server_;
  RequestSettings settings_{.model = "m"};
  std::string models_ = R"({"object":"list","data":[{"id":"the-model"}]})", key_;
  std::unique_ptr<server::HttpServer> http_;
  std::mutex mutex_;
  std::atomic<int> open_ = 0;
  int most_open_ = 0;
  std::vector<Json> bodies_;
  std::vector<std::thread> threads_;
};

TEST_F(TrafficTest, RepliesHaveTextTokensAndTimes) {
  const LoadResult result = Run("hello\nslow\n", {.concurrency = 1});
  ASSERT_EQ(result.replies.size(), 2U);
  const Reply& first = result.replies[0];
  EXPECT_EQ(first.failure, Failure::kNone) << first.problem;
  EXPECT_EQ(first.status, 200);
  EXPECT_EQ(first.text, "hello of 1.");
  EXPECT_EQ(first.num_tokens, 5);
  EXPECT_EQ(first.num_prompt_tokens, 3);
  EXPECT_EQ(first.num_events, 2);
  ASSERT_EQ(first.gaps.size(), 1U);
  EXPECT_GT(first.gaps[0], 0.015);
  const Reply& slow = result.replies[1];
  EXPECT_GT(slow.first - slow.start, 0.29);
  EXPECT_LT(first.first - first.start, 0.29);
  EXPECT_LE(slow.first, slow.last);
  EXPECT_LE(slow.last, slow.end);
  EXPECT_DOUBLE_EQ(result.seconds, slow.end);
  EXPECT_EQ(http_->counts().accepted, 1) << "one connection for all";
}

TEST_F(TrafficTest, WhatFailsIsCountedByKindAndTheOthersGoOn) {
  server_.timeout = 0.2;
  const std::string suite = "429\ncut\nfine\nshort\nbad\nhtml\nslow\nfine\n";
  const std::vector<LoadResult> runs = {Run(suite, {.concurrency = 2})};
  const Figures figures = FiguresOf(runs);
  EXPECT_EQ(figures.num_replies, 2);
  EXPECT_THAT(figures.errors, ElementsAre(Pair("cut stream", 3), Pair("not the API's form", 1), Pair("status 429", 1),
                                          Pair("timeout", 1)));
  EXPECT_THAT(figures.first_problem, testing::AnyOf("status 429: too many", HasSubstr("cut stream")));
}

TEST_F(TrafficTest, AClosedLoopKeepsSoManyOpen) {
  const LoadResult result = Run("slow\n", {.concurrency = 3, .num_prompts = 7});
  EXPECT_EQ(result.replies.size(), 7U);
  EXPECT_EQ(most_open_, 3);
  EXPECT_GT(result.seconds, 0.85);
  std::set<int> seeds;
  for (const Json& body : bodies_) seeds.insert(body["seed"].get<int>());
  EXPECT_EQ(seeds.size(), 7U);
}

TEST_F(TrafficTest, NoConversationBeginsAfterTheTime) {
  const LoadResult result = Run("fine\n", {.concurrency = 1, .seconds = 0.3});
  ASSERT_GE(result.replies.size(), 2U);
  EXPECT_LE(result.replies.size(), 15U) << "20 ms each";
  for (const Reply& reply : result.replies) EXPECT_LT(reply.start, 0.3);
}

TEST_F(TrafficTest, AnOpenLoopWaitsForNobodyAndCountsWhatItDrops) {
  const LoadResult free = Run("slow\n", {.rate = 100, .num_prompts = 4, .seed = 1});
  ASSERT_EQ(free.replies.size(), 4U);
  EXPECT_EQ(free.num_dropped, 0);
  EXPECT_LT(free.seconds, 0.8) << "one after the other they would take 1.2 s";
  const LoadResult capped = Run("slow\n", {.rate = 100, .max_open = 2, .num_prompts = 12, .seed = 1});
  EXPECT_EQ(static_cast<int64_t>(capped.replies.size()) + capped.num_dropped, 12);
  EXPECT_GE(capped.num_dropped, 8);
}

TEST_F(TrafficTest, TurnsFollowOneAnotherWithTheRepliesBetween) {
  const LoadResult result = Run(R"({"turns": ["a", "b"]})", {.concurrency = 1});
  ASSERT_EQ(result.replies.size(), 2U);
  EXPECT_EQ(result.replies[1].turn, 1);
  EXPECT_EQ(result.replies[1].text, "b of 3.");
  EXPECT_EQ(bodies_[1]["messages"][1], (Json{{"role", "assistant"}, {"content", "a of 1."}}));
}

TEST_F(TrafficTest, PlainDecodingIsComparedTextByText) {
  TextComparison texts;
  const std::string suite = "same\ndiffers\n";
  texts.Add("with drafts", Run(suite, {.concurrency = 1}));
  settings_.is_plain = true;
  texts.Add("plain", Run(suite, {.concurrency = 2}));
  EXPECT_EQ(texts.num_compared(), 2);
  EXPECT_EQ(texts.num_different(), 1);
  EXPECT_THAT(texts.first(), HasSubstr("prompt 2, turn 1: plain differs from with drafts"));
}

TEST_F(TrafficTest, StoppingLeavesOutWhatIsOpen) {
  int ticks = 0;
  const LoadResult result = RunLoad(server_, ParseSuite("fine\nslow\n", "suite"), settings_, {.concurrency = 1},
                                    [&ticks](const LoadProgress& progress) {
                                      EXPECT_LE(progress.share, 1);
                                      return ++ticks < 3;
                                    });
  EXPECT_TRUE(result.is_stopped);
  EXPECT_EQ(result.replies.size(), 1U);
}

TEST_F(TrafficTest, TheModelsNameIsAskedFor) {
  EXPECT_EQ(FindModel(server_), "the-model");
  const auto expect_error = [this](const std::string& part) {
    try {
      FindModel(server_);
      ADD_FAILURE() << part;
    } catch (const UserError& error) {
      EXPECT_THAT(std::string(error.what()) + error.hint(), HasSubstr(part));
    }
  };
  models_ = R"({"data":[]})";
  expect_error("expected one model at least");
  models_ = "no JSON";
  expect_error("/v1/models: is not valid JSON");
  models_ = R"({"data":[{"id":"the-model"}]})";
  key_ = "secret";
  expect_error("status 401: no key");
  server_.api_key = key_;
  EXPECT_EQ(FindModel(server_), "the-model");
  http_->Stop();
  expect_error("nobody answers there: Connection refused");
  const LoadResult result = Run("fine\n", {.concurrency = 1});
  EXPECT_EQ(result.replies[0].failure, Failure::kConnect);
  EXPECT_EQ(result.replies[0].status, 0);
}

// A server closes connections that wait; the next request takes a new one and knows nothing of it.
TEST_F(TrafficTest, AClosedConnectionIsOpenedAgain) {
  http_->Stop();
  http_ = std::make_unique<server::HttpServer>(
      server::HttpOptions{.port = 0, .idle = 50ms},
      [this](const HttpRequest& request, const std::shared_ptr<Exchange>& exchange) { Handle(request, exchange); });
  http_->Start();
  server_.url.port = std::to_string(http_->port());
  const LoadResult result = Run("fine\n", {.rate = 4, .num_prompts = 4, .seed = 3});
  ASSERT_EQ(result.replies.size(), 4U);
  for (const Reply& reply : result.replies) EXPECT_EQ(reply.failure, Failure::kNone) << reply.problem;
  EXPECT_GT(http_->counts().accepted, 1);
}

}  // namespace
}  // namespace hydrant::traffic::server_test
