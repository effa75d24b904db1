// SPDX-License-Identifier: Apache-2.0
// The library names options as its headers do ("EngineOptions::kv_type"); people at a terminal know flags.
#pragma once

#include <string>
#include <string_view>
#include <vector>

namespace hydrant::cli {

// The text with every option of the library by its flag: "--kv-type".
std::string WithFlags(std::string_view text);
std::vector<std::string> WithFlags(std::vector<std::string> texts);

}  // namespace hydrant::cli
