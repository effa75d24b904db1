// SPDX-License-Identifier: Apache-2.0
// `hydrant convert`: a folder with packed weights.
#pragma once

#include <string>
#include <vector>

namespace hydrant::cli {

int Convert(const std::vector<std::string>& args);

}  // namespace hydrant::cli
