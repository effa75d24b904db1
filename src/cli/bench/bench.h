// SPDX-License-Identifier: Apache-2.0
// `hydrant bench`: how fast, and how fast it could be. docs/benchmarks/README.md says what is measured.
#pragma once

#include <string>
#include <vector>

namespace hydrant::cli {

int Bench(const std::vector<std::string>& args);

// Its sub-commands.
int BenchRoofline(const std::vector<std::string>& args);
int BenchStep(const std::vector<std::string>& args);
int BenchHeads(const std::vector<std::string>& args);
int BenchLatency(const std::vector<std::string>& args);
int BenchBatch(const std::vector<std::string>& args);
int BenchServe(const std::vector<std::string>& args);

}  // namespace hydrant::cli
