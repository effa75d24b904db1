// SPDX-License-Identifier: Apache-2.0
// `hydrant tokenize`: text, or a conversation, to token ids.
#pragma once

#include <string>
#include <vector>

namespace hydrant::cli {

int Tokenize(const std::vector<std::string>& args);

}  // namespace hydrant::cli
