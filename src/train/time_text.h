// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>

namespace hydrant::train {

// "40 s", "3 min", "2 h 5 min".
std::string TimeText(double seconds);

}  // namespace hydrant::train
