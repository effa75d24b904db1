// SPDX-License-Identifier: Apache-2.0
// Parity of ReDrafter heads with their authors' code: logits, the beams and trees of the first steps, tokens and
// accepted lengths.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "eval/logits.h"
#include "kv/kv_cache.h"
#include "tests/golden_case.h"
#include "tests/lossless_util.h"

namespace hydrant::test::golden_redrafter_test {
namespace {

using base::Json;
using Path = std::vector<int32_t>;

constexpr float kTolerance = 1e-4F;
constexpr int32_t kBestTokens = 50;

std::string Folder(const std::string& name) { return SharedDir() + "/golden/redrafter/" + name; }

EngineOptions OptionsOf(const std::string& heads) {
  EngineOptions options;
  options.model = SharedDir() + "/models/stories260K-hf";
  options.draft = Folder(heads);
  options.load_tokenizer = false;
  return options;
}

BeamOptions BeamsOf(const Json& one) {
  return {.width = one.at("beam_width").get<int32_t>(), .length = one.at("beam_length").get<int32_t>()};
}

// The nodes by the tokens from the root to them. The authors number nodes by beams, this project by depth.
std::map<Path, int32_t> NodesByPath(std::span<const int32_t> parents, std::span<const int32_t> tokens) {
  std::vector<Path> paths;
  std::map<Path, int32_t> nodes;
  for (size_t n = 0; n < parents.size(); ++n) {
    paths.push_back(parents[n] < 0 ? Path() : paths[static_cast<size_t>(parents[n])]);
    paths.back().push_back(tokens[n]);
    nodes.emplace(paths.back(), static_cast<int32_t>(n));
  }
  return nodes;
}

// Their packed tree has our nodes, each as deep as they say, and their unpacker finds the beams in it.
void ExpectTree(std::span<const int32_t> parents, std::span<const int32_t> tokens, const Json& step) {
  const Json& tree = step.at("tree");
  const std::vector<int32_t> their_parents = Ids(tree.at("parents")), their_tokens = Ids(tree.at("tokens")),
                             offsets = Ids(tree.at("position_offsets"));
  const std::map<Path, int32_t> ours = NodesByPath(parents, tokens), theirs = NodesByPath(their_parents, their_tokens);
  EXPECT_EQ(ours.size(), tokens.size());
  ASSERT_EQ(ours.size(), theirs.size());
  for (const auto& [path, node] : theirs) {
    EXPECT_TRUE(ours.contains(path)) << testing::PrintToString(path);
    EXPECT_EQ(static_cast<size_t>(offsets[static_cast<size_t>(node)]), path.size() - 1);
  }
  for (size_t b = 0; b < step.at("beams").size(); ++b) {
    const Path beam = Ids(step.at("beams").at(b)), nodes = Ids(tree.at("unpacker").at(b));
    for (size_t depth = 0; depth < beam.size(); ++depth) {
      const Path path(beam.begin(), beam.begin() + static_cast<int64_t>(depth) + 1);
      EXPECT_EQ(theirs.at(path), nodes[depth]);
    }
  }
}

void ExpectCase(Engine& engine, const Json& one) {
  GenerationRequest request;
  request.prompt_ids = Ids(one.at("prompt_ids"));
  const std::vector<int32_t> lengths = Ids(one.at("num_emitted")), tokens = Ids(one.at("output_ids"));
  // Their steps count the token that a step begins with, ours the one that it ends with.
  request.stop = {.max_tokens = 1, .ignore_eos = true, .stop = {}};
  for (const int32_t length : lengths) request.stop.max_tokens += length;
  request.tree = "beam";
  request.beam = BeamsOf(one);
  size_t step = 0;
  const GenerationResult result = engine.Generate(request, [&](const Emission& emission) {
    if (emission.step == nullptr || step >= one.at("steps").size()) return true;
    SCOPED_TRACE("step " + std::to_string(step));
    const Json& expected = one.at("steps").at(step++);
    EXPECT_EQ(emission.step->tokens.front(), expected.at("init_token").get<int32_t>());
    ExpectTree(emission.step->parents, emission.step->tokens, expected);
    Path accepted;
    for (const int32_t node : emission.step->accepted) {
      accepted.push_back(emission.step->tokens[static_cast<size_t>(node)]);
    }
    const Path beam = Ids(expected.at("beams").at(expected.at("chosen_beam").get<size_t>()));
    const auto emitted = expected.at("num_emitted").get<int64_t>();
    EXPECT_EQ(accepted, Path(beam.begin() + 1, beam.begin() + emitted));
    return true;
  });
  EXPECT_EQ(step, one.at("steps").size());
  ASSERT_GE(result.token_ids.size(), tokens.size());
  EXPECT_TRUE(std::equal(tokens.begin(), tokens.end(), result.token_ids.begin()));
  // The last of theirs may be cut by their limit.
  ASSERT_GE(result.num_emitted.size(), lengths.size());
  EXPECT_TRUE(std::equal(lengths.begin(), lengths.end() - 1, result.num_emitted.begin()))
      << testing::PrintToString(result.num_emitted);
}

TEST(GoldenRedrafter, TreesTokensAndAcceptedLengthsEqualTheAuthors) {
  HYDRANT_NEED_SHARED();
  const Json json = base::ReadJsonFile(Folder("case.json"));
  ASSERT_EQ(json.at("cases").size(), 10U);
  std::map<std::string, std::unique_ptr<Engine>> engines;
  for (size_t i = 0; i < json.at("cases").size(); ++i) {
    const Json& one = json.at("cases").at(i);
    SCOPED_TRACE("case " + std::to_string(i));
    const auto heads = one.at("head").get<std::string>();
    std::vector<std::string> spellings = {heads, heads + "_lm_heads"};
    if (heads == "head") spellings.emplace_back("head_seq0");
    for (const std::string& spelling : spellings) {
      SCOPED_TRACE(spelling);
      std::unique_ptr<Engine>& engine = engines[spelling];
      if (engine == nullptr) engine = std::make_unique<Engine>(OptionsOf(spelling));
      ExpectCase(*engine, one);
    }
  }
  EXPECT_EQ(engines.size(), 5U);
}

// A sequence that has read `tokens`, and the tree that is drafted behind them.
class Drafted {
 public:
  Drafted(load::LoadedModel& loaded, const Path& tokens, int32_t root, const BeamOptions& beam)
      : pool_(loaded.kv_shape, 64), table_(&pool_) {
    const eval::EvalLogitsResult known = eval::EvalLogits(loaded, tokens, {});
    EXPECT_EQ(known.root, root);
    const auto state = loaded.drafter->NewState({});
    const auto count = static_cast<int32_t>(tokens.size());
    EXPECT_TRUE(table_.Reserve(count));
    table_.Append(count);
    const kernels::ConstRows hidden[] = {known.hidden};
    const draft::CommitInput commit{
        .state = state.get(), .kv = loaded.DraftKvIn(table_), .tokens = tokens, .hidden = hidden, .is_prompt = true};
    loaded.drafter->Commit(std::span(&commit, 1));
    const SamplingOptions sampling;
    sampling::NoiseCache noise(loaded.queue.table, 0, 512);
    const std::vector<int32_t> output = {root};
    draft::ProposeInput input;
    input.state = state.get();
    input.kv = loaded.DraftKvIn(table_);
    input.prompt = tokens;
    input.output = output;
    input.sampling = &sampling;
    input.noise = &noise;
    input.budget = {.max_nodes = 511, .max_depth = 64, .max_slots = draft::SlotsOf(beam)};
    input.beam = &beam;
    input.tree = &tree_;
    loaded.drafter->Propose(std::span(&input, 1));
  }

  const tree::TokenTree& tree() const { return tree_; }

 private:
  kv::BlockPool pool_;
  kv::BlockTable table_;
  tree::TokenTree tree_;
};

// The beams in the authors' order: what is deepest, best first.
void ExpectBeams(const tree::TokenTree& tree, const Json& step) {
  const tree::Topology& topology = tree.topology;
  std::vector<tree::NodeId> leaves;
  for (tree::NodeId node = topology.level_begin(topology.max_depth()); node < topology.num_nodes(); ++node) {
    leaves.push_back(node);
  }
  const auto score = [&](tree::NodeId node) { return static_cast<double>(tree.scores[static_cast<size_t>(node)]); };
  std::ranges::stable_sort(leaves, std::greater(), score);
  ASSERT_EQ(leaves.size(), step.at("beams").size());
  for (size_t b = 0; b < leaves.size(); ++b) {
    SCOPED_TRACE("beam " + std::to_string(b));
    Path tokens;
    std::vector<double> log_probabilities;
    for (const tree::NodeId node : topology.PathTo(leaves[b])) {
      tokens.push_back(tree.tokens[static_cast<size_t>(node)]);
      if (node > 0) {
        log_probabilities.push_back(std::log(score(node) / score(topology.parent()[static_cast<size_t>(node)])));
      }
    }
    EXPECT_EQ(tokens, Ids(step.at("beams").at(b)));
    EXPECT_NEAR(std::log(score(leaves[b])), step.at("beam_log_probs").at(b).get<double>(), kTolerance);
    const auto expected = step.at("token_log_probs").at(b).get<std::vector<double>>();
    ASSERT_EQ(log_probabilities.size(), expected.size());
    for (size_t t = 0; t < expected.size(); ++t) EXPECT_NEAR(log_probabilities[t], expected[t], kTolerance);
  }
}

TEST(GoldenRedrafter, BeamsAndTheirProbabilitiesEqualTheAuthors) {
  HYDRANT_NEED_SHARED();
  const Json json = base::ReadJsonFile(Folder("case.json"));
  std::map<std::string, std::unique_ptr<load::LoadedModel>> models;
  for (size_t i = 0; i < json.at("cases").size(); ++i) {
    const Json& one = json.at("cases").at(i);
    const auto heads = one.at("head").get<std::string>();
    std::unique_ptr<load::LoadedModel>& loaded = models[heads];
    if (loaded == nullptr) loaded = load::LoadModel(OptionsOf(heads));
    const Path output = Ids(one.at("output_ids"));
    for (size_t s = 0; s < one.at("steps").size(); ++s) {
      SCOPED_TRACE("case " + std::to_string(i) + " step " + std::to_string(s));
      const Json& step = one.at("steps").at(s);
      Path tokens = Ids(one.at("prompt_ids"));
      const auto known = step.at("context_length").get<size_t>() - tokens.size();
      tokens.insert(tokens.end(), output.begin(), output.begin() + static_cast<int64_t>(known));
      const Drafted drafted(*loaded, tokens, step.at("init_token").get<int32_t>(), BeamsOf(one));
      ExpectBeams(drafted.tree(), step);
    }
  }
}

// Their logits of a row, shifted by the largest and filtered.
void ExpectWarped(std::span<const float> logits, const float* warped) {
  std::vector<float> sorted(logits.begin(), logits.end());
  std::ranges::sort(sorted, std::greater());
  const float least = sorted[kBestTokens - 1];
  size_t left = 0;
  for (size_t t = 0; t < logits.size(); ++t) {
    const bool is_left = warped[t] > -10000;
    left += is_left ? 1 : 0;
    if (is_left) {
      EXPECT_NEAR(logits[t] - sorted.front(), warped[t], kTolerance) << t;
    }
    // What is filtered on one side only may be so by rounding alone.
    if (is_left != (logits[t] >= least)) {
      EXPECT_NEAR(logits[t], least, kTolerance) << t;
    }
  }
  EXPECT_GE(left, static_cast<size_t>(kBestTokens));
}

struct Beam {
  Path path;
  double score = 0;
};

// The beams that recorded logits of a level choose.
std::vector<Beam> Next(const std::vector<Beam>& beams, const Values& warped, size_t width) {
  const auto vocab = static_cast<size_t>(warped.shape[1]);
  std::vector<Beam> all;
  for (size_t b = 0; b < beams.size(); ++b) {
    const float* logits = warped.data.data() + b * vocab;
    double sum = 0;
    for (size_t t = 0; t < vocab; ++t) sum += std::exp(static_cast<double>(logits[t]));
    for (size_t t = 0; t < vocab; ++t) {
      all.push_back({beams[b].path, beams[b].score + static_cast<double>(logits[t]) - std::log(sum)});
      all.back().path.push_back(static_cast<int32_t>(t));
    }
  }
  std::ranges::stable_sort(all, std::greater(), &Beam::score);
  all.resize(width);
  return all;
}

// Every row of every recorded level: what follows each beam.
TEST(GoldenRedrafter, LogitsEqualTheAuthors) {
  HYDRANT_NEED_SHARED();
  const Json json = base::ReadJsonFile(Folder("case.json"));
  std::map<std::string, Values> expected = ReadValues(Folder("tensors.safetensors"));
  for (const size_t c : {size_t{2}, size_t{8}}) {
    const Json& one = json.at("cases").at(c);
    const auto loaded = load::LoadModel(OptionsOf(one.at("head").get<std::string>()));
    const Path output = Ids(one.at("output_ids"));
    const auto width = one.at("beam_width").get<size_t>();
    const std::string prefix = "case" + std::to_string(c) + ".";
    const Path prompt = Ids(one.at("prompt_ids"));
    EXPECT_LE(LargestDifference(eval::EvalLogits(*loaded, prompt, {}).logits, expected.at(prefix + "base.logits")),
              kTolerance);
    for (size_t s = 0; s < 3; ++s) {
      Path tokens = prompt;
      const auto known = one.at("steps").at(s).at("context_length").get<size_t>() - prompt.size();
      tokens.insert(tokens.end(), output.begin(), output.begin() + static_cast<int64_t>(known));
      std::vector<Beam> beams = {{}};
      for (size_t level = 0; level < 3; ++level) {
        SCOPED_TRACE(prefix + "step" + std::to_string(s) + ".level" + std::to_string(level));
        const Values& warped =
            expected.at(prefix + "step" + std::to_string(s) + ".level" + std::to_string(level) + ".warped_logits");
        for (size_t b = 0; b < beams.size(); ++b) {
          const eval::EvalLogitsResult result = eval::EvalLogits(*loaded, tokens, beams[b].path);
          ExpectWarped(std::as_const(result.head_logits).row_span(static_cast<int64_t>(level)),
                       warped.data.data() + b * static_cast<size_t>(warped.shape[1]));
        }
        beams = Next(beams, warped, width);
      }
    }
  }
}

}  // namespace
}  // namespace hydrant::test::golden_redrafter_test
