// SPDX-License-Identifier: Apache-2.0
// Requests that are submitted to one engine and what is heard of them, for tests of its schedule.
#pragma once

#include <gtest/gtest.h>

#include <cstdint>
#include <optional>
#include <random>
#include <utility>
#include <vector>

#include "tests/lossless_util.h"

namespace hydrant::test {

using Tokens = std::vector<int32_t>;

inline EngineOptions Options() {
  EngineOptions options;
  options.model = Golden("base_mha");
  options.draft = Golden("hydra/prefix_mlp_k2_l1");
  options.tree = "[[0],[1],[0,0]]";
  options.load_tokenizer = false;
  return options;
}

// Bytes of so many blocks of keys and values.
inline uint64_t BytesOfBlocks(const EngineOptions& options, int32_t blocks) {
  const EngineInfo info = Engine(options).info();
  return info.kv_memory / static_cast<uint64_t>(info.kv_positions / kernels::kBlockPositions) *
         static_cast<uint64_t>(blocks);
}

// A text of `length` tokens that begins like all others of its family.
inline Tokens PromptOf(int32_t length, int32_t family = 0) {
  Tokens prompt;
  std::mt19937 random(static_cast<uint32_t>(family));
  for (int32_t i = 0; i < length; ++i) prompt.push_back(3 + static_cast<int32_t>(random() % 500));
  return prompt;
}

inline GenerationRequest RequestOf(Tokens prompt, int32_t max_tokens, float temperature = 0) {
  GenerationRequest request;
  request.prompt_ids = std::move(prompt);
  request.stop = {.max_tokens = max_tokens, .ignore_eos = true, .stop = {}};
  request.sampling.temperature = temperature;
  request.sampling.seed = 7;
  return request;
}

// What an engine gives that has room for everything, alone.
inline Tokens Alone(const GenerationRequest& request) {
  static Engine engine(Options());
  GenerationRequest alone = request;
  alone.cache_scope.clear();
  return engine.Generate(alone).token_ids;
}

// A submitted request and what was heard of it.
struct Heard {
  GenerationRequest request;
  RequestId id = 0;
  Tokens emitted = {};
  int num_calls = 0;
  std::optional<GenerationResult> result = {};
};

inline void Submit(Engine& engine, Heard& heard) {
  heard.id = engine.Submit(heard.request, {.on_emit =
                                               [&heard](const Emission& emission) {
                                                 ++heard.num_calls;
                                                 heard.emitted.insert(heard.emitted.end(), emission.token_ids.begin(),
                                                                      emission.token_ids.end());
                                                 return true;
                                               },
                                           .on_done =
                                               [&heard](GenerationResult result) {
                                                 EXPECT_FALSE(heard.result) << "done twice";
                                                 heard.result = std::move(result);
                                               }});
}

}  // namespace hydrant::test
