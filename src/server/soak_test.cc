// SPDX-License-Identifier: Apache-2.0
// Clients of every kind, well-behaved and not: their replies stay right, and memory stays flat. It uses little of the
// machine, so that others can run beside it. Half a minute; .ci/run takes five (HYDRANT_SOAK_SECONDS).
#include <gtest/gtest.h>
#include <unistd.h>

#include <atomic>
#include <chrono>
#include <cstdlib>
#include <fstream>
#include <random>
#include <string>
#include <thread>
#include <vector>

#include "base/json.h"
#include "tests/served.h"

namespace hydrant::server::soak_test {
namespace {

using base::Json;
using test::HttpClient;
using test::HttpReply;
using Clock = std::chrono::steady_clock;
using namespace std::chrono_literals;

constexpr int kClients = 6;
constexpr int kRequests = 8;  // different ones
constexpr int64_t kMostGrowth = 8 << 20;

std::chrono::seconds Duration() {
  const char* const seconds = std::getenv("HYDRANT_SOAK_SECONDS");
  return std::chrono::seconds(seconds == nullptr ? 30 : std::atoi(seconds));
}

int64_t ResidentBytes() {
  std::ifstream file("/proc/self/statm");
  int64_t pages = 0, resident = 0;
  file >> pages >> resident;
  return resident * sysconf(_SC_PAGESIZE);
}

EngineOptions TinyWithHeads() {
  EngineOptions options;
  options.model = test::SourceDir() + "/tests/golden/base_mha";
  options.draft = test::SourceDir() + "/tests/golden/hydra/prefix_mlp_k2_l1";
  options.load_tokenizer = false;
  options.threads = 1;
  options.kv_memory = uint64_t{8} << 20U;
  return options;
}

class Soak {
 public:
  Soak() : engine_(TinyWithHeads()), served_(engine_, {.model_name = "m", .template_name = "none"}, {.read = 300ms}) {
    for (int i = 0; i < kRequests; ++i) {
      GenerationRequest request;
      for (int k = 0; k < 4 + i * 9; ++k) request.prompt_ids.push_back(3 + (k * 5 + i) % 300);
      request.stop = {.max_tokens = 10 + i * 3, .ignore_eos = true, .stop = {}};
      request.sampling.temperature = i % 2 == 0 ? 0.0F : 0.9F;
      request.sampling.seed = static_cast<uint64_t>(i);
      request.use_drafter = false;
      expected_.push_back(engine_.Generate(request).token_ids);
      bodies_.push_back({{"prompt", request.prompt_ids},
                         {"max_tokens", request.stop.max_tokens},
                         {"ignore_eos", true},
                         {"temperature", request.sampling.temperature},
                         {"seed", i},
                         {"return_token_ids", true}});
    }
  }

  void Client(int index) {
    std::mt19937 random(static_cast<uint32_t>(index));
    HttpClient kept(served_.port());
    while (!ends_) {
      const size_t which = random() % kRequests;
      switch (random() % 8) {
        case 0: CheckStream(which); break;
        case 1: GoAway(which); break;
        case 2: Misbehave(random); break;
        case 3: HttpClient(served_.port()).Get("/metrics"); break;
        default: CheckWhole(kept, which); break;
      }
      ++num_rounds_;
      std::this_thread::sleep_for(80ms);
    }
  }
  void End() { ends_ = true; }
  int64_t num_rounds() const { return num_rounds_; }
  int32_t num_open() { return served_.service().num_open(); }

 private:
  void CheckWhole(HttpClient& client, size_t which) {
    const HttpReply reply = client.Post("/v1/completions", bodies_[which]);
    ASSERT_EQ(reply.status, 200) << reply.body;
    EXPECT_EQ(reply.json()["choices"][0]["token_ids"], expected_[which]);
  }
  void CheckStream(size_t which) {
    Json body = bodies_[which];
    body["stream"] = true;
    std::vector<int32_t> ids;
    for (const Json& event : test::EventsOf(served_.Post("/v1/completions", body).body)) {
      const Json& choice = event["choices"][0];
      if (!choice.contains("token_ids")) continue;
      for (const Json& id : choice["token_ids"]) ids.push_back(id);
    }
    EXPECT_EQ(ids, expected_[which]);
  }
  void GoAway(size_t which) {
    Json body = bodies_[which];
    body["max_tokens"] = 200;
    body["stream"] = true;
    HttpClient client(served_.port());
    client.Send(HttpClient::PostText("/v1/completions", base::DumpJson(body)));
    static_cast<void>(client.Until("data: "));
    client.Reset();
  }
  void Misbehave(std::mt19937& random) {
    HttpClient client(served_.port());
    switch (random() % 4) {
      case 0: client.Send("POST /v1/completions HTTP/1.1\r\nHost: t\r\nContent-Length: 50\r\n\r\n{"); break;
      case 1: client.Send(std::string(3000, static_cast<char>(random()))); break;
      case 2: client.Send(HttpClient::PostText("/v1/completions", std::string(5000, '['))); break;
      default: client.Send(HttpClient::PostText("/v1/completions", R"({"prompt":[1,2],"n":129})")); break;
    }
    const HttpReply reply = client.ReadReply();
    EXPECT_GE(reply.status, 400);
    EXPECT_LT(reply.status, 500);
  }

  Engine engine_;
  test::Served served_;
  std::vector<Json> bodies_;
  std::vector<std::vector<int32_t>> expected_;
  std::atomic<bool> ends_ = false;
  std::atomic<int64_t> num_rounds_ = 0;
};

TEST(SoakTest, MemoryStaysFlat) {
  Soak soak;
  std::vector<std::thread> clients;
  for (int i = 0; i < kClients; ++i) clients.emplace_back([&soak, i] { soak.Client(i); });
  const auto begin = Clock::now();
  int64_t early = 0, late = 0;  // most of the second fifth, and of the last one
  while (Clock::now() - begin < Duration() && !testing::Test::HasFailure()) {
    std::this_thread::sleep_for(200ms);
    const auto share = (Clock::now() - begin) * 5 / Duration();
    if (share == 1) early = std::max(early, ResidentBytes());
    if (share == 4) late = std::max(late, ResidentBytes());
  }
  soak.End();
  for (std::thread& client : clients) client.join();
  std::printf("%ld rounds, %ld and %ld bytes\n", soak.num_rounds(), early, late);
  EXPECT_LT(late - early, kMostGrowth);
  EXPECT_GT(soak.num_rounds(), 100);
  for (int i = 0; i < 500 && soak.num_open() > 0; ++i) std::this_thread::sleep_for(10ms);
  EXPECT_EQ(soak.num_open(), 0);
}

}  // namespace
}  // namespace hydrant::server::soak_test
