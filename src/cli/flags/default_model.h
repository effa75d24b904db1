// SPDX-License-Identifier: Apache-2.0
// The embedded default model, found relative to the program: in the source tree, where `cmake --install` put it, or
// beside the program.
#pragma once

#include <string>

#include "hydrant/engine.h"

namespace hydrant::cli {

struct DefaultModel {
  std::string model;
  std::string draft;
};

// Throws UserError naming the places looked at.
DefaultModel FindDefaultModel();
// The same for a program in that folder.
DefaultModel FindDefaultModel(const std::string& program_folder);

// Where options name no model: the default one with its heads, and says so on stderr. Else checks that the folders are
// there. Throws UserError.
void ChooseModel(EngineOptions& options);

}  // namespace hydrant::cli
