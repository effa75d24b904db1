// SPDX-License-Identifier: Apache-2.0
// `hydrant tree`: show, list and convert draft trees.
#pragma once

#include <string>
#include <vector>

namespace hydrant::cli {

int Tree(const std::vector<std::string>& args);

}  // namespace hydrant::cli
