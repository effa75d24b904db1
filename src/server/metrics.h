// SPDX-License-Identifier: Apache-2.0
// What /metrics says, in the text form of Prometheus (prometheus-cpp). From any thread.
#pragma once

#include <cstdint>
#include <memory>
#include <string>

#include "hydrant/engine.h"

namespace hydrant::server {

// Of now, asked for when somebody looks.
struct MetricsNow {
  EngineStats engine = {};
  int64_t connections = 0;  // open
};

class Metrics {
 public:
  Metrics();
  ~Metrics();
  Metrics(const Metrics&) = delete;
  Metrics& operator=(const Metrics&) = delete;

  // A reply to a known path has ended, or was refused.
  void CountReply(const std::string& path, int status);
  void CountResult(const GenerationResult& result, int64_t prompt_tokens);
  void ObserveFirstToken(double seconds);
  // Between the tokens of one reply: a step of several tokens counts for each.
  void ObserveTokens(double seconds, int64_t tokens);

  std::string Text(const MetricsNow& now);

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace hydrant::server
