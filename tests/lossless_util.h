// SPDX-License-Identifier: Apache-2.0
// Decodes with draft heads and without, and expects the same tokens: what the tests of losslessness share.
#pragma once

#include <gtest/gtest.h>

#include <algorithm>
#include <cstdint>
#include <numeric>
#include <random>
#include <string>
#include <utility>
#include <vector>

#include "base/json.h"
#include "hydrant/engine.h"
#include "kernels/kernels.h"
#include "tests/test_data.h"
#include "tree/parse.h"
#include "tree/random_tree.h"

namespace hydrant::test {

// What base and heads are kept in; "auto": as they are in the committed folders, the stored floats.
struct Formats {
  std::string base = "auto";
  std::string heads = "auto";
};

inline std::string NameOf(const Formats& formats) { return formats.base + " with heads in " + formats.heads; }

// Every weight format, and heads that keep more bits than their base.
inline std::vector<Formats> EveryFormat() {
  std::vector<Formats> all;
  for (const char* name : {"f32", "bf16", "w8a8", "w4a8", "w8a16", "w4a16"}) all.push_back({name, name});
  all.push_back({"w4a8", "w8a8"});
  return all;
}

inline bool IsPacked(const Formats& formats) { return formats.base[0] == 'w'; }

struct Setting {
  const char* name;
  SamplingOptions sampling;
};

inline std::vector<Setting> EverySetting() {
  SamplingOptions greedy;
  SamplingOptions sampled;
  sampled.temperature = 0.8F;
  sampled.top_p = 0.9F;
  sampled.seed = 11;
  SamplingOptions penalised;
  penalised.temperature = 1.0F;
  penalised.top_k = 40;
  penalised.min_p = 0.02F;
  penalised.repetition_penalty = 1.1F;
  penalised.presence_penalty = 0.2F;
  penalised.frequency_penalty = 0.1F;
  penalised.seed = 5;
  return {{"greedy", greedy}, {"sampled", sampled}, {"penalised", penalised}};
}

// A random tree of 40 nodes, at most `depth` levels deep and 4 children wide.
inline tree::Topology RandomTree(uint32_t seed, int32_t depth) {
  std::mt19937 random(seed);
  return tree::RandomTopology(random, 40, depth, 4);
}

// A chain, a published tree and a random one, as text.
inline std::vector<std::string> EveryTree(int32_t depth) {
  const std::vector<std::vector<int32_t>> chain{std::vector<int32_t>(static_cast<size_t>(depth), 0)};
  return {base::DumpJson(base::Json(chain)), tree::ToJson(tree::Preset("mc_sim_7b_63").CutToDepth(std::min(depth, 4))),
          tree::ToJson(RandomTree(17, depth))};
}

struct Case {
  std::string base, heads;
  std::vector<int32_t> prompt;
  int32_t num_tokens = 0;
  Formats formats = {};
  std::vector<Setting> settings = EverySetting();
  std::vector<size_t> trees = {0, 1, 2};  // of EveryTree
  bool is_trained = true;                 // so that drafts are accepted
};

// Runs a case on one target with different numbers of threads and prompt chunks. Returns what plain decoding gave, per
// setting.
inline std::vector<std::vector<int32_t>> ExpectLossless(const Case& c, const std::string& target) {
  EngineOptions options;
  options.model = c.base;
  options.weights = c.formats.base;
  options.head_weights = c.formats.heads;
  options.cpu_target = target;
  options.threads = 1;
  options.load_tokenizer = false;
  Engine plain(options);
  options.draft = c.heads;
  const int32_t depth = Engine(options).info().draft_depth;
  const auto request_for = [&c](size_t s) {
    GenerationRequest request;
    request.prompt_ids = c.prompt;
    request.sampling = c.settings[s].sampling;
    request.stop.max_tokens = c.num_tokens;
    request.stop.ignore_eos = true;
    return request;
  };
  std::vector<GenerationResult> expected;
  for (size_t s = 0; s < c.settings.size(); ++s) expected.push_back(plain.Generate(request_for(s)));
  for (const size_t t : c.trees) {
    options.tree = EveryTree(depth)[t];
    options.threads = 1 + static_cast<int32_t>(t % 2);
    options.prefill_chunk = t == 1 ? 5 : 64;
    Engine engine(options);
    for (size_t s = 0; s < c.settings.size(); ++s) {
      SCOPED_TRACE(c.heads + " " + NameOf(c.formats) + " " + target + " " + c.settings[s].name + " " +
                   options.tree.substr(0, 40));
      const GenerationResult result = engine.Generate(request_for(s));
      EXPECT_EQ(result.token_ids, expected[s].token_ids);
      EXPECT_EQ(result.finish_reason, expected[s].finish_reason);
      const int32_t emitted = std::accumulate(result.num_emitted.begin(), result.num_emitted.end(), 0);
      if (!c.is_trained) continue;
      EXPECT_GT(emitted, static_cast<int32_t>(result.num_emitted.size())) << "no draft was ever accepted";
    }
  }
  std::vector<std::vector<int32_t>> texts;
  for (const GenerationResult& result : expected) {
    EXPECT_EQ(result.num_emitted, std::vector<int32_t>(result.num_emitted.size(), 1));
    texts.push_back(result.token_ids);
  }
  return texts;
}

// For the small reference models, and for tale-14m.
inline std::vector<int32_t> Prompt() {
  return {1, 382, 395, 261, 369, 478, 373, 278, 261, 361, 262, 503, 471, 313, 275, 467, 431, 304};
}
inline std::vector<int32_t> TalePrompt() { return {1, 300, 700, 1200, 310, 45, 260, 900, 2000, 270}; }

inline std::string Golden(const std::string& name) { return SourceDir() + "/tests/golden/" + name; }

// The targets whose float kernels differ: what a model of floats with keys and values of f32 runs on. (amx has those of
// avx512, avx-vnni those of avx2, and amx-twin those of avx512 or portable.)
inline std::vector<std::string> TargetsForFloats() {
  std::vector<const kernels::KernelTable*> tables;
  for (const kernels::KernelTable* table : kernels::AvailableKernels()) {
    const bool is_new = std::ranges::none_of(tables, [&](const auto* other) {
      return other->matmul == table->matmul && other->rms_norm == table->rms_norm;
    });
    if (is_new) tables.push_back(table);
  }
  std::vector<std::string> names;
  for (const kernels::KernelTable* table : tables) names.emplace_back(table->name);
  return names;
}

inline std::string Embedded(const std::string& name) { return SourceDir() + "/models/" + name; }

}  // namespace hydrant::test
