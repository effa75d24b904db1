// SPDX-License-Identifier: Apache-2.0
#include <fmt/core.h>

#include <algorithm>

#include "base/json.h"
#include "cli/bench/batch.h"
#include "cli/bench/flags.h"
#include "cli/flags/values.h"

namespace hydrant::cli {
namespace {

using base::Json;

bool IsSuite(const BatchCommand& command) { return !command.suite_file.empty(); }

Json RowJson(const BatchCommand& command, const eval::BatchRow& row) {
  Json json = {{"sequences", row.sequences},     {"tokens_per_step", row.tokens_per_step},
               {"num_emitted", row.num_emitted}, {"nodes_per_step", row.nodes_per_step},
               {"draft_ms", row.draft_ms},       {"forward_ms", row.forward_ms},
               {"prompt_ms", row.prompt_ms},     {"tree", row.tree.empty() ? Json() : Json(row.tree)}};
  PutSpread(json, "tokens_per_second", row.tokens_per_second);
  if (!IsSuite(command)) PutSpread(json, "decode_tokens_per_second", row.decode_tokens_per_second);
  PutSpread(json, "speedup", row.speedup);
  return json;
}

}  // namespace

Json BatchJson(const BatchCommand& command, const EngineInfo& info, std::span<const eval::BatchMethod> methods,
               const eval::BatchResult& result) {
  const EngineOptions& engine = command.run.engine;
  const GenerationRequest& request = command.run.request;
  Json json = {{"model", engine.model},
               {"draft", engine.draft.empty() ? Json() : Json(engine.draft)},
               {"more_drafts", engine.more_drafts},
               {"suite", IsSuite(command) ? Json(command.suite_file) : Json()},
               {"prompt_tokens", IsSuite(command) ? Json() : Json(command.prompt_tokens)},
               {"tokens", request.stop.max_tokens},
               {"ignore_eos", request.stop.ignore_eos},
               {"temperature", ShortestDouble(request.sampling.temperature)},
               {"seed", request.sampling.seed},
               {"drafting", DraftingJson(request)},
               {"rounds", result.rounds},
               {"threads", info.threads},
               {"cpu_target", info.cpu_target},
               {"kv_type", info.kv_type},
               {"weights", info.weights},
               {"head_weights", info.head_weights.empty() ? Json() : Json(info.head_weights)},
               {"texts_equal", true},
               {"version", HYDRANT_VERSION},
               {"methods", Json::array()}};
  for (size_t m = 0; m < methods.size(); ++m) {
    Json rows = Json::array();
    for (const eval::BatchRow& row : result.rows[m]) rows.push_back(RowJson(command, row));
    json["methods"].push_back({{"name", methods[m].name}, {"rows", std::move(rows)}});
  }
  return json;
}

std::string BatchText(const BatchCommand& command, const EngineInfo& info, std::span<const eval::BatchMethod> methods,
                      const eval::BatchResult& result) {
  size_t width = 12;
  for (const eval::BatchMethod& method : methods) width = std::max(width, method.name.size());
  std::string text = fmt::format("{:>9} {:{}} {:>11} {:>6} {:>9} {:>10} {:>9} {:>9} {:>9} {:>19} {:>8}\n", "sequences",
                                 "", width, "tokens/step", "nodes", "draft ms", "forward ms", "prompt ms", "tokens/s",
                                 IsSuite(command) ? "" : "decoding", "least .. most", "speedup");
  for (size_t s = 0; s < command.sequences.size(); ++s) {
    for (size_t m = 0; m < methods.size(); ++m) {
      const eval::BatchRow& row = result.rows[m][s];
      const eval::Spread& rate = IsSuite(command) ? row.tokens_per_second : row.decode_tokens_per_second;
      text += fmt::format("{:9} {:{}} {:11.2f} {:6.1f} {:9.2f} {:10.2f} {:9.2f} {:9.1f} {:>9} {:>19} {:7.2f}x\n",
                          row.sequences, methods[m].name, width, row.tokens_per_step, row.nodes_per_step, row.draft_ms,
                          row.forward_ms, row.prompt_ms, row.tokens_per_second.median,
                          IsSuite(command) ? "" : fmt::format("{:.1f}", rate.median),
                          fmt::format("{:.1f} .. {:.1f}", rate.min, rate.max), row.speedup.median);
    }
  }
  const std::string prompts = IsSuite(command) ? "after each prompt of " + command.suite_file + " at most"
                                               : fmt::format("after prompts of {}", command.prompt_tokens);
  return text + fmt::format(
                    "Every text is the one of its prompt alone. {} tokens {}; medians of {} rounds, in turn; {} "
                    "threads, {}, weights {}.\n",
                    command.run.request.stop.max_tokens, prompts, result.rounds, info.threads, info.cpu_target,
                    info.weights);
}

}  // namespace hydrant::cli
