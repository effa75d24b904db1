// SPDX-License-Identifier: Apache-2.0
// `hydrant run`: generate text.
#pragma once

#include <string>
#include <vector>

namespace hydrant::cli {

int Run(const std::vector<std::string>& args);

}  // namespace hydrant::cli
