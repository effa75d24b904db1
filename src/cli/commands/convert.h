// SPDX-License-Identifier: Apache-2.0
// `hydrant convert`: a folder with packed weights, or heads in another layout.
#pragma once

#include <string>
#include <vector>

namespace hydrant::cli {

int Convert(const std::vector<std::string>& args);

}  // namespace hydrant::cli
