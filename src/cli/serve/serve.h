// SPDX-License-Identifier: Apache-2.0
// hydrant serve: the model behind an OpenAI-compatible HTTP server.
#pragma once

#include <string>
#include <vector>

namespace hydrant::cli {

int Serve(const std::vector<std::string>& args);

}  // namespace hydrant::cli
