// SPDX-License-Identifier: Apache-2.0
// A tree as text for people: `hydrant tree show`.
#pragma once

#include <string>

#include "tree/topology.h"

namespace hydrant::tree {

// Counts, a table of nodes per depth, then one line per node with its rank, in UTF-8 box drawing. Leaves that are
// neighbours share a line ("2..9").
std::string Draw(const Topology& topology);

}  // namespace hydrant::tree
