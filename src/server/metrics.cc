// SPDX-License-Identifier: Apache-2.0
#include "server/metrics.h"

#include <prometheus/counter.h>
#include <prometheus/gauge.h>
#include <prometheus/histogram.h>
#include <prometheus/registry.h>
#include <prometheus/text_serializer.h>

#include <mutex>
#include <utility>

namespace hydrant::server {
namespace {

using prometheus::Counter;
using prometheus::Family;
using prometheus::Gauge;
using prometheus::Histogram;
using prometheus::Registry;

Family<Counter>& Counters(Registry& registry, const char* name, const char* help) {
  return prometheus::BuildCounter().Name(name).Help(help).Register(registry);
}

Gauge& OneGauge(Registry& registry, const char* name, const char* help) {
  return prometheus::BuildGauge().Name(name).Help(help).Register(registry).Add({});
}

Histogram& Seconds(Registry& registry, const char* name, const char* help) {
  // A millisecond for small models in the cache, to a minute for long prompts of large ones.
  const Histogram::BucketBoundaries bounds = {0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1,
                                              0.25,   0.5,   1,      2.5,   5,    10,    30,   60};
  return prometheus::BuildHistogram().Name(name).Help(help).Register(registry).Add({}, bounds);
}

}  // namespace

struct Metrics::Impl {
  Registry registry;
  Family<Counter>& requests = Counters(registry, "hydrant_requests_total", "Replies by path and status.");
  Family<Counter>& finished = Counters(registry, "hydrant_sequences_finished_total", "Choices by what ended them.");
  Counter& prompt = Counters(registry, "hydrant_prompt_tokens_total", "Tokens of prompts.").Add({});
  Counter& reused = Counters(registry, "hydrant_prompt_tokens_reused_total",
                             "Of those, tokens whose keys and values were there from an earlier request.")
                        .Add({});
  Counter& generated = Counters(registry, "hydrant_generated_tokens_total", "Tokens of replies.").Add({});
  Counter& steps = Counters(registry, "hydrant_steps_total", "Steps of all sequences after their prompts.").Add({});
  Counter step_tokens;  // of those steps: a reply's first token comes from its prompt
  Counter& drafted = Counters(registry, "hydrant_drafted_tokens_total", "Tokens that were drafted.").Add({});
  Counter& preempted = Counters(registry, "hydrant_preemptions_total",
                                "How often a sequence gave its keys and values up, to compute them anew.")
                           .Add({});
  Family<Counter>& offered =
      Counters(registry, "hydrant_offered_tokens_total", "Steps whose tree had a token at that depth.");
  Family<Counter>& accepted =
      Counters(registry, "hydrant_accepted_tokens_total", "Steps that gave a reply a token from that depth.");
  Family<Counter>& phases =
      Counters(registry, "hydrant_phase_seconds_total", "Seconds by phase, counted for each sequence that took part.");
  Gauge& per_step = OneGauge(registry, "hydrant_emitted_per_step", "Mean tokens of a step, of all steps so far.");
  Gauge& running = OneGauge(registry, "hydrant_sequences_running", "Sequences that take part in steps.");
  Gauge& waiting = OneGauge(registry, "hydrant_sequences_waiting", "Sequences that wait for room.");
  Family<Gauge>& blocks = prometheus::BuildGauge()
                              .Name("hydrant_kv_blocks")
                              .Help(
                                  "Blocks of 32 positions of keys and values: in use by one sequence, by several, "
                                  "kept for prompts that begin alike, and free.")
                              .Register(registry);
  std::mutex mutex;                     // guards these
  int64_t prompt_rows = 0, passes = 0;  // as counted so far
  Counter& computed = Counters(registry, "hydrant_prompt_tokens_computed_total",
                               "Tokens of prompts that were computed: those reused are not, and those of a prompt that "
                               "was computed anew count again.")
                          .Add({});
  Counter& forwards = Counters(registry, "hydrant_forward_passes_total", "Forward passes of the base model.").Add({});
  Gauge& connections = OneGauge(registry, "hydrant_connections", "Open connections.");
  Histogram& first_token =
      Seconds(registry, "hydrant_time_to_first_token_seconds", "From a request's arrival to its first token.");
  Histogram& between = Seconds(registry, "hydrant_time_between_tokens_seconds",
                               "Between tokens of a reply; the tokens of one step share its time.");
};

Metrics::Metrics() : impl_(std::make_unique<Impl>()) {}
Metrics::~Metrics() = default;

void Metrics::CountReply(const std::string& path, int status) {
  impl_->requests.Add({{"path", path}, {"status", std::to_string(status)}}).Increment();
}

void Metrics::CountResult(const GenerationResult& result, int64_t prompt_tokens) {
  Impl& impl = *impl_;
  impl.finished.Add({{"reason", NameOf(result.finish_reason)}}).Increment();
  impl.prompt.Increment(static_cast<double>(prompt_tokens));
  impl.reused.Increment(result.num_reused);
  impl.generated.Increment(static_cast<double>(result.token_ids.size()));
  impl.steps.Increment(static_cast<double>(result.num_emitted.size()));
  impl.drafted.Increment(static_cast<double>(result.num_drafted));
  impl.preempted.Increment(result.num_preempted);
  for (size_t d = 0; d < result.depth_offered.size(); ++d) {
    const prometheus::Labels depth = {{"depth", std::to_string(d + 1)}};
    impl.offered.Add(depth).Increment(static_cast<double>(result.depth_offered[d]));
    impl.accepted.Add(depth).Increment(static_cast<double>(result.depth_accepted[d]));
  }
  const std::pair<const char*, double> phases[] = {{"prefill", result.phase_ms.prefill},
                                                   {"draft", result.phase_ms.draft},
                                                   {"forward", result.phase_ms.forward},
                                                   {"verify", result.phase_ms.verify},
                                                   {"commit", result.phase_ms.commit}};
  for (const auto& [name, ms] : phases) impl.phases.Add({{"phase", name}}).Increment(ms / 1000);
  impl.step_tokens.Increment(result.tokens_per_step() * static_cast<double>(result.num_emitted.size()));
  if (impl.steps.Value() > 0) impl.per_step.Set(impl.step_tokens.Value() / impl.steps.Value());
}

void Metrics::ObserveFirstToken(double seconds) { impl_->first_token.Observe(seconds); }

void Metrics::ObserveTokens(double seconds, int64_t tokens) {
  for (int64_t i = 0; i < tokens; ++i) impl_->between.Observe(seconds / static_cast<double>(tokens));
}

std::string Metrics::Text(const MetricsNow& now) {
  const EngineStats& engine = now.engine;
  impl_->running.Set(engine.num_running);
  impl_->waiting.Set(engine.num_waiting);
  const std::pair<const char*, int32_t> blocks[] = {{"used", engine.kv_blocks.used - engine.kv_blocks.shared},
                                                    {"shared", engine.kv_blocks.shared},
                                                    {"kept", engine.kv_blocks.kept},
                                                    {"free", engine.kv_blocks.free}};
  for (const auto& [state, count] : blocks) impl_->blocks.Add({{"state", state}}).Set(count);
  const std::lock_guard lock(impl_->mutex);
  impl_->computed.Increment(static_cast<double>(engine.num_prompt_rows - impl_->prompt_rows));
  impl_->forwards.Increment(static_cast<double>(engine.num_steps - impl_->passes));
  impl_->prompt_rows = engine.num_prompt_rows;
  impl_->passes = engine.num_steps;
  impl_->connections.Set(static_cast<double>(now.connections));
  return prometheus::TextSerializer().Serialize(impl_->registry.Collect());
}

}  // namespace hydrant::server
