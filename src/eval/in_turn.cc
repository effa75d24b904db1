// SPDX-License-Identifier: Apache-2.0
#include "eval/in_turn.h"

#include <algorithm>
#include <utility>

#include "hydrant/error.h"

namespace hydrant::eval {
namespace {

void CheckEqual(std::span<const DecodingWay> ways, const Round& round, const std::vector<int32_t>& expected) {
  for (size_t way = 0; way < ways.size(); ++way) {
    const std::vector<int32_t>& found = round[way].token_ids;
    if (found == expected) continue;
    const auto at = std::ranges::mismatch(expected, found).in1 - expected.begin();
    throw InternalError(ways[way].name + " differs from " + ways.front().name + " at token " + std::to_string(at),
                        "this is a bug in hydrant; please report it with the command that led here");
  }
}

}  // namespace

std::vector<Round> RunInTurn(std::span<const DecodingWay> ways, const InTurnOptions& options) {
  std::vector<Round> rounds;
  std::vector<int32_t> expected;
  int64_t runs = 0;
  bool go_on = true;
  for (int number = 0; go_on && (number == 0 || options.wants_more(number - 1)); ++number) {
    Round round(ways.size());
    for (size_t i = 0; i < ways.size(); ++i) {
      if (!go_on) return rounds;
      const size_t way = (i + static_cast<size_t>(number)) % ways.size();
      round[way] = ways[way].run();
      if (round[way].finish_reason == FinishReason::kCancelled) return rounds;
      go_on = !options.on_run || options.on_run(++runs);
    }
    if (number == 0) expected = round.front().token_ids;
    if (options.must_be_equal) CheckEqual(ways, round, expected);
    if (number > 0) rounds.push_back(std::move(round));
  }
  return rounds;
}

}  // namespace hydrant::eval
