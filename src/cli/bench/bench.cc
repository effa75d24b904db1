// SPDX-License-Identifier: Apache-2.0
#include "cli/bench/bench.h"

#include <array>

#include "cli/command.h"

namespace hydrant::cli {
namespace {

constexpr std::array<Command, 6> kCommands = {{
    {"roofline", "what this machine reads and multiplies at best", BenchRoofline},
    {"step", "a forward pass over R rows, beside the roofline", BenchStep},
    {"heads", "the prefix layer and each head, beside a base step", BenchHeads},
    {"latency", "one prompt by several ways of decoding, in turn", BenchLatency},
    {"batch", "several sequences decoded together", BenchBatch},
    {"serve", "requests to a server, and how fast its replies come", BenchServe},
}};

}  // namespace

int Bench(const std::vector<std::string>& args) {
  return Dispatch("hydrant bench", kCommands, args, "How fast, and how fast it could be.\n");
}

}  // namespace hydrant::cli
