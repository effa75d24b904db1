// SPDX-License-Identifier: Apache-2.0
// The base model's own replies, and where their tokens stand in the order of a drafter's heads: what decoding with any
// tree is replayed from (tree/replay.h). docs/algorithms/replay.md
#pragma once

#include <cstdint>
#include <functional>
#include <span>
#include <vector>

#include "draft/drafter.h"
#include "hydrant/generation.h"
#include "kernels/ops/queue.h"
#include "load/loaded_model.h"
#include "model/weights.h"
#include "tree/replay.h"

namespace hydrant::eval {

struct RecordedReply {
  std::vector<int32_t> prompt_ids;
  std::vector<int32_t> token_ids;  // of the reply, as GenerationResult has them
  std::vector<int32_t> past_end;   // with what the base model goes on behind its end, were there none
  FinishReason finish_reason = FinishReason::kLength;
  uint64_t seed = 0;  // of its noise

  bool operator==(const RecordedReply&) const = default;
};

struct RecordOptions {
  SamplingOptions sampling = {};  // reply i is sampled with the seed sampling.seed + i
  StopOptions stop = {};
  // Tokens to decode behind each reply's end. Levels less one are enough for every row; with fewer the last rows'
  // deepest levels have no rank.
  int32_t past_end = 15;
  int32_t num_levels = 0;                           // K, at most the drafter's; 0: Drafter::usual_depth
  int32_t num_ranks = 64;                           // W, 1 to tree::kNoRank
  int32_t side_by_side = 16;                        // replies that share the passes over weights
  std::function<void(double share)> progress = {};  // called now and then; may throw to end it
};

// Decodes plainly: each reply is what the engine gives for that prompt alone, with or without a drafter. Throws
// UserError as Engine::Submit does.
std::vector<RecordedReply> RecordReplies(load::LoadedModel& loaded, std::span<const std::vector<int32_t>> prompts,
                                         const RecordOptions& options);

// Who computes ranks. The drafter may be another one than the loaded model's, such as heads in training.
struct RankContext {
  kernels::Queue* queue = nullptr;            // the drafter's, too
  const model::ModelWeights* base = nullptr;  // the drafter's, too
  draft::Drafter* drafter = nullptr;
  DType kv_type = DType::kF32;
  int32_t chunk = 256;  // rows of the base model's passes
};
// Of the loaded model and its drafter.
RankContext RankContextOf(load::LoadedModel& loaded);

// Ranks tokens by `sampling`, with the seeds of the replies. Hidden states are not kept from call to call: each call
// reads every text anew, as a prompt, in passes of `chunk` rows. Throws UserError for replies that do not fit the base
// model, and for a drafter that ranks no tokens (lookups, several drafters together).
tree::RankTable RecordRanks(const RankContext& context, std::span<const RecordedReply> replies,
                            const RecordOptions& options);

struct Recording {
  std::vector<RecordedReply> replies;
  tree::RankTable ranks;

  bool operator==(const Recording&) const = default;
};

// Both, with as many tokens past the end as the levels need.
Recording Record(load::LoadedModel& loaded, std::span<const std::vector<int32_t>> prompts, RecordOptions options);

}  // namespace hydrant::eval
