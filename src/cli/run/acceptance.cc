// SPDX-License-Identifier: Apache-2.0
#include "cli/run/acceptance.h"

#include <fmt/core.h>

#include <cstdint>

namespace hydrant::cli {

std::string LowAcceptance(const GenerationResult& result) {
  // A tree that is chosen while text is generated gives such heads up: of 50 steps and more it drafts in a few.
  constexpr size_t kFewestSteps = 50;
  constexpr int64_t kFewestDrafting = 12;
  // Of a large tree few nodes can be accepted: of four levels of 63 nodes 6 %. Half a token a step is worth its while.
  constexpr double kShare = 0.02, kPerStep = 0.5;
  const int64_t steps = (result.depth_offered.empty() ? 0 : result.depth_offered.front()) - result.num_lookup_steps;
  const int64_t drafted = result.num_drafted - result.num_looked_up;
  if (result.num_emitted.size() < kFewestSteps || steps < kFewestDrafting || drafted <= 0) return "";
  const int64_t accepted = result.num_accepted() - result.num_looked_up_accepted;
  const double share = static_cast<double>(accepted) / static_cast<double>(drafted);
  if (share >= kShare || static_cast<double>(accepted) >= kPerStep * static_cast<double>(steps)) return "";
  return fmt::format(
      "{:.1f} % of {} drafted tokens were accepted in {} steps: these heads may be those of another base, and plain "
      "decoding (without --draft) may be faster",
      100 * share, drafted, steps);
}

}  // namespace hydrant::cli
