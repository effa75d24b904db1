// SPDX-License-Identifier: Apache-2.0
// Sixty-four clients at once, of whom some go away: each of the others gets what plain decoding gives it alone.
#include <gtest/gtest.h>

#include <algorithm>
#include <chrono>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "base/json.h"
#include "tests/head_folders.h"
#include "tests/served.h"

namespace hydrant::server::mixed_requests_test {
namespace {

using base::Json;
using test::HttpClient;

constexpr int kClients = 64;

struct Way {
  const char* name;
  // Of the golden model; empty: plain; "eagle3", "redrafter", "mlp_speculator": random heads; "tale": the embedded
  // model with its heads.
  const char* draft;
  int32_t lookup;
  bool is_dynamic = false;  // every fourth request asks for a dynamic tree, every eighth for beams
};

std::string NameOfWay(const testing::TestParamInfo<Way>& way) { return way.param.name; }

EngineOptions OptionsOf(const Way& way) {
  EngineOptions options;
  options.kv_memory = uint64_t{6} << 20U;  // so little that some are preempted or wait
  if (way.draft == std::string("tale")) {
    options.model = test::SourceDir() + "/models/tale-14m";
    options.draft = test::SourceDir() + "/models/tale-14m-hydra-pp";
    options.weights = "w8a8";
    return options;
  }
  options.model = test::SourceDir() + "/tests/golden/" + std::string("base_mha");
  if (way.draft == std::string("eagle3")) {
    static const test::TempDir dir;
    options.draft = test::EagleFolder(/*is_third=*/true).Write(dir);
  } else if (way.draft == std::string("redrafter")) {
    static const test::TempDir dir;
    options.draft = test::RedrafterFolder(/*is_recurrent=*/true).Write(dir);
  } else if (way.draft == std::string("mlp_speculator")) {
    static const test::TempDir dir;
    options.draft = test::MlpSpeculatorFolder(/*is_tied=*/true, 4).Write(dir);
  } else if (*way.draft != 0) {
    options.draft = test::SourceDir() + "/tests/golden/" + std::string(way.draft);
  }
  options.load_tokenizer = false;
  return options;
}

class MixedRequests : public testing::TestWithParam<Way> {
 protected:
  // Client i's request, as the engine and as HTTP has it.
  GenerationRequest RequestOf(int i) const {
    GenerationRequest request;
    for (int k = 0; k < 5 + i % 7 * 12; ++k) request.prompt_ids.push_back(3 + (k * 7 + i % 3) % 400);
    request.stop.max_tokens = 8 + i % 40;
    request.stop.ignore_eos = i % 5 != 0;
    request.use_drafter = false;
    request.sampling.temperature = i % 3 == 0 ? 0.0F : 0.8F;
    request.sampling.top_p = i % 4 == 0 ? 0.9F : 1.0F;
    request.sampling.repetition_penalty = i % 9 == 0 ? 1.2F : 1.0F;
    request.sampling.seed = static_cast<uint64_t>(i);
    if (engine_.info().has_tokenizer && i % 6 == 1) request.stop.stop = {"the", "ou"};
    return request;
  }
  Json BodyOf(int i) const {
    const GenerationRequest request = RequestOf(i);
    Json speculation = {{"enabled", i % 7 != 2}, {"lookup", GetParam().lookup}, {"lookup_min", 2}};
    if (GetParam().is_dynamic && i % 4 == 1) {
      speculation.update({{"tree", "dynamic"}, {"draft_nodes", 9}, {"draft_depth", 3}, {"draft_width", 3 + i % 3}});
    }
    if (GetParam().is_dynamic && i % 8 == 3) speculation.update({{"beam_width", 2 + i % 4}, {"beam_length", 4}});
    return {{"prompt", request.prompt_ids},
            {"max_tokens", request.stop.max_tokens},
            {"ignore_eos", request.stop.ignore_eos},
            {"temperature", request.sampling.temperature},
            {"top_p", request.sampling.top_p},
            {"repetition_penalty", request.sampling.repetition_penalty},
            {"seed", i},
            {"stop", request.stop.stop},
            {"n", i % 10 == 3 ? 2 : 1},
            {"return_token_ids", true},
            {"speculation", speculation}};
  }

  void GoAway(uint16_t port, int i) const {
    HttpClient client(port);
    Json body = BodyOf(i);
    body["max_tokens"] = 200;
    body["ignore_eos"] = true;
    body["stream"] = i % 2 == 0;
    client.Send(HttpClient::PostText("/v1/completions", base::DumpJson(body)));
    std::this_thread::sleep_for(std::chrono::milliseconds(i));
  }

  Engine engine_{OptionsOf(GetParam())};
};

TEST_P(MixedRequests, GiveTheTextsOfOneByOne) {
  ServiceOptions options{.model_name = "m", .template_name = "none"};
  test::Served served(engine_, options);
  std::vector<Json> replies(kClients);
  std::vector<std::thread> threads;
  for (int i = 0; i < kClients; ++i) {
    threads.emplace_back([&, i] {
      if (i % 8 == 7) return GoAway(served.port(), i);
      replies[static_cast<size_t>(i)] = served.Complete(BodyOf(i));
    });
  }
  for (std::thread& thread : threads) thread.join();
  for (int i = 0; i < kClients; ++i) {
    const Json& reply = replies[static_cast<size_t>(i)];
    if (i % 8 == 7) continue;
    GenerationRequest alone = RequestOf(i);
    for (const Json& choice : reply["choices"]) {
      const GenerationResult expected = engine_.Generate(alone);
      EXPECT_EQ(choice["token_ids"], expected.token_ids) << i;
      EXPECT_EQ(choice["text"], expected.text) << i;
      alone.sampling.seed = SeedOfChoice(alone.sampling.seed, 1);
    }
  }
  for (int i = 0; i < 1000 && served.service().num_open() > 0; ++i) {
    std::this_thread::sleep_for(std::chrono::milliseconds(10));
  }
  EXPECT_EQ(served.service().num_open(), 0) << "requests whose clients went away are cancelled";
}

TEST_P(MixedRequests, AreStreamedBesideAThousandIdleConnections) {
  test::Served served(engine_, {.model_name = "m", .template_name = "none"});
  std::vector<std::unique_ptr<HttpClient>> idle;
  for (int i = 0; i < 1000; ++i) idle.push_back(std::make_unique<HttpClient>(served.port()));
  std::vector<std::vector<int32_t>> ids(kClients);
  std::vector<std::thread> threads;
  for (int i = 0; i < kClients; ++i) {
    threads.emplace_back([&, i] {
      Json body = BodyOf(i);
      body["stream"] = true;
      body["n"] = 1;
      for (const Json& event : test::EventsOf(served.Post("/v1/completions", body).body)) {
        const Json& choice = event["choices"][0];
        if (!choice.contains("token_ids")) continue;
        for (const Json& id : choice["token_ids"]) ids[static_cast<size_t>(i)].push_back(id);
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  for (int i = 0; i < kClients; ++i) {
    EXPECT_EQ(ids[static_cast<size_t>(i)], engine_.Generate(RequestOf(i)).token_ids) << i;
  }
  EXPECT_EQ(served.http().counts().open, 1000);
  EXPECT_EQ(idle[500]->Get("/health").status, 200);
}

INSTANTIATE_TEST_SUITE_P(Ways, MixedRequests,
                         testing::Values(Way{"Plain", "", 0}, Way{"Medusa", "medusa/c_v2_k4_l1", 0},
                                         Way{"Hydra", "hydra/mlp_k3_l2", 0},
                                         Way{"HydraPlusPlus", "hydra/prefix_mlp_k2_l1", 0}, Way{"Lookup", "", 6},
                                         Way{"Eagle", "eagle3", 0, true}, Way{"Redrafter", "redrafter", 0, true},
                                         Way{"MlpSpeculator", "mlp_speculator", 0, true},
                                         Way{"DraftModel", "base_mha", 0, true},
                                         Way{"TaleWithHeadsAndLookup", "tale", 6}),
                         NameOfWay);

}  // namespace
}  // namespace hydrant::server::mixed_requests_test
