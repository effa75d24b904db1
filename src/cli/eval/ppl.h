// SPDX-License-Identifier: Apache-2.0
// `hydrant eval ppl`: perplexity of a text in a weight format.
#pragma once

#include <string>
#include <vector>

namespace hydrant::cli {

int EvalPpl(const std::vector<std::string>& args);

}  // namespace hydrant::cli
