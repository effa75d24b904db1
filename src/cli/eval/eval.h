// SPDX-License-Identifier: Apache-2.0
// `hydrant eval`: numbers of a model.
#pragma once

#include <string>
#include <vector>

namespace hydrant::cli {

int Eval(const std::vector<std::string>& args);

}  // namespace hydrant::cli
