// SPDX-License-Identifier: Apache-2.0
// A topology filled with tokens: what a drafter proposes and the base model verifies.
#pragma once

#include <cstdint>
#include <vector>

#include "hydrant/generation.h"
#include "tree/topology.h"

namespace hydrant::tree {

struct TokenTree {
  Topology topology;
  std::vector<int32_t> tokens;  // [N], tokens[0] = root, the last token already decided
  // [N] How likely the drafter holds a node's path from the root, 1 for the root itself; empty: it did not say.
  std::vector<float> scores = {};
  // [N] of [V] or empty: the distribution from which a node's children were drawn. Empty: they were not drawn.
  std::vector<std::vector<float>> draft_probs = {};
  DraftSource source = DraftSource::kBase;  // who drafted them; kBase: nobody

  // Nothing drafted: the root alone.
  void Reset(int32_t root) {
    if (topology.num_nodes() > 1) topology = Topology();
    tokens.assign(1, root);
    scores.clear();
    draft_probs.clear();
    source = DraftSource::kBase;
  }
};

}  // namespace hydrant::tree
