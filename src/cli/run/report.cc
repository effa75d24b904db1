// SPDX-License-Identifier: Apache-2.0
#include "cli/run/report.h"

#include <fmt/core.h>

#include <algorithm>

#include "base/json.h"
#include "cli/flags/values.h"
#include "cli/run/speed_figures.h"
#include "cli/terminal/option_names.h"
#include "cli/terminal/sections.h"

namespace hydrant::cli {
namespace {

using base::Json;

Json PhaseJson(const PhaseTimes& times) {
  return {{"prefill", times.prefill},
          {"draft", times.draft},
          {"forward", times.forward},
          {"verify", times.verify},
          {"commit", times.commit}};
}

void AddSettings(const RunOptions& options, Json& json) {
  const SamplingOptions& sampling = options.request.sampling;
  json["temperature"] = ShortestDouble(sampling.temperature);
  json["temperature_from"] = options.temperature_from;
  json["top_k"] = sampling.top_k;
  json["top_p"] = ShortestDouble(sampling.top_p);
  json["min_p"] = ShortestDouble(sampling.min_p);
  json["repetition_penalty"] = ShortestDouble(sampling.repetition_penalty);
  json["presence_penalty"] = ShortestDouble(sampling.presence_penalty);
  json["frequency_penalty"] = ShortestDouble(sampling.frequency_penalty);
  json["seed"] = sampling.seed;
  json["draft_p_min"] = ShortestDouble(options.request.draft_p_min);
  json["lookup"] = options.request.lookup.max_tokens;
  json["lookup_rule"] = NameOf(options.request.lookup.rule);
  json["lookup_min"] = LeastMatch(options.request.lookup);
  json["lookup_max_match"] = MostMatch(options.request.lookup);
  const AcceptOptions& accept = options.request.accept;
  json["accept"] = NameOf(accept.rule);
  json["epsilon"] = ShortestDouble(accept.epsilon);
  json["alpha"] = ShortestDouble(accept.alpha);
  json["root"] = accept.root == RootChoice::kArgmax ? "argmax" : "sampled";
  json["candidates"] =
      accept.rule == AcceptRule::kRejection ? Json() : Json(DraftsSeeNoise(accept) ? "coupled" : "plain");
  json["max_tokens"] = options.request.stop.max_tokens;
  json["stop"] = options.request.stop.stop;
  json["ignore_eos"] = options.request.stop.ignore_eos;
}

Json TreeUseJson(const TreeUse& tree, bool is_auto) {
  Json json = {{"name", tree.name}, {"nodes", tree.nodes}, {"choices", base::ParseJson(tree.choices, "tree")}};
  if (!is_auto) return json;
  json["steps"] = tree.steps;
  json["tokens_per_step"] = tree.tokens_per_step;
  json["ms_per_step"] = tree.milliseconds;
  return json;
}

// What ended, or could have ended, the reply.
void AddEnds(const RunOptions& options, const EngineInfo& info, Json& json) {
  std::vector<int32_t> ids = info.eos_token_ids;
  for (const int32_t id : options.request.stop.eos_token_ids) {
    if (std::find(ids.begin(), ids.end(), id) == ids.end()) ids.push_back(id);
  }
  json["eos_token_ids"] = ids;
  json["eos_tokens"] = Json::array();
  for (const EosToken& token : info.eos_tokens) {
    json["eos_tokens"].push_back({{"id", token.id}, {"text", token.text}, {"named_by", token.named_by}});
  }
}

void AddEngine(const RunOptions& options, const EngineInfo& info, Json& json) {
  json["version"] = HYDRANT_VERSION;
  json["model"] = options.engine.model;
  json["model_family"] = info.model_family;
  json["draft"] = options.engine.draft.empty() ? Json() : Json(options.engine.draft);
  if (!options.engine.more_drafts.empty()) json["more_drafts"] = options.engine.more_drafts;
  json["drafter"] = info.drafter;
  json["num_heads"] = info.num_heads;
  json["threads"] = info.threads;
  json["cpu_target"] = info.cpu_target;
  json["weights"] = info.weights;
  json["weight_bytes"] = info.weight_bytes;
  json["head_weights"] = info.head_weights.empty() ? Json() : Json(info.head_weights);
  json["head_weight_bytes"] = info.head_weight_bytes;
  json["num_draft_vocab"] = info.num_draft_vocab;
  json["packing"] = nullptr;
  if (info.packed_bytes_after > 0) {
    json["packing"] = {{"seconds", info.pack_seconds},
                       {"bytes_before", info.packed_bytes_before},
                       {"bytes_after", info.packed_bytes_after}};
  }
  json["kv_type"] = info.kv_type;
  json["kv_memory"] = info.kv_memory;
  json["kv_positions"] = info.kv_positions;
  json["prefill_chunk"] = info.prefill_chunk;
  json["vocab_size"] = info.vocab_size;
  json["max_positions"] = info.max_positions;
  AddEnds(options, info, json);
  json["warnings"] = WithFlags(info.warnings);
  for (const std::string& warning : options.warnings) json["warnings"].push_back(warning);
}

}  // namespace

static void AddTree(const TreeReport& tree, bool has_heads, Json& json) {
  json["tree"] = nullptr;
  json["tree_chosen"] = nullptr;
  if (!has_heads) return;
  if (!tree.is_auto) {
    json["tree"] = TreeUseJson(tree.chosen, false);
    return;
  }
  json["tree"] = "auto";
  json["tree_chosen"] = TreeUseJson(tree.chosen, true);
  json["tree_chosen"]["why"] = tree.why;
  json["tree_chosen"]["tried"] = Json::array();
  for (const TreeUse& tried : tree.tried) json["tree_chosen"]["tried"].push_back(TreeUseJson(tried, true));
}

static std::string TreeText(const TreeReport& tree) {
  if (!tree.is_auto) return "";
  std::string text = fmt::format("tree auto: {} ({})\n", tree.chosen.name, tree.why);
  if (tree.tried.empty()) return text;
  text += "tree           steps  tokens/step  ms/step\n";
  for (const TreeUse& tried : tree.tried) {
    text += fmt::format("{:14} {:5}  {:11.2f}  {:7.3f}\n", tried.name, tried.steps, tried.tokens_per_step,
                        tried.milliseconds);
  }
  return text;
}

Json RunJson(const RunOptions& options, const std::string& resolved_template, const EngineInfo& info,
             std::span<const int32_t> prompt_ids, const GenerationResult& result) {
  Json json;
  json["text"] = result.has_text ? Json(result.text) : Json();
  json["token_ids"] = result.token_ids;
  json["prompt_token_ids"] = std::vector<int32_t>(prompt_ids.begin(), prompt_ids.end());
  json["finish_reason"] = NameOf(result.finish_reason);
  json["tokens_per_step"] = result.tokens_per_step();
  json["num_emitted"] = result.num_emitted;
  json["num_reused"] = result.num_reused;
  json["num_drafted"] = result.num_drafted;
  json["num_accepted"] = result.num_accepted();
  json["num_lookup_steps"] = result.num_lookup_steps;
  json["num_looked_up"] = result.num_looked_up;
  json["num_looked_up_accepted"] = result.num_looked_up_accepted;
  json["token_depth"] = result.token_depth;
  json["depth_offered"] = result.depth_offered;
  json["depth_accepted"] = result.depth_accepted;
  json["tokens_per_second"] = TokensPerSecond(result);
  json["decode_tokens_per_second"] = DecodeTokensPerSecond(result);
  json["phase_ms"] = PhaseJson(result.phase_ms);
  json["template"] = resolved_template;
  json["system"] = options.system ? Json(*options.system) : Json();
  AddSettings(options, json);
  AddEngine(options, info, json);
  AddTree(result.tree, !options.engine.draft.empty(), json);
  if (!result.tree.problem.empty()) json["warnings"].push_back(WithFlags(result.tree.problem));
  return json;
}

static std::string DraftText(const GenerationResult& result) {
  std::string text;
  if (result.num_drafted > 0) {
    const auto steps = static_cast<double>(result.num_emitted.size()),
               drafted = static_cast<double>(result.num_drafted);
    text +=
        fmt::format("drafted {} tokens, {:.2f} a step; {} of them in the reply ({:.1f} %)\n", result.num_drafted,
                    drafted / steps, result.num_accepted(), 100 * static_cast<double>(result.num_accepted()) / drafted);
  }
  if (result.num_looked_up > 0) {
    text += fmt::format(
        "of those {} looked up, in {} steps; {:.1f} % accepted\n", result.num_looked_up, result.num_lookup_steps,
        100 * static_cast<double>(result.num_looked_up_accepted) / static_cast<double>(result.num_looked_up));
  }
  return text;
}

std::string StatsText(std::span<const int32_t> prompt_ids, const GenerationResult& result) {
  const std::string known = result.num_reused > 0 ? fmt::format(" ({} known from before)", result.num_reused) : "";
  std::string text =
      fmt::format("prompt {} tokens{}, output {} tokens in {} steps, finish: {}\n", prompt_ids.size(), known,
                  result.token_ids.size(), result.num_emitted.size(), NameOf(result.finish_reason));
  text += fmt::format("tokens per step {:.3f} (plain decoding: 1)\n", result.tokens_per_step());
  text += DraftText(result);
  text += TreeText(result.tree);
  if (!result.depth_offered.empty()) text += "depth  offered  accepted    rate\n";
  for (size_t d = 0; d < result.depth_offered.size(); ++d) {
    const int64_t offered = result.depth_offered[d];
    const int64_t accepted = d < result.depth_accepted.size() ? result.depth_accepted[d] : 0;
    const double rate = offered > 0 ? 100.0 * static_cast<double>(accepted) / static_cast<double>(offered) : 0;
    text += fmt::format("{:5}  {:7}  {:8}  {:5.1f} %\n", d + 1, offered, accepted, rate);
  }
  const PhaseTimes& times = result.phase_ms;
  const double total = result.seconds() * 1000;
  const auto steps = static_cast<double>(std::max<size_t>(result.num_emitted.size(), 1));
  const auto line = [&](const char* name, double ms, bool per_step) {
    text += fmt::format("{:8} {:10.1f}  {:5.1f} %", name, ms, total > 0 ? 100 * ms / total : 0);
    text += per_step ? fmt::format("  {:9.3f}\n", ms / steps) : "\n";
  };
  text += "phase            ms    share   per step\n";
  line("prefill", times.prefill, false);
  line("draft", times.draft, true);
  line("forward", times.forward, true);
  line("verify", times.verify, true);
  line("commit", times.commit, true);
  return text + fmt::format("total    {:10.1f}  {:.1f} tokens/s, {:.1f} without the prompt\n", total,
                            TokensPerSecond(result), DecodeTokensPerSecond(result));
}

std::string LimitText(const GenerationResult& result, const EngineInfo& info, const std::string& more) {
  if (result.finish_reason == FinishReason::kLength) {
    return fmt::format("(stopped at {} tokens; {} for more)\n", result.token_ids.size(), more);
  }
  if (result.finish_reason != FinishReason::kContext) return {};
  return fmt::format("(stopped: prompt and reply fill the model's context of {} tokens)\n", info.max_positions);
}

std::string WeightsText(const EngineInfo& info) {
  std::string text = fmt::format("weights: {}, {}", info.weights, ByteText(info.weight_bytes));
  if (!info.head_weights.empty()) {
    text += fmt::format("; heads: {}, {}", info.head_weights, ByteText(info.head_weight_bytes));
  }
  if (info.packed_bytes_after > 0) {
    text += fmt::format("; converted {} to {} in {:.2f} s", ByteText(info.packed_bytes_before),
                        ByteText(info.packed_bytes_after), info.pack_seconds);
  }
  return text + "\n";
}

}  // namespace hydrant::cli
