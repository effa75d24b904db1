// SPDX-License-Identifier: Apache-2.0
// The embedded default model, found relative to the program: in the source tree, or where `cmake --install` put it.
#pragma once

#include <string>

namespace hydrant::cli {

struct DefaultModel {
  std::string model;
  std::string draft;
};

// Throws UserError naming the places looked at.
DefaultModel FindDefaultModel();

}  // namespace hydrant::cli
