// SPDX-License-Identifier: Apache-2.0
// `hydrant detokenize`: token ids to text.
#pragma once

#include <string>
#include <vector>

namespace hydrant::cli {

int Detokenize(const std::vector<std::string>& args);

}  // namespace hydrant::cli
