// SPDX-License-Identifier: Apache-2.0
#include "cli/run/compare.h"

#include <fmt/core.h>

#include <algorithm>
#include <chrono>
#include <functional>
#include <numeric>
#include <span>
#include <utility>

#include "cli/terminal/progress.h"
#include "cli/terminal/stream.h"
#include "cli/terminal/terminal.h"
#include "eval/in_turn.h"
#include "eval/spread.h"

namespace hydrant::cli {
namespace {

// Of a comparison: short generations need many, because neighbours of the machine come and go within a second.
constexpr int32_t kLeastRounds = 3;
constexpr double kLeastSeconds = 2, kSecondsPerWay = 0.3;

using eval::DecodingWay;
using eval::Round;

// At least kLeastRounds of each way, until the time is over. Nothing when interrupted.
std::vector<Round> InTurn(std::span<const DecodingWay> ways, const std::string& title) {
  Progress progress(title);
  const auto start = std::chrono::steady_clock::now();
  const double planned = std::max(kLeastSeconds, kSecondsPerWay * static_cast<double>(ways.size()));
  const auto share = [&](int rounds) {  // done; the untimed one counts
    const std::chrono::duration<double> seconds = std::chrono::steady_clock::now() - start;
    return std::min((rounds + 1.0) / (kLeastRounds + 1), seconds.count() / planned);
  };
  eval::InTurnOptions options;
  options.on_run = [](int64_t) { return !Interrupted(); };
  options.wants_more = [&](int rounds) {
    progress.Update(std::min(share(rounds), 1.0));
    return share(rounds) < 1;
  };
  std::vector<Round> rounds = eval::RunInTurn(ways, options);
  if (Interrupted()) return {};
  return rounds;
}

// Decodes that way. All three stay where they are for as long as the way is used.
DecodingWay Decode(const Drafting& drafting, Engine& engine, GenerationRequest& request) {
  return {fmt::format("tree {}, probability {}, lookup {}", drafting.tree.empty() ? "of the heads" : drafting.tree,
                      drafting.p_min, drafting.lookup),
          [&] {
            drafting.Use(engine, request);
            return GenerateSilently(engine, request);
          }};
}

// Of the way in use.
TreeSpeed SpeedOf(const GenerationRequest& request, std::span<const Round> rounds, size_t way) {
  std::vector<GenerationResult> runs;
  for (const Round& round : rounds) runs.push_back(round[way]);
  const TreeReport& tree = runs.front().tree;
  const std::string fixed = tree.chosen.name.empty() ? "none" : tree.chosen.name;  // lookups alone
  return {.name = tree.is_auto ? "auto" : fixed,
          .choices = tree.is_auto ? "[]" : tree.chosen.choices,  // auto: another tree in each step
          .nodes = tree.most_nodes,
          .p_min = request.draft_p_min,
          .lookup = request.lookup.max_tokens,
          .figures = MedianFigures(runs)};
}

// Of each way: its speed over the mean of its round, the median. Rounds differ more than ways do.
std::vector<double> RelativeSpeeds(std::span<const Round> rounds) {
  std::vector<std::vector<double>> speeds(rounds.front().size());  // [ways] of [rounds]
  for (const Round& round : rounds) {
    double sum = 0;
    for (const GenerationResult& run : round) sum += TokensPerSecond(run);
    for (size_t way = 0; way < round.size(); ++way) speeds[way].push_back(TokensPerSecond(round[way]) / sum);
  }
  std::vector<double> medians;
  for (std::vector<double>& speed : speeds) medians.push_back(eval::SpreadOf(std::move(speed)).median);
  return medians;
}

// Every tree with every smallest probability and every longest lookup.
std::vector<Drafting> DraftingsOf(const RunOptions& options) {
  const std::vector<std::string> trees = options.trees.empty() ? std::vector<std::string>{""} : options.trees;
  const std::vector<float> p_mins = options.draft_p_mins.empty() ? std::vector<float>{0} : options.draft_p_mins;
  const std::vector<int32_t> lookups = options.lookups.empty() ? std::vector<int32_t>{0} : options.lookups;
  std::vector<Drafting> draftings;
  for (const std::string& tree : trees) {
    for (const float p_min : p_mins) {
      for (const int32_t lookup : lookups) draftings.push_back({tree, p_min, lookup});
    }
  }
  return draftings;
}

// Where more ways are tried, so many of the fastest are tried again, and of those without lookups, and the choice is
// by these runs alone: the fastest of many noisy figures owes its place to luck in part.
constexpr size_t kTriedAgain = 4;

// Of all ways, those to try again, by their speeds: in the order of the ways.
std::vector<size_t> WaysToTryAgain(std::span<const Drafting> draftings, std::span<const double> speeds) {
  std::vector<size_t> by_speed(draftings.size()), again;
  std::iota(by_speed.begin(), by_speed.end(), size_t{0});
  std::ranges::stable_sort(by_speed, std::greater(), [&](size_t way) { return speeds[way]; });
  size_t any = 0, alone = 0;
  for (const size_t way : by_speed) {
    const bool heads_alone = draftings[way].lookup == 0;
    if (any >= kTriedAgain && !(heads_alone && alone < kTriedAgain)) continue;
    again.push_back(way);
    ++any;
    if (heads_alone) ++alone;
  }
  std::ranges::sort(again);
  return again;
}

// Ways beside each other, in runs of their own.
struct Trial {
  std::vector<TreeSpeed> figures;  // [ways]; empty: interrupted
  std::vector<double> speeds;      // RelativeSpeeds
};
Trial Try(Engine& engine, GenerationRequest& request, std::span<const Drafting> draftings, const std::string& title) {
  std::vector<DecodingWay> ways;
  for (const Drafting& drafting : draftings) ways.push_back(Decode(drafting, engine, request));
  const std::vector<Round> rounds = InTurn(ways, title);
  if (rounds.empty()) return {};
  Trial trial{.figures = {}, .speeds = RelativeSpeeds(rounds)};
  for (size_t way = 0; way < draftings.size(); ++way) {
    draftings[way].Use(engine, request);
    trial.figures.push_back(SpeedOf(request, rounds, way));
  }
  return trial;
}

}  // namespace

void Drafting::Use(const Engine& engine, GenerationRequest& request) const {
  if (engine.info().num_heads > 0) request.tree = tree;
  request.draft_p_min = p_min;
  request.lookup.max_tokens = lookup;
}

Choice ChooseDrafting(Engine& engine, const RunOptions& options, GenerationRequest& request) {
  std::vector<Drafting> draftings = DraftingsOf(options);
  Choice choice{.tried = {}, .tried_again = {}, .fastest = draftings.front(), .heads_alone = {}};
  if (draftings.size() == 1) return choice;
  Trial trial = Try(engine, request, draftings, "trying trees");
  if (trial.figures.empty()) return choice;
  choice.tried = std::move(trial.figures);
  const std::vector<size_t> again = WaysToTryAgain(draftings, trial.speeds);
  if (again.size() < draftings.size()) {
    std::vector<Drafting> left;
    for (const size_t way : again) left.push_back(draftings[way]);
    draftings = std::move(left);
    trial = Try(engine, request, draftings, "trying the fastest again");
    if (trial.figures.empty()) return choice;
    choice.tried_again = std::move(trial.figures);
  }
  const auto speed = [&](size_t way) { return trial.speeds[way]; };
  std::vector<size_t> ways(draftings.size());
  std::iota(ways.begin(), ways.end(), size_t{0});
  const size_t best = *std::ranges::max_element(ways, {}, speed);
  std::erase_if(ways, [&](size_t way) { return draftings[way].lookup > 0; });
  choice.fastest = draftings[best];
  if (engine.info().num_heads > 0 && !ways.empty() && draftings[best].lookup > 0) {
    choice.heads_alone = draftings[*std::ranges::max_element(ways, {}, speed)];
  }
  choice.fastest.Use(engine, request);
  return choice;
}

std::optional<Comparison> CompareWithPlain(Engine& engine, GenerationRequest request, Choice choice) {
  GenerationRequest plain = request;
  plain.use_drafter = false;
  std::vector<DecodingWay> ways = {{"plain decoding", [&] { return GenerateSilently(engine, plain); }},
                                   Decode(choice.fastest, engine, request)};
  if (choice.heads_alone) ways.push_back(Decode(*choice.heads_alone, engine, request));
  const std::vector<Round> rounds = InTurn(ways, "comparing with plain decoding");
  if (rounds.empty()) return std::nullopt;
  const auto speedup = [&](size_t way) {
    std::vector<double> speedups;
    for (const Round& round : rounds) speedups.push_back(TokensPerSecond(round[way]) / TokensPerSecond(round[0]));
    return eval::SpreadOf(std::move(speedups)).median;
  };
  Comparison comparison;
  comparison.tried = std::move(choice.tried);
  comparison.tried_again = std::move(choice.tried_again);
  comparison.plain = SpeedOf(plain, rounds, 0).figures;
  comparison.rounds = rounds.size();
  if (choice.heads_alone) {
    choice.heads_alone->Use(engine, request);
    comparison.heads_alone = SpeedOf(request, rounds, 2);
    comparison.heads_alone_speedup = speedup(2);
  }
  choice.fastest.Use(engine, request);
  comparison.drafted = SpeedOf(request, rounds, 1);
  comparison.speedup = speedup(1);
  return comparison;
}

}  // namespace hydrant::cli
