// SPDX-License-Identifier: Apache-2.0
// Filling, walking and committing a tree over plain arrays, so that another backend can run the same code.
#pragma once

#include <cstdint>

namespace hydrant::tree {

// Writes the tokens of `node`'s children from its ranked candidates: candidates[rank] for rank 0..num_children-1.
inline void FillChildren(int32_t first_child, int32_t num_children, const int32_t* candidates, int32_t* tokens) {
  for (int32_t rank = 0; rank < num_children; ++rank) tokens[first_child + rank] = candidates[rank];
}

// The child of `node` that carries `token`, or -1.
inline int32_t FindChild(const int32_t* first_child, const int32_t* num_children, const int32_t* tokens, int32_t node,
                         int32_t token) {
  for (int32_t i = 0; i < num_children[node]; ++i) {
    if (tokens[first_child[node] + i] == token) return first_child[node] + i;
  }
  return -1;
}

// Greedy and coupled walk: chosen[node] is the token the base model chooses after `node` (needed only on the walk).
// Writes the accepted nodes (root left out) to path and returns how many; *bonus gets the token after the last one.
// `choose(node)` is called once per visited node, in order.
template <typename Choose>
inline int32_t WalkTree(const int32_t* first_child, const int32_t* num_children, const int32_t* tokens, Choose choose,
                        int32_t* path, int32_t* bonus) {
  int32_t node = 0;
  int32_t accepted = 0;
  for (;;) {
    const int32_t token = choose(node);
    const int32_t child = FindChild(first_child, num_children, tokens, node, token);
    if (child < 0) {
      *bonus = token;
      return accepted;
    }
    path[accepted++] = child;
    node = child;
  }
}

}  // namespace hydrant::tree
