// SPDX-License-Identifier: Apache-2.0
// `hydrant inspect`: what a checkpoint is.
#pragma once

#include <string>
#include <vector>

namespace hydrant::cli {

int Inspect(const std::vector<std::string>& args);

}  // namespace hydrant::cli
