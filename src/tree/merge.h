// SPDX-License-Identifier: Apache-2.0
// One tree of several.
#pragma once

#include <span>

#include "tree/token_tree.h"

namespace hydrant::tree {

// Every path of tokens of the trees, once. They have one root, and one at least is there. The children of a node are
// those of the first tree, then new ones of the second, and so on; a score is the largest one, and there are scores
// where every tree with drafts has them.
void Merge(std::span<const TokenTree* const> trees, TokenTree& merged);

}  // namespace hydrant::tree
