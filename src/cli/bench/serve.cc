// SPDX-License-Identifier: Apache-2.0
#include <fmt/core.h>

#include <utility>

#include "base/json.h"
#include "cli/bench/bench.h"
#include "cli/bench/serve_options.h"
#include "cli/bench/serve_report.h"
#include "cli/terminal/errors.h"
#include "cli/terminal/escape.h"
#include "cli/terminal/progress.h"
#include "cli/terminal/terminal.h"
#include "hydrant/error.h"

namespace hydrant::cli {
namespace {

using traffic::LoadPlan;
using traffic::LoadResult;

// All ways in turn, round after round.
class Measuring {
 public:
  Measuring(const BenchServeOptions& options, const traffic::Suite& suite)
      : options_(options), suite_(suite), runs_(options.ways.size()) {}

  void Run() {
    WarmUp();
    // Each round begins with another way, so that two ways are in the order AB BA AB BA.
    for (size_t round = 0; round < static_cast<size_t>(options_.rounds); ++round) {
      for (size_t i = 0; i < options_.ways.size(); ++i) {
        if (Interrupted()) return;
        const size_t w = (i + round) % options_.ways.size();
        const ServeWay& way = options_.ways[w];
        const std::string title = fmt::format("round {} of {}, {}", round + 1, options_.rounds, way.name);
        Keep(w, RunWay(way, PlanOf(way), title));
      }
    }
  }

  std::vector<std::vector<LoadResult>> TakeRuns() { return std::move(runs_); }
  const traffic::TextComparison& texts() const { return texts_; }

 private:
  LoadPlan PlanOf(const ServeWay& way) const {
    LoadPlan plan = options_.plan;
    if (way.concurrency > 0) {
      plan.concurrency = way.concurrency;
      plan.rate = 0;
    }
    return plan;
  }

  LoadResult RunWay(const ServeWay& way, const LoadPlan& plan, const std::string& title) {
    traffic::RequestSettings settings = options_.request;
    settings.is_plain = way.is_plain;
    Progress progress(title);
    LoadResult result = traffic::RunLoad(options_.server, suite_, settings, plan, [&](const auto& state) {
      progress.Update(state.share,
                      fmt::format("{} open, {} done, {} failed", state.num_open, state.num_done, state.num_failed));
      return !Interrupted();
    });
    if (options_.compares_plain) texts_.Add(way.name, result);
    return result;
  }

  // Texts stay in the comparison alone, which has its own copy of the first of each.
  void Keep(size_t way, LoadResult result) {
    for (traffic::Reply& reply : result.replies) std::string().swap(reply.text);
    runs_[way].push_back(std::move(result));
  }

  // A server's first replies may be slow, and what its caches hold should be the same for all ways. Whatever is wrong
  // with every request shows here.
  void WarmUp() {
    for (const ServeWay& way : options_.ways) {
      if (Interrupted() || options_.warmup == 0) return;
      LoadPlan plan = PlanOf(way);
      if (options_.warmup > 0 || !options_.compares_plain) {
        plan.rate = plan.seconds = 0;
        plan.num_prompts = options_.warmup > 0 ? options_.warmup : plan.concurrency;
      }
      const LoadResult result = RunWay(way, plan, "warming up, " + way.name);
      const traffic::Figures figures = traffic::FiguresOf(std::span(&result, 1));
      if (result.is_stopped || figures.num_replies > 0 || figures.num_failed == 0) continue;
      throw UserError(fmt::format("{}: no request was answered; {}", options_.server.url.Text(), figures.first_problem),
                      way.is_plain ? "plain decoding can be asked of hydrant only: leave out --compare-plain" : "");
    }
  }

  const BenchServeOptions& options_;
  const traffic::Suite& suite_;
  std::vector<std::vector<LoadResult>> runs_;  // by way
  traffic::TextComparison texts_;
};

}  // namespace

int BenchServe(const std::vector<std::string>& args) {
  std::optional<BenchServeOptions> parsed = ParseBenchServeFlags(args);
  if (!parsed) return kExitOk;
  BenchServeOptions& options = *parsed;
  const traffic::Suite suite = traffic::ReadSuite(options.suite_file);
  const std::string served = traffic::FindModel(options.server);
  if (options.request.model.empty()) options.request.model = served;
  Measuring measuring(options, suite);
  measuring.Run();
  const BenchServeResult result = SummedUp(options, measuring.TakeRuns(), measuring.texts());
  PrintWarnings(result.warnings);
  bool has_replies = false;
  for (const ServeWayResult& way : result.ways) has_replies = has_replies || way.figures.num_replies > 0;
  if (!has_replies && Interrupted()) return InterruptedExit();
  Print(options.json ? base::DumpJson(BenchServeJson(options, suite, result)) + "\n"
                     : EscapedName(BenchServeText(options, suite, result), "\n"));
  if (!has_replies) throw UserError(options.server.url.Text() + ": no request was answered");
  if (result.num_different > 0) return kExitOurs;
  return Interrupted() ? InterruptedExit() : kExitOk;
}

}  // namespace hydrant::cli
