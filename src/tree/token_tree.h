// SPDX-License-Identifier: Apache-2.0
// A topology filled with tokens: what a drafter proposes and the base model verifies.
#pragma once

#include <cstdint>
#include <vector>

#include "tree/topology.h"

namespace hydrant::tree {

struct TokenTree {
  Topology topology;
  std::vector<int32_t> tokens;  // [N], tokens[0] = root, the last token already decided
};

}  // namespace hydrant::tree
