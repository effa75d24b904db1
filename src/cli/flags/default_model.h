// SPDX-License-Identifier: Apache-2.0
// The embedded default model, found relative to the program: in the source tree, where `cmake --install` put it, or
// beside the program.
#pragma once

#include <string>

namespace hydrant::cli {

struct DefaultModel {
  std::string model;
  std::string draft;
};

// Throws UserError naming the places looked at.
DefaultModel FindDefaultModel();
// The same for a program in that folder.
DefaultModel FindDefaultModel(const std::string& program_folder);

}  // namespace hydrant::cli
