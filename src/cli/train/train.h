// SPDX-License-Identifier: Apache-2.0
// `hydrant train`: heads and base models, from text. All that needs libtorch is in hydrant-train.so, which this command
// loads (modules.h): libtorch takes 0.4 s and 165 MB, which no other command is to pay.
#pragma once

#include <string>
#include <vector>

namespace hydrant::cli {

int Train(const std::vector<std::string>& args);
int DistillData(const std::vector<std::string>& args);

// The commands of hydrant-train.so.
int TrainHeads(const std::vector<std::string>& args);
int TrainMedusa2(const std::vector<std::string>& args);
int TrainBase(const std::vector<std::string>& args);

}  // namespace hydrant::cli
