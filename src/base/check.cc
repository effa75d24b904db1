// SPDX-License-Identifier: Apache-2.0
#include "base/check.h"

#include <string>

#include "hydrant/error.h"

namespace hydrant::base {

void CheckFailed(const char* condition, const char* file, int line) {
  const std::string path(file);
  const size_t src = path.rfind("/src/");
  throw InternalError("internal check failed: " + std::string(condition) + " (" +
                          (src == std::string::npos ? path : path.substr(src + 1)) + ":" + std::to_string(line) + ")",
                      "this is a bug in hydrant; please report it with the command that led here");
}

}  // namespace hydrant::base
