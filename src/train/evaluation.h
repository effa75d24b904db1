// SPDX-License-Identifier: Apache-2.0
// Tokens per step that heads give as they are now, on text that they are not trained on: the base's own replies are
// decoded once, and every evaluation replays a tree over the heads' ranks (eval/record.h). The heads are read from
// their files, as `hydrant run` would read them.
#pragma once

#include <cstdint>
#include <functional>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "base/json_fwd.h"
#include "eval/record.h"
#include "load/loaded_model.h"
#include "train/data/segments.h"
#include "train/data/token_data.h"

namespace hydrant::train {

// Takes `count` segments out, drawn with a seed of their own; at most a tenth of all.
std::vector<Segment> HoldOut(std::vector<Segment>& segments, int32_t count);

// The beginning of a segment as a prompt: what stands before the first learned token where that is a conversation's
// question, else 48 tokens; at most half of the segment, 1 token at least.
std::vector<int32_t> PromptOf(const TokenData& data, const Segment& segment);
// Of all held-out segments.
std::vector<std::vector<int32_t>> PromptsOf(const TokenData& data, std::span<const Segment> held_out);

struct EvaluationFigures {
  double tokens_per_step = 1, standard_error = 0;  // with the tree of 63 nodes (mc_sim_7b_63), cut to the heads' depth
  double emitted_per_step = 1;                     // likewise: what papers call the acceptance length
  double chain_per_step = 1;                       // tokens per step with a chain of four tokens, or fewer heads
};

base::Json JsonOf(const EvaluationFigures& figures);

class Evaluation {
 public:
  // `loaded` must outlive it. Decodes the replies: `max_tokens` each. `progress` may throw.
  Evaluation(load::LoadedModel& loaded, std::span<const std::vector<int32_t>> prompts, int32_t max_tokens,
             const std::function<void(double share)>& progress);

  // Of the heads in that folder.
  EvaluationFigures Run(const std::string& folder) const;

 private:
  load::LoadedModel* loaded_;
  std::vector<eval::RecordedReply> replies_;
};

}  // namespace hydrant::train
