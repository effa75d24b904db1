// SPDX-License-Identifier: Apache-2.0
#include "train/evaluation.h"

#include <algorithm>
#include <memory>

#include "base/json.h"
#include "draft/drafter.h"
#include "model/linear_packer.h"
#include "model/weight_arranger.h"
#include "train/data/random.h"
#include "tree/parse.h"
#include "tree/replay.h"

namespace hydrant::train {
namespace {

constexpr uint64_t kHoldOutSeed = 20240229;
constexpr int32_t kPromptTokens = 48, kFewTokens = 8;
constexpr const char *kTree = "mc_sim_7b_63", *kChain = "chain";

}  // namespace

std::vector<Segment> HoldOut(std::vector<Segment>& segments, int32_t count) {
  const size_t most = segments.size() / 10;
  Random random(kHoldOutSeed);
  std::vector<int32_t> order = ShuffledIndices(segments.size(), random);
  order.resize(std::min(most, static_cast<size_t>(std::max(0, count))));
  std::vector<bool> is_out(segments.size());
  std::vector<Segment> out, rest;
  for (const int32_t index : order) {
    is_out[static_cast<size_t>(index)] = true;
    out.push_back(segments[static_cast<size_t>(index)]);
  }
  for (size_t i = 0; i < segments.size(); ++i) {
    if (!is_out[i]) rest.push_back(segments[i]);
  }
  segments = std::move(rest);
  return out;
}

std::vector<int32_t> PromptOf(const TokenData& data, const Segment& segment) {
  const auto tokens =
      std::span(data.tokens).subspan(static_cast<size_t>(segment.begin), static_cast<size_t>(segment.count));
  const auto learned = std::span(data.learned).subspan(static_cast<size_t>(segment.begin), tokens.size());
  const auto first = static_cast<int32_t>(std::find(learned.begin(), learned.end(), 1) - learned.begin());
  const int32_t wanted = first >= kFewTokens ? first : kPromptTokens;
  const int32_t count = std::max(1, first >= kFewTokens ? wanted : std::min(wanted, segment.count / 2));
  return {tokens.begin(), tokens.begin() + std::min(count, segment.count)};
}

std::vector<std::vector<int32_t>> PromptsOf(const TokenData& data, std::span<const Segment> held_out) {
  std::vector<std::vector<int32_t>> prompts;
  for (const Segment& segment : held_out) prompts.push_back(PromptOf(data, segment));
  return prompts;
}

base::Json JsonOf(const EvaluationFigures& figures) {
  return {{"tokens_per_step", figures.tokens_per_step},
          {"standard_error", figures.standard_error},
          {"emitted_per_step", figures.emitted_per_step},
          {"chain_tokens_per_step", figures.chain_per_step}};
}

Evaluation::Evaluation(load::LoadedModel& loaded, std::span<const std::vector<int32_t>> prompts, int32_t max_tokens,
                       const std::function<void(double share)>& progress)
    : loaded_(&loaded) {
  eval::RecordOptions options;
  options.stop.max_tokens = max_tokens;
  options.progress = progress;
  replies_ = eval::RecordReplies(loaded, prompts, options);
}

EvaluationFigures Evaluation::Run(const std::string& folder) const {
  model::LinearPacker packer(loaded_->pool.get(), {});
  model::WeightArranger arranger(loaded_->queue.table, loaded_->pool.get());
  draft::HeadPacking packing{.choice = {}, .packer = &packer, .arranger = &arranger};
  std::vector<std::string> warnings;
  const std::unique_ptr<draft::Drafter> drafter =
      draft::MakeDrafter(folder, loaded_->weights, &loaded_->queue, packing, &warnings);
  const eval::RankContext context{.queue = &loaded_->queue,
                                  .base = &loaded_->weights,
                                  .drafter = drafter.get(),
                                  .kv_type = loaded_->kv_shape.dtype,
                                  .chunk = loaded_->options.prefill_chunk};
  eval::RecordOptions options;
  const tree::Topology tree = tree::Preset(kTree), chain = tree::Preset(kChain);
  const int32_t levels = std::min(tree.max_depth(), drafter->usual_depth());
  options.num_levels = levels;
  const tree::RankTable ranks = eval::RecordRanks(context, replies_, options);
  const tree::Replayed with_tree = tree::Replay(ranks, tree.CutToDepth(levels));
  const tree::Replayed with_chain = tree::Replay(ranks, chain.CutToDepth(std::min(levels, chain.max_depth())));
  return {.tokens_per_step = with_tree.tokens_per_step,
          .standard_error = with_tree.standard_error,
          .emitted_per_step = with_tree.emitted_per_step(),
          .chain_per_step = with_chain.tokens_per_step};
}

}  // namespace hydrant::train
