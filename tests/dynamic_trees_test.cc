// SPDX-License-Identifier: Apache-2.0
// A drafter that no other file knows: trees of random shape and depth, other layers' hidden states, keys and values of
// its own. That it runs, exactly and in a batch, is the proof that a drafter owns its trees.
#include <gtest/gtest.h>

#include <map>
#include <memory>
#include <random>
#include <vector>

#include "load/loaded_model.h"
#include "tests/lossless_util.h"

namespace hydrant::test::dynamic_trees_test {
namespace {

using Tokens = std::vector<int32_t>;

// What it drafts is partly right: it knows the texts that plain decoding gives.
class RandomTrees : public draft::Drafter {
 public:
  static constexpr int32_t kMostNodes = 30;
  struct State : draft::DraftState {
    std::mt19937 random;
    Tokens committed;
  };

  RandomTrees(const std::map<Tokens, Tokens>* texts, int32_t num_layers) : texts_(texts), num_layers_(num_layers) {}

  const char* name() const override { return "random trees"; }
  int32_t max_depth() const override { return 9; }
  std::vector<int32_t> WantedLayers() const override { return {0, num_layers_, model::kAfterFinalNorm}; }
  std::vector<kv::LayerShape> KvLayers() const override {
    return {{.num_kv_heads = 2, .head_dim = 6}, {.num_kv_heads = 1, .head_dim = 2}};
  }
  int32_t MostNodes(const GenerationRequest& /*request*/) const override { return kMostNodes; }
  std::unique_ptr<draft::DraftState> NewState(const GenerationRequest& request) const override {
    auto state = std::make_unique<State>();
    state->random.seed(static_cast<uint32_t>(request.prompt_ids.back()));
    return state;
  }

  void Commit(std::span<const draft::CommitInput> inputs) override {
    for (const draft::CommitInput& input : inputs) {
      auto& state = *static_cast<State*>(input.state);
      ASSERT_EQ(input.hidden.size(), 3U);
      for (const kernels::ConstRows& rows : input.hidden) {
        ASSERT_EQ(rows.rows, static_cast<int64_t>(input.tokens.size()));
      }
      ExpectSameTokenSameEmbedding(input);
      for (const int32_t token : input.tokens) {
        *SlotOf(input.kv, static_cast<int32_t>(state.committed.size())) = static_cast<uint8_t>(token);
        state.committed.push_back(token);
      }
    }
  }

  void Propose(std::span<draft::ProposeInput> inputs) override {
    for (draft::ProposeInput& input : inputs) {
      auto& state = *static_cast<State*>(input.state);
      ExpectAllCommitted(state, input);
      ScribbleBeyond(input.kv);
      const auto nodes = static_cast<int32_t>(state.random() % kMostNodes);
      const int32_t depth = std::min(input.budget.max_depth, static_cast<int32_t>(state.random() % 10));
      tree::TokenTree& tree = *input.tree;
      tree.Reset(input.output.back());
      if (depth == 0) continue;
      tree.topology = tree::RandomTopology(state.random, std::min(nodes, input.budget.max_nodes) + 1, depth, 4);
      Fill(input, state.random);
      ++shapes_[tree.topology.Paths()];
    }
  }

  size_t num_shapes() const { return shapes_.size(); }

 private:
  static uint8_t* SlotOf(const draft::DraftKv& kv, int32_t slot) {
    return kv.layer(1).key(kv.table->blocks(), 0, slot, 1);
  }

  // The first column of layer 0 is the token's embedding: rows belong to their tokens.
  void ExpectSameTokenSameEmbedding(const draft::CommitInput& input) {
    for (size_t i = 0; i < input.tokens.size(); ++i) {
      const float first = input.hidden[0].row(static_cast<int64_t>(i))[0];
      const auto [place, is_new] = embeddings_.try_emplace(input.tokens[i], first);
      EXPECT_EQ(place->second, first);
    }
  }

  // Every token but the root has been committed, and its mark is where it was put.
  static void ExpectAllCommitted(const State& state, const draft::ProposeInput& input) {
    Tokens all(input.prompt.begin(), input.prompt.end());
    all.insert(all.end(), input.output.begin(), input.output.end() - 1);
    ASSERT_EQ(state.committed, all);
    for (size_t i = 0; i < all.size(); ++i) {
      ASSERT_EQ(*SlotOf(input.kv, static_cast<int32_t>(i)), static_cast<uint8_t>(all[i])) << i;
    }
  }

  static void ScribbleBeyond(const draft::DraftKv& kv) {
    const int32_t length = kv.table->length();
    if (!kv.table->Reserve(length + 20)) return;
    for (int32_t slot = length; slot < length + 20; ++slot) *SlotOf(kv, slot) = 0xEE;
  }

  void Fill(draft::ProposeInput& input, std::mt19937& random) const {
    tree::TokenTree& tree = *input.tree;
    const Tokens& text = texts_->at(Tokens(input.prompt.begin(), input.prompt.end()));
    tree.tokens.resize(static_cast<size_t>(tree.topology.num_nodes()), 0);
    std::vector<bool> is_true(tree.tokens.size(), false);
    is_true[0] = true;
    for (tree::NodeId node = 0; node < tree.topology.num_nodes(); ++node) {
      const auto n = static_cast<size_t>(node);
      const size_t next = input.output.size() + static_cast<size_t>(tree.topology.depth()[n]);
      const int32_t children = tree.topology.num_children()[n];
      const int32_t right = children > 0 ? static_cast<int32_t>(random() % 5) : 0;
      for (int32_t rank = 0; rank < children; ++rank) {
        const auto child = static_cast<size_t>(tree.topology.first_child()[n] + rank);
        is_true[child] = is_true[n] && rank == right && next < text.size();
        tree.tokens[child] = is_true[child] ? text[next] : static_cast<int32_t>(random() % 500);
      }
    }
  }

  const std::map<Tokens, Tokens>* texts_;
  int32_t num_layers_;
  std::map<int32_t, float> embeddings_;
  std::map<std::vector<std::vector<int32_t>>, int> shapes_;
};

std::unique_ptr<load::LoadedModel> Base() {
  EngineOptions options;
  options.model = Golden("base_mha");
  options.load_tokenizer = false;
  options.prefill_chunk = 5;
  auto loaded = std::make_unique<load::LoadedModel>();
  loaded->options = options;
  loaded->weights = model::LoadModelWeights(options.model);
  load::OpenQueue(*loaded);
  return loaded;
}

std::vector<GenerationRequest> Requests() {
  std::vector<GenerationRequest> requests;
  for (int32_t i = 0; i < 12; ++i) {
    GenerationRequest& request = requests.emplace_back();
    request.prompt_ids = Prompt();
    request.prompt_ids.resize(static_cast<size_t>(3 + i));
    request.stop.max_tokens = i == 3 ? 100000 : 40 + 3 * i;  // one goes on to the context's end
    request.stop.ignore_eos = true;
    request.sampling.temperature = i % 2 == 0 ? 0.0F : 0.9F;
    request.sampling.seed = static_cast<uint64_t>(i);
    if (i % 4 == 2) request.lookup = {.max_tokens = 5, .min_match = 2};
  }
  return requests;
}

TEST(DynamicTrees, GiveTheTextOfPlainDecodingAloneAndInABatch) {
  std::unique_ptr<load::LoadedModel> plain = Base();
  load::FinishLoading(*plain);
  Engine plain_engine(std::move(plain));
  const std::vector<GenerationRequest> requests = Requests();
  std::map<Tokens, Tokens> texts;
  for (GenerationRequest request : requests) {
    request.use_drafter = false;
    texts[request.prompt_ids] = plain_engine.Generate(request).token_ids;
  }
  std::unique_ptr<load::LoadedModel> loaded = Base();
  auto drafter = std::make_unique<RandomTrees>(&texts, static_cast<int32_t>(loaded->weights.config.num_layers));
  const RandomTrees& trees = *drafter;
  loaded->drafter = std::move(drafter);
  load::FinishLoading(*loaded);
  Engine engine(std::move(loaded));
  EXPECT_EQ(engine.info().drafter, "random trees");
  int64_t accepted = 0;
  for (const GenerationRequest& request : requests) {
    const GenerationResult result = engine.Generate(request);
    EXPECT_EQ(result.token_ids, texts[request.prompt_ids]);
    accepted += result.num_accepted();
  }
  EXPECT_GT(accepted, 100);
  EXPECT_GT(trees.num_shapes(), 50U);
  const std::vector<GenerationResult> together = engine.GenerateBatch(requests);
  for (size_t i = 0; i < requests.size(); ++i) EXPECT_EQ(together[i].token_ids, texts[requests[i].prompt_ids]) << i;
}

}  // namespace
}  // namespace hydrant::test::dynamic_trees_test
