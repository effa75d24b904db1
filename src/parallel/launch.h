// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>

namespace hydrant::parallel {

// How many processes a launcher says that it has started, by what it sets in the environment. 1: no launcher.
struct Launch {
  int size = 1;
  std::string variable = {};  // that says so
};
Launch FindLaunch();

}  // namespace hydrant::parallel
