// SPDX-License-Identifier: Apache-2.0
// The promise: for every drafter, tree, sampling and CPU target, the output equals plain decoding token for token with
// the same seed, alone and in a batch, whatever the threads and prompt chunks; and more than one token comes out of a
// step.
#include <gtest/gtest.h>

#include <algorithm>
#include <cstring>
#include <map>
#include <numeric>
#include <random>
#include <string>
#include <vector>

#include "base/json.h"
#include "base/thread_pool.h"
#include "engine/eval_logits.h"
#include "engine/loaded_model.h"
#include "hydrant/engine.h"
#include "kernels/kernels.h"
#include "model/decoder.h"
#include "tests/golden_case.h"
#include "tests/test_data.h"
#include "tree/parse.h"
#include "tree/random_tree.h"

namespace hydrant::test {
namespace {

struct Setting {
  const char* name;
  SamplingOptions sampling;
};

std::vector<Setting> Settings() {
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
tree::Topology RandomTree(uint32_t seed, int32_t depth) {
  std::mt19937 random(seed);
  return tree::RandomTopology(random, 40, depth, 4);
}

struct Models {
  std::string base, heads;
  std::string weights = "auto", head_weights = "auto";
};

void ExpectLossless(const Models& models, const std::vector<int32_t>& prompt, const kernels::KernelTable& table,
                    int32_t num_tokens) {
  const std::string& heads = models.heads;
  EngineOptions plain_options;
  plain_options.model = models.base;
  plain_options.weights = models.weights;
  plain_options.head_weights = models.head_weights;
  plain_options.cpu_target = table.name;
  plain_options.threads = 1;
  plain_options.load_tokenizer = false;
  Engine plain(plain_options);
  EngineOptions options = plain_options;
  options.draft = heads;
  const int32_t depth = Engine(options).info().num_heads;
  const tree::Topology preset = tree::Preset("mc_sim_7b_63").CutToDepth(std::min(depth, 4));
  const std::string chain = base::DumpJson(
      base::Json(std::vector<std::vector<int32_t>>{std::vector<int32_t>(static_cast<size_t>(depth), 0)}));
  int32_t t = 0;
  for (const std::string& tree : {chain, tree::ToJson(preset), tree::ToJson(RandomTree(17, depth))}) {
    options.tree = tree;
    options.threads = 1 + (t++ % 2);
    options.prefill_chunk = t == 2 ? 5 : 64;
    Engine engine(options);
    for (const Setting& setting : Settings()) {
      SCOPED_TRACE(heads + " " + models.weights + " " + table.name + " " + setting.name + " " + tree.substr(0, 40));
      GenerationRequest request;
      request.prompt_ids = prompt;
      request.sampling = setting.sampling;
      request.stop.max_tokens = num_tokens;
      request.stop.ignore_eos = true;
      const GenerationResult expected = plain.Generate(request);
      const GenerationResult result = engine.Generate(request);
      EXPECT_EQ(result.token_ids, expected.token_ids);
      EXPECT_EQ(result.finish_reason, expected.finish_reason);
      const int32_t emitted = std::accumulate(result.num_emitted.begin(), result.num_emitted.end(), 0);
      EXPECT_GT(emitted, static_cast<int32_t>(result.num_emitted.size())) << "no draft was ever accepted";
      EXPECT_EQ(expected.num_emitted, std::vector<int32_t>(expected.num_emitted.size(), 1));
    }
  }
}

const std::vector<int32_t> kPrompt{1,   382, 395, 261, 369, 478, 373, 278, 261,
                                   361, 262, 503, 471, 313, 275, 467, 431, 304};

TEST(Lossless, CommittedHeadsOnEveryTarget) {
  for (const kernels::KernelTable* table : kernels::AvailableKernels()) {
    for (const char* heads : {"hydra/prefix_mlp_k2_l1", "medusa/c_v2_k4_l1"}) {
      ExpectLossless({SourceDir() + "/tests/golden/base_mha", SourceDir() + "/tests/golden/" + heads}, kPrompt, *table,
                     60);
    }
  }
}

TEST(Lossless, EveryKindOfHeadsOnEveryTarget) {
  HYDRANT_NEED_SHARED();
  const std::string golden = SharedDir() + "/golden/";
  for (const kernels::KernelTable* table : kernels::AvailableKernels()) {
    for (const char* heads :
         {"hydra/mlp_k4_l1", "hydra/mlp_k3_l2", "hydra/mlp_ungrounded_k4_l1", "hydra/mlp_offset1_k4_l1",
          "hydra/hydra_pp_k4_l4", "medusa/a_k4_l1", "medusa/a_k3_l2", "medusa/d_k4_l1_vllm_token_map"}) {
      ExpectLossless({golden + "base_mha", golden + heads}, kPrompt, *table, 48);
    }
  }
}

TEST(Lossless, TheEmbeddedModelWithItsHeads) {
  const std::string models = SourceDir() + "/models/";
  const std::vector<int32_t> prompt{1, 300, 700, 1200, 310, 45, 260, 900, 2000, 270};
  for (const kernels::KernelTable* table : kernels::AvailableKernels()) {
    if (std::string(table->name) == "portable") continue;  // minutes; the small models above cover it
    ExpectLossless({models + "tale-14m", models + "tale-14m-hydra-pp"}, prompt, *table, 64);
  }
}

TEST(Lossless, EveryWeightFormatOnEveryTarget) {
  for (const kernels::KernelTable* table : kernels::AvailableKernels()) {
    for (const char* format : {"bf16", "w8a8", "w4a8", "w8a16", "w4a16"}) {
      const std::string golden = SourceDir() + "/tests/golden/";
      ExpectLossless({golden + "base_mha", golden + "hydra/prefix_mlp_k2_l1", format}, kPrompt, *table, 30);
    }
  }
}

// Hidden states and logits after a few tokens of text.
std::vector<float> EvalValues(const char* format, DType kv_type, const kernels::KernelTable& table) {
  EngineOptions options;
  options.model = SourceDir() + "/models/tale-14m";
  options.draft = SourceDir() + "/models/tale-14m-hydra-pp";
  options.weights = format;
  options.head_weights = format;
  options.kv_type = NameOf(kv_type);
  options.cpu_target = table.name;
  options.load_tokenizer = false;
  const auto loaded = engine::LoadModel(options);
  EXPECT_EQ(loaded->info.weights, format);
  EXPECT_EQ(loaded->kv_type, kv_type);
  const engine::EvalLogitsResult result = engine::EvalLogits(*loaded, {1, 300, 700, 1200, 310, 45}, {});
  std::vector<float> values;
  for (const Matrix* matrix : {&result.logits, &result.hidden, &result.head_logits}) {
    for (int64_t r = 0; r < matrix->rows(); ++r) {
      const std::span<const float> row = matrix->row_span(r);
      values.insert(values.end(), row.begin(), row.end());
    }
  }
  return values;
}

// Bit for bit: sums of integers are exact. Tiles add the products of bf16 keys and values in an order of their own
// (docs/algorithms/order_of_additions.md): there the targets with tiles have equal bits, and the others.
TEST(Lossless, IntegerFormatsHaveTheSameBitsOnEveryTarget) {
  for (const char* format : {"w8a8", "w4a8", "w8a16", "w4a16"}) {
    for (const DType kv_type : {DType::kF32, DType::kBF16}) {
      std::map<const kernels::KernelTable*, std::vector<float>> expected;  // of twins
      for (const kernels::KernelTable* table : kernels::AvailableKernels()) {
        const std::vector<float> values = EvalValues(format, kv_type, *table);
        const auto& twin = expected.try_emplace(&kernels::AttentionTwin(*table, kv_type), values).first->second;
        ASSERT_EQ(values.size(), twin.size());
        EXPECT_EQ(std::memcmp(values.data(), twin.data(), twin.size() * sizeof(float)), 0)
            << format << " " << table->name << " " << NameOf(kv_type);
      }
      EXPECT_EQ(expected.size(), kv_type == DType::kF32 ? 1U : 2U);
    }
  }
}

// Requests of different lengths, seeds and rules in one batch give what each gives alone.
TEST(Lossless, ABatchGivesWhatEachRequestGivesAlone) {
  EngineOptions options;
  options.model = SourceDir() + "/tests/golden/base_mha";
  options.draft = SourceDir() + "/tests/golden/hydra/prefix_mlp_k2_l1";
  Engine engine(options);
  std::vector<GenerationRequest> requests;
  for (uint64_t i = 0; i < 11; ++i) {
    GenerationRequest request;
    request.prompt_ids.assign(kPrompt.begin(), kPrompt.begin() + static_cast<int64_t>(2 + i));
    request.sampling.temperature = i % 3 == 0 ? 0.0F : 0.9F;
    request.sampling.seed = i;
    request.stop.max_tokens = static_cast<int32_t>(20 + 5 * i);
    request.use_drafter = i % 4 != 3;
    if (i == 5) request.accept.rule = AcceptRule::kTypical;
    requests.push_back(request);
  }
  const std::vector<GenerationResult> together = engine.GenerateBatch(requests);
  ASSERT_EQ(together.size(), requests.size());
  for (size_t i = 0; i < requests.size(); ++i) {
    const GenerationResult alone = engine.Generate(requests[i]);
    EXPECT_EQ(together[i].token_ids, alone.token_ids) << i;
    EXPECT_EQ(together[i].num_emitted, alone.num_emitted) << i;
    EXPECT_EQ(together[i].finish_reason, alone.finish_reason) << i;
  }
}

TEST(Lossless, LowerPrecisionKvIsLosslessToo) {
  for (const char* kv_type : {"bf16", "f16"}) {
    EngineOptions options;
    options.model = SourceDir() + "/tests/golden/base_mha";
    options.draft = SourceDir() + "/tests/golden/hydra/prefix_mlp_k2_l1";
    options.kv_type = kv_type;
    Engine engine(options);
    GenerationRequest request;
    request.prompt_ids = kPrompt;
    request.stop.max_tokens = 100;
    request.stop.ignore_eos = true;
    const GenerationResult result = engine.Generate(request);
    request.use_drafter = false;
    EXPECT_EQ(result.token_ids, engine.Generate(request).token_ids) << kv_type;
  }
}

// Near the context limit trees are cut, never the text: same tokens and the same end as plain decoding.
TEST(Lossless, TheContextLimitCutsTreesNotText) {
  EngineOptions options;
  options.model = SourceDir() + "/tests/golden/base_mha";
  options.draft = SourceDir() + "/tests/golden/hydra/prefix_mlp_k2_l1";
  Engine engine(options);
  const int32_t limit = engine.info().max_positions;
  for (int32_t room = 0; room < 7; ++room) {
    GenerationRequest request;
    for (int32_t i = 0; i < limit - room; ++i)
      request.prompt_ids.push_back(kPrompt[static_cast<size_t>(i) % kPrompt.size()]);
    request.stop.max_tokens = 1000;
    request.stop.ignore_eos = true;
    const GenerationResult result = engine.Generate(request);
    request.use_drafter = false;
    const GenerationResult plain = engine.Generate(request);
    EXPECT_EQ(result.token_ids, plain.token_ids);
    EXPECT_EQ(result.finish_reason, FinishReason::kContext);
    // Prompt and reply together fill the context; the prompt's own forward always gives one token.
    EXPECT_EQ(plain.token_ids.size(), static_cast<size_t>(std::max(room, 1)));
  }
  GenerationRequest request;
  request.prompt_ids.assign(static_cast<size_t>(limit) + 1, 5);
  EXPECT_THROW(engine.Generate(request), UserError);
}

// Bits, not only tokens: every row of a random tree against the same tokens decoded one after another.
TEST(Lossless, TreeRowsHaveTheBitsOfPlainDecoding) {
  for (const kernels::KernelTable* table : kernels::AvailableKernels()) {
    for (const char* format : {"stored", "w8a8", "w4a8", "w4a16"}) {
      EngineOptions options;
      options.model = SourceDir() + "/tests/golden/base_mha";
      options.weights = format;
      options.cpu_target = table->name;
      options.load_tokenizer = false;
      const auto loaded = engine::LoadModel(options);
      const tree::Topology topology = RandomTree(23, 4);
      std::vector<int32_t> tokens(static_cast<size_t>(topology.num_nodes()));
      for (size_t i = 0; i < tokens.size(); ++i) tokens[i] = static_cast<int32_t>((i * 37 + 11) % 512);

      const auto run = [&](std::span<const int32_t> path, bool as_tree, Matrix& logits) {
        kv::BlockPool pool(model::KvShapeFor(loaded->weights.config, loaded->kv_type), 16);
        kv::BlockTable blocks(&pool);
        ASSERT_TRUE(blocks.Reserve(400));
        model::RowBatch batch;
        model::ForwardOutput output;
        batch.AddChain(kPrompt, 0, blocks.blocks());
        batch.Seal();
        loaded->decoder->Forward(batch, pool, output);
        blocks.Append(static_cast<int32_t>(kPrompt.size()));
        const int32_t root = blocks.length();
        if (as_tree) {
          batch.Clear();
          for (tree::NodeId node = 0; node < topology.num_nodes(); ++node) {
            batch.AddTreeRow(tokens[static_cast<size_t>(node)], root, topology.PathTo(node), blocks.blocks());
            batch.WantLogits();
          }
          batch.Seal();
          loaded->decoder->Forward(batch, pool, output);
        } else {
          for (size_t i = 0; i < path.size(); ++i) {
            batch.Clear();
            batch.AddChain(std::span(&tokens[static_cast<size_t>(path[i])], 1), root + static_cast<int32_t>(i),
                           blocks.blocks());
            batch.WantLogits();
            batch.Seal();
            loaded->decoder->Forward(batch, pool, output);
          }
        }
        logits.Resize(output.logits.rows(), output.logits.cols());
        for (int64_t r = 0; r < logits.rows(); ++r) std::copy_n(output.logits.row(r), logits.cols(), logits.row(r));
      };

      Matrix tree_logits, plain_logits;
      run({}, true, tree_logits);
      for (tree::NodeId node = 0; node < topology.num_nodes(); node += 3) {
        run(topology.PathTo(node), false, plain_logits);
        EXPECT_EQ(std::memcmp(tree_logits.row(node), plain_logits.row(0), static_cast<size_t>(plain_logits.cols()) * 4),
                  0)
            << table->name << " " << format << " node " << node;
      }
    }
  }
}

}  // namespace
}  // namespace hydrant::test
