// SPDX-License-Identifier: Apache-2.0
// Sixty-four clients at once, of whom some go away, with every kind of drafter and every way to draft: each of the
// others gets what plain decoding gives it alone.
#include <gtest/gtest.h>

#include <algorithm>
#include <chrono>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <thread>
#include <vector>

#include "base/json.h"
#include "tests/drafting_kinds.h"
#include "tests/served.h"

namespace hydrant::server::mixed_requests_test {
namespace {

using base::Json;
using test::DraftingKind;
using test::HttpClient;

constexpr int kClients = 64;

// Beside the small models: floats become 8 bits, and stop strings need its tokenizer.
const DraftingKind& Tale() {
  static const DraftingKind tale{"Tale",
                                 {{.golden = "../../models/tale-14m-hydra-pp", .base = "../../models/tale-14m"}}};
  return tale;
}

EngineOptions ServedOptionsOf(const DraftingKind& kind) {
  EngineOptions options = OptionsOf(kind);
  options.kv_memory = uint64_t{6} << 20U;  // so little that some are preempted or wait
  if (kind.name != Tale().name) return options;
  options.weights = "w8a8";
  options.load_tokenizer = true;
  return options;
}

// A way to draft as HTTP has it.
Json SpeculationOf(const GenerationRequest& way) {
  Json json = {{"enabled", way.use_drafter}, {"draft_p_min", way.draft_p_min}, {"max_nodes", way.max_nodes}};
  if (!way.tree.empty()) json["tree"] = way.tree;
  if (way.draft_depth > 0) json["draft_depth"] = way.draft_depth;
  if (way.tree == "dynamic") {
    json.update(
        {{"draft_nodes", way.dynamic.nodes}, {"draft_depth", way.dynamic.depth}, {"draft_width", way.dynamic.width}});
  }
  if (way.tree == "beam") json.update({{"beam_width", way.beam.width}, {"beam_length", way.beam.length}});
  if (way.lookup.max_tokens > 0) {
    json.update({{"lookup", way.lookup.max_tokens}, {"lookup_rule", NameOf(way.lookup.rule)}});
    if (way.lookup.min_match > 0) json["lookup_min"] = way.lookup.min_match;
  }
  return json;
}

class MixedRequests : public testing::TestWithParam<DraftingKind> {
 protected:
  void SetUp() override {
    if (!IsThere(GetParam())) GTEST_SKIP() << "skipped: the reference cases are not beside the checkout";
    engine_.emplace(ServedOptionsOf(GetParam()));
    ways_ = WaysToDraft(GetParam(), engine_->info());
  }

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
    if (engine_->info().has_tokenizer && i % 6 == 1) request.stop.stop = {"the", "ou"};
    return request;
  }
  Json BodyOf(int i) const {
    const GenerationRequest request = RequestOf(i);
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
            {"speculation", SpeculationOf(ways_[static_cast<size_t>(i) % ways_.size()])}};
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

  std::optional<Engine> engine_;
  std::vector<GenerationRequest> ways_;
};

TEST_P(MixedRequests, GiveTheTextsOfOneByOne) {
  ServiceOptions options{.model_name = "m", .template_name = "none"};
  test::Served served(*engine_, options);
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
      const GenerationResult expected = engine_->Generate(alone);
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
  test::Served served(*engine_, {.model_name = "m", .template_name = "none"});
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
    EXPECT_EQ(ids[static_cast<size_t>(i)], engine_->Generate(RequestOf(i)).token_ids) << i;
  }
  EXPECT_EQ(served.http().counts().open, 1000);
  EXPECT_EQ(idle[500]->Get("/health").status, 200);
}

constexpr auto kNameOfKind = [](const auto& kind) { return std::string(kind.param.name); };

// Heads, a network that grows trees, and both: what the sanitizers see. The others are labelled slow.
std::vector<test::DraftingKind> KindsForSanitizers(bool wanted) {
  std::vector<test::DraftingKind> kinds = test::DraftingKinds();
  std::erase_if(kinds, [wanted](const test::DraftingKind& kind) {
    const std::string_view name = kind.name;
    return wanted !=
           (name == "Medusa" || name == "HydraPlusPlus" || name == "Eagle3" || name == "DraftModelAndHydraPlusPlus");
  });
  return kinds;
}
INSTANTIATE_TEST_SUITE_P(Kinds, MixedRequests, testing::ValuesIn(KindsForSanitizers(true)), kNameOfKind);
INSTANTIATE_TEST_SUITE_P(MoreKinds, MixedRequests, testing::ValuesIn(KindsForSanitizers(false)), kNameOfKind);
INSTANTIATE_TEST_SUITE_P(Embedded, MixedRequests, testing::Values(Tale()), kNameOfKind);

}  // namespace
}  // namespace hydrant::server::mixed_requests_test
