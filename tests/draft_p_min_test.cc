// SPDX-License-Identifier: Apache-2.0
// Which nodes a smallest probability leaves in a tree, against the heads' own logits along every path.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <random>
#include <string>
#include <utility>
#include <vector>

#include "load/loaded_model.h"
#include "tests/lossless_util.h"
#include "tests/test_data.h"
#include "tree/random_tree.h"

namespace hydrant::test::draft_p_min_test {
namespace {

struct Node {
  std::vector<int32_t> ranks, tokens;  // from below the root
  bool operator==(const Node&) const = default;
};

// Heads and a sequence that has absorbed random hidden rows.
struct Drafted {
  std::unique_ptr<load::LoadedModel> loaded;
  std::unique_ptr<kv::BlockPool> pool;
  std::unique_ptr<kv::BlockTable> table;
  std::unique_ptr<draft::DraftState> state;
  int32_t root = 5;
};

Drafted Load(const std::string& base, const std::string& heads, uint32_t seed) {
  EngineOptions options;
  options.model = base;
  options.draft = heads;
  options.load_tokenizer = false;
  Drafted drafted{.loaded = load::LoadModel(options), .pool = nullptr, .table = nullptr, .state = nullptr};
  draft::Drafter& drafter = *drafted.loaded->drafter;
  drafted.pool = std::make_unique<kv::BlockPool>(drafted.loaded->kv_shape, 1);
  drafted.table = std::make_unique<kv::BlockTable>(drafted.pool.get());
  EXPECT_TRUE(drafted.table->Reserve(8));
  drafted.table->Append(3);
  drafted.state = drafter.NewState({});
  std::mt19937 random(seed);
  std::normal_distribution<float> normal;
  Matrix hidden(3, drafted.loaded->weights.config.hidden_size);
  for (int64_t r = 0; r < hidden.rows(); ++r) {
    for (int64_t c = 0; c < hidden.cols(); ++c) hidden.row(r)[c] = normal(random);
  }
  const int32_t tokens[] = {1, 2, 3};
  const kernels::ConstRows rows[] = {hidden};
  const draft::CommitInput input{
      .state = drafted.state.get(), .kv = drafted.loaded->DraftKvIn(*drafted.table), .tokens = tokens, .hidden = rows};
  drafter.Commit(std::span(&input, 1));
  return drafted;
}

std::vector<Node> Nodes(const tree::TokenTree& tree) {
  std::vector<Node> nodes;
  const std::vector<std::vector<int32_t>> paths = tree.topology.Paths();
  EXPECT_EQ(tree.tokens.size(), paths.size() + 1);
  for (size_t n = 1; n < tree.tokens.size(); ++n) {
    Node node{.ranks = paths[n - 1], .tokens = {}};
    for (const tree::NodeId id : tree.topology.PathTo(static_cast<tree::NodeId>(n))) {
      if (id > 0) node.tokens.push_back(tree.tokens[static_cast<size_t>(id)]);
    }
    nodes.push_back(std::move(node));
  }
  return nodes;
}

// Nodes of the same tree with each of some smallest probabilities, all drafted in one call.
std::vector<std::vector<Node>> Propose(Drafted& drafted, const tree::Topology& topology,
                                       std::span<const float> p_mins) {
  const SamplingOptions greedy;
  sampling::NoiseCache noise(drafted.loaded->queue.table, 0, drafted.loaded->info.vocab_size);
  std::vector<tree::TokenTree> trees(p_mins.size());
  std::vector<draft::ProposeInput> inputs;
  draft::StaticTree shape(topology);
  for (size_t i = 0; i < trees.size(); ++i) {
    inputs.push_back({.state = drafted.state.get(),
                      .prompt = {},
                      .output = std::span(&drafted.root, 1),
                      .sampling = &greedy,
                      .noise = &noise,
                      .budget = {.max_nodes = topology.num_nodes() - 1, .max_depth = topology.max_depth()},
                      .shape = &shape,
                      .min_probability = p_mins[i],
                      .tree = &trees[i]});
  }
  drafted.loaded->drafter->Propose(inputs);
  std::vector<std::vector<Node>> nodes;
  for (const tree::TokenTree& tree : trees) nodes.push_back(Nodes(tree));
  return nodes;
}

// The probability of the last token of `tokens` among all, by the head that drafts it; and of the whole path.
std::pair<double, double> Probabilities(Drafted& drafted, const std::vector<int32_t>& tokens) {
  Matrix logits;
  std::vector<int32_t> root_and_path{drafted.root};
  root_and_path.insert(root_and_path.end(), tokens.begin(), tokens.end());
  draft::HeadLogits(*drafted.loaded->drafter, *drafted.state, {}, std::move(root_and_path), logits);
  double last = 1, path = 1;
  for (size_t d = 0; d < tokens.size(); ++d) {
    const std::span<const float> row = std::as_const(logits).row_span(static_cast<int64_t>(d));
    double sum = 0;
    for (const float logit : row) sum += std::exp(static_cast<double>(logit));
    last = std::exp(static_cast<double>(row[static_cast<size_t>(tokens[d])])) / sum;
    path *= last;
  }
  return {last, path};
}

bool Near(double probability, double p_min) { return std::abs(probability - p_min) < 1e-4 * p_min; }

// The nodes of the whole tree that the rule leaves in; `close`: a rounding could decide otherwise.
std::vector<Node> Expected(Drafted& drafted, const std::vector<Node>& whole, float p_min, bool* close) {
  const auto limit = static_cast<double>(p_min);
  std::vector<Node> in;
  for (const Node& node : whole) {
    Node parent = node;
    parent.ranks.pop_back();
    parent.tokens.pop_back();
    if (!parent.tokens.empty()) {
      if (std::ranges::find(in, parent) == in.end()) continue;
      const double path = Probabilities(drafted, parent.tokens).second;
      *close = *close || Near(path, p_min);
      if (path < limit) continue;
    }
    const double last = Probabilities(drafted, node.tokens).first;
    *close = *close || Near(last, p_min);
    if (last >= limit) in.push_back(node);
  }
  return in;
}

void ExpectTheRule(const std::string& base, const std::string& heads) {
  constexpr float kProbabilities[] = {0, 1e-30F, 1e-4F, 0.002F, 0.01F, 0.05F, 0.3F, 1.0F};
  size_t cut = 0, whole_trees = 0;
  for (uint32_t seed = 0; seed < 6; ++seed) {
    Drafted drafted = Load(base, heads, seed);
    std::mt19937 random(seed);
    const tree::Topology topology = tree::RandomTopology(random, 25, drafted.loaded->drafter->max_depth(), 4);
    const std::vector<std::vector<Node>> together = Propose(drafted, topology, kProbabilities);
    const std::vector<Node>& whole = together.front();
    EXPECT_EQ(whole.size() + 1, static_cast<size_t>(topology.num_nodes()));
    for (size_t i = 0; i < together.size(); ++i) {
      const float p_min = kProbabilities[i];
      SCOPED_TRACE(heads + " seed " + std::to_string(seed) + " p " + std::to_string(p_min));
      EXPECT_EQ(Propose(drafted, topology, std::span(&p_min, 1)).front(), together[i]) << "depends on other sequences";
      bool close = false;
      const std::vector<Node> expected = Expected(drafted, whole, p_min, &close);
      if (close) continue;
      EXPECT_EQ(together[i], expected);
      if (expected.size() == whole.size()) ++whole_trees;
      if (!expected.empty() && expected.size() < whole.size()) ++cut;
    }
  }
  EXPECT_GT(cut, 5U) << "the probabilities tried must lie among the nodes'";
  EXPECT_GT(whole_trees, 2U);
}

TEST(DraftPMin, LeavesInWhatTheLogitsSay) {
  ExpectTheRule(Golden("base_mha"), Golden("hydra/prefix_mlp_k2_l1"));
  ExpectTheRule(Golden("base_mha"), Golden("medusa/c_v2_k4_l1"));
  ExpectTheRule(Embedded("tale-14m"), Embedded("tale-14m-hydra-pp"));
}

}  // namespace
}  // namespace hydrant::test::draft_p_min_test
