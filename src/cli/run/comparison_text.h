// SPDX-License-Identifier: Apache-2.0
// What `run --compare-plain` prints.
#pragma once

#include <cstddef>
#include <string>

#include "cli/run/compare.h"
#include "hydrant/engine.h"

namespace hydrant::cli {

// A table of at most twelve rows, the fastest ways of each kind; what is left out is counted. Trees without a name have
// short ones; those that say less than the tree are explained below.
std::string ComparisonText(const EngineInfo& info, const Comparison& comparison, size_t num_tokens);

}  // namespace hydrant::cli
