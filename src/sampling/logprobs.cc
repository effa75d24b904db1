// SPDX-License-Identifier: Apache-2.0
#include "sampling/logprobs.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <vector>

#include "sampling/choose.h"

namespace hydrant::sampling {

TokenLogprobs LogprobsOf(std::span<const float> logits, int32_t token, int32_t count) {
  float largest = -std::numeric_limits<float>::infinity();
  for (const float logit : logits) largest = logit > largest ? logit : largest;
  double sum = 0;
  for (const float logit : logits) {
    if (!std::isnan(logit)) sum += std::exp(static_cast<double>(logit) - static_cast<double>(largest));
  }
  const double log_sum = std::log(sum);  // of what is above, so that large logits keep their digits
  const auto value_of = [&](int32_t id) {
    const float logit = logits[static_cast<size_t>(id)];
    return std::isnan(logit) ? -std::numeric_limits<float>::infinity()
                             : static_cast<float>(static_cast<double>(logit) - static_cast<double>(largest) - log_sum);
  };
  TokenLogprobs logprobs{.chosen = value_of(token), .top = {}};
  if (count <= 0) return logprobs;
  std::vector<int32_t> best;
  TopK(logits, count, best);
  for (const int32_t id : best) logprobs.top.push_back({.token_id = id, .value = value_of(id)});
  return logprobs;
}

}  // namespace hydrant::sampling
