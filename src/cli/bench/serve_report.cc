// SPDX-License-Identifier: Apache-2.0
#include "cli/bench/serve_report.h"

#include <fmt/core.h>

#include <algorithm>
#include <span>
#include <utility>

#include "base/json.h"
#include "cli/bench/flags.h"

namespace hydrant::cli {
namespace {

using base::Json;
using traffic::Figures;
using traffic::LoadResult;
using traffic::Summary;

constexpr double kBusyClient = 0.8;  // of a core: replies may wait for the client then

PlainComparison Compared(const ServeWayResult& drafts, const ServeWayResult& plain) {
  PlainComparison comparison;
  comparison.name = drafts.way.name;
  std::vector<double> throughputs, per_tokens;
  for (size_t r = 0; r < std::min(drafts.runs.size(), plain.runs.size()); ++r) {
    if (drafts.runs[r].is_stopped || plain.runs[r].is_stopped) continue;
    const Figures with = traffic::FiguresOf(std::span(&drafts.runs[r], 1));
    const Figures without = traffic::FiguresOf(std::span(&plain.runs[r], 1));
    if (without.tokens_per_second() > 0) throughputs.push_back(with.tokens_per_second() / without.tokens_per_second());
    if (with.per_token.p50 > 0) per_tokens.push_back(without.per_token.p50 / with.per_token.p50);
  }
  comparison.rounds = throughputs.size();
  comparison.throughput = eval::SpreadOf(std::move(throughputs));
  comparison.per_token = eval::SpreadOf(std::move(per_tokens));
  return comparison;
}

std::vector<std::string> WarningsOf(const std::vector<ServeWayResult>& ways) {
  std::vector<std::string> warnings;
  for (const ServeWayResult& way : ways) {
    if (way.figures.cpu_share > kBusyClient) {
      warnings.push_back(fmt::format("{}: this client used {:.0f} % of a core, so it may have slowed the replies",
                                     way.way.name, 100 * way.figures.cpu_share));
    }
    if (!way.figures.has_usage) {
      warnings.push_back(fmt::format(
          "{}: the server does not say how many tokens its replies have; events were counted", way.way.name));
    }
  }
  return warnings;
}

// The four times of a way, under their names in the table and in JSON.
struct NamedTimes {
  const char* title;
  const char* key;
  Summary Figures::*summary;
};
constexpr NamedTimes kTimes[] = {{"to the first token (TTFT)", "ttft_ms", &Figures::first_token},
                                 {"per token (TPOT)", "tpot_ms", &Figures::per_token},
                                 {"between events (ITL)", "itl_ms", &Figures::between},
                                 {"whole reply", "latency_ms", &Figures::whole}};

std::string ErrorsText(const ServeWayResult& way) {
  std::string text;
  if (way.figures.num_dropped > 0) {
    text += fmt::format("{}: {} prompts were dropped, because as many as may be were open\n", way.way.name,
                        way.figures.num_dropped);
  }
  if (way.figures.errors.empty()) return text;
  std::string kinds;
  for (const auto& [kind, count] : way.figures.errors) {
    kinds += fmt::format("{}{} {} times", kinds.empty() ? "" : ", ", kind, count);
  }
  return text + fmt::format("{}: {}; the first: {}\n", way.way.name, kinds, way.figures.first_problem);
}

std::string ComparisonText(const BenchServeResult& result) {
  std::string text;
  for (const PlainComparison& one : result.comparisons) {
    if (one.rounds == 0) continue;
    text += fmt::format(
        "{}: with drafts {:.2f}x the tokens/s of plain decoding ({:.2f} .. {:.2f}), and after the first token {:.2f}x "
        "as "
        "fast ({:.2f} .. {:.2f}); medians, least and most of {} rounds\n",
        one.name, one.throughput.median, one.throughput.min, one.throughput.max, one.per_token.median,
        one.per_token.min, one.per_token.max, one.rounds);
  }
  if (result.num_different > 0) {
    return text + fmt::format("{} of {} texts differ; {}\n", result.num_different, result.num_compared,
                              result.first_difference);
  }
  if (result.num_compared == 0) return text + "No text was compared: no prompt was answered both ways.\n";
  return text + fmt::format("All {} texts that were compared are equal.\n", result.num_compared);
}

Json WayJson(const BenchServeOptions& options, const ServeWayResult& way) {
  const Figures& figures = way.figures;
  Json json = {{"name", way.way.name},
               {"concurrency", way.way.concurrency > 0 ? Json(way.way.concurrency) : Json()},
               {"rate", way.way.concurrency > 0 ? Json() : Json(options.plan.rate)},
               {"plain", way.way.is_plain},
               {"rounds", way.runs.size()},
               {"requests", figures.num_replies},
               {"failed", figures.num_failed},
               {"dropped", figures.num_dropped},
               {"errors", Json::object()},
               {"first_error", figures.first_problem.empty() ? Json() : Json(figures.first_problem)},
               {"seconds", figures.seconds},
               {"prompt_tokens", figures.num_prompt_tokens},
               {"output_tokens", figures.num_tokens},
               {"tokens_counted_by", figures.has_usage ? "usage" : "events"},
               {"tokens_per_step", figures.tokens_per_step > 0 ? Json(figures.tokens_per_step) : Json()},
               {"client_cpu_share", figures.cpu_share}};
  for (const auto& [kind, count] : figures.errors) json["errors"][kind] = count;
  PutSpread(json, "output_tokens_per_second", way.tokens_per_second);
  PutSpread(json, "requests_per_second", way.replies_per_second);
  for (const NamedTimes& times : kTimes) {
    const Summary& one = figures.*times.summary;
    json[times.key] = {{"count", one.count}, {"mean", one.mean}, {"p50", one.p50}, {"p95", one.p95},
                       {"p99", one.p99},     {"min", one.min},   {"max", one.max}};
  }
  return json;
}

}  // namespace

BenchServeResult SummedUp(const BenchServeOptions& options, std::vector<std::vector<LoadResult>> runs,
                          const traffic::TextComparison& texts) {
  BenchServeResult result;
  for (size_t w = 0; w < options.ways.size(); ++w) {
    ServeWayResult way;
    way.way = options.ways[w];
    way.runs = std::move(runs[w]);
    way.figures = traffic::FiguresOf(way.runs);
    std::vector<double> tokens, replies;
    for (const LoadResult& run : way.runs) {
      const Figures own = traffic::FiguresOf(std::span(&run, 1));
      tokens.push_back(own.tokens_per_second());
      replies.push_back(own.replies_per_second());
    }
    way.tokens_per_second = eval::SpreadOf(std::move(tokens));
    way.replies_per_second = eval::SpreadOf(std::move(replies));
    result.ways.push_back(std::move(way));
  }
  for (size_t w = 0; options.compares_plain && w + 1 < result.ways.size(); w += 2) {
    result.comparisons.push_back(Compared(result.ways[w], result.ways[w + 1]));
  }
  result.num_compared = texts.num_compared();
  result.num_different = texts.num_different();
  result.first_difference = texts.first();
  result.warnings = WarningsOf(result.ways);
  return result;
}

std::string BenchServeText(const BenchServeOptions& options, const traffic::Suite& suite,
                           const BenchServeResult& result) {
  std::string text =
      fmt::format("{} at {}: {}, {} prompts ({}), at most {} tokens, temperature {}\n", options.request.model,
                  options.server.url.Text(), options.request.is_chat ? "chat" : "completions", suite.prompts.size(),
                  suite.form, options.request.max_tokens, options.request.temperature);
  text += fmt::format("\n{:16} {:>8} {:>6} {:>9} {:>19} {:>10} {:>11} {:>10}\n", "", "requests", "failed", "tokens/s",
                      "least .. most", "requests/s", "tokens/step", "client CPU");
  for (const ServeWayResult& way : result.ways) {
    const eval::Spread& rate = way.tokens_per_second;
    text += fmt::format("{:16} {:8} {:6} {:9.1f} {:>19} {:10.2f} {:>11} {:8.0f} %\n", way.way.name,
                        way.figures.num_replies, way.figures.num_failed, rate.median,
                        fmt::format("{:.1f} .. {:.1f}", rate.min, rate.max), way.replies_per_second.median,
                        way.figures.tokens_per_step > 0 ? fmt::format("{:.2f}", way.figures.tokens_per_step) : "-",
                        100 * way.figures.cpu_share);
  }
  text += fmt::format("\n{:16} {:26} {:>10} {:>10} {:>10} {:>10}\n", "milliseconds", "", "mean", "p50", "p95", "p99");
  for (const ServeWayResult& way : result.ways) {
    for (const NamedTimes& times : kTimes) {
      const Summary& one = way.figures.*times.summary;
      text += fmt::format("{:16} {:26} {:10.2f} {:10.2f} {:10.2f} {:10.2f}\n", &times == kTimes ? way.way.name : "",
                          times.title, one.mean, one.p50, one.p95, one.p99);
    }
  }
  text += "\n";
  for (const ServeWayResult& way : result.ways) text += ErrorsText(way);
  return options.compares_plain ? text + ComparisonText(result) : text;
}

Json BenchServeJson(const BenchServeOptions& options, const traffic::Suite& suite, const BenchServeResult& result) {
  Json json = {{"url", options.server.url.Text()},
               {"model", options.request.model},
               {"suite", options.suite_file},
               {"suite_form", suite.form},
               {"prompts", suite.prompts.size()},
               {"api", options.request.is_chat ? "chat" : "completions"},
               {"max_tokens", options.request.max_tokens},
               {"temperature", options.request.temperature},
               {"seed", options.request.seed},
               {"ignore_eos", options.request.ignore_eos},
               {"rounds", options.rounds},
               {"version", HYDRANT_VERSION},
               {"warnings", result.warnings},
               {"ways", Json::array()}};
  for (const ServeWayResult& way : result.ways) json["ways"].push_back(WayJson(options, way));
  if (!options.compares_plain) return json;
  json["comparisons"] = Json::array();
  for (const PlainComparison& one : result.comparisons) {
    Json entry = {{"name", one.name}, {"rounds", one.rounds}};
    PutSpread(entry, "throughput_ratio", one.throughput);
    PutSpread(entry, "tpot_ratio", one.per_token);
    json["comparisons"].push_back(std::move(entry));
  }
  json["texts"] = {{"compared", result.num_compared},
                   {"different", result.num_different},
                   {"first_difference", result.first_difference.empty() ? Json() : Json(result.first_difference)}};
  return json;
}

}  // namespace hydrant::cli
