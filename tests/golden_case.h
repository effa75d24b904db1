// SPDX-License-Identifier: Apache-2.0
// Reads the reference cases (what the methods' authors' own code computed) and runs them on our engine.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <filesystem>
#include <limits>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "base/json.h"
#include "checkpoint/tensor_source.h"
#include "hydrant/engine.h"
#include "tensor/tensor.h"

namespace hydrant::test {

// A tests/golden or ../shared/golden folder of the hydra/ or medusa/ kind.
struct HeadCase {
  std::string folder;       // with the heads
  std::string case_folder;  // with case.json's runs and tensors.safetensors (same_as)
  std::string base;         // folder of the base model
  base::Json json;          // of case_folder
};

inline HeadCase ReadHeadCase(const std::string& folder) {
  HeadCase head_case;
  head_case.folder = folder;
  head_case.case_folder = folder;
  const base::Json own = base::ReadJsonFile(folder + "/case.json");
  head_case.base = folder + "/" + own.at("base").get<std::string>();
  if (own.contains("same_as")) head_case.case_folder = folder + "/" + own.at("same_as").get<std::string>();
  if (own.value("layout", "") == "b") head_case.base = folder;  // a whole model is its own base
  head_case.json = base::ReadJsonFile(head_case.case_folder + "/case.json");
  return head_case;
}

inline std::vector<int32_t> Ids(const base::Json& list) { return list.get<std::vector<int32_t>>(); }

// f32 values of the float tensors in a safetensors file, and their shapes.
struct Values {
  std::vector<float> data;
  std::vector<int64_t> shape;
};
inline std::map<std::string, Values> ReadValues(const std::string& path) {
  const auto source = checkpoint::OpenTensorFile(path);
  std::map<std::string, Values> values;
  for (const auto& [name, tensor] : source->tensors()) {
    if (IsFloat(tensor.view.dtype)) values[name] = {.data = ToFloats(tensor.view), .shape = tensor.view.shape};
  }
  return values;
}

// Largest absolute difference between a matrix and stored values; infinity when the shapes differ.
inline float LargestDifference(const Matrix& ours, const Values& theirs) {
  const bool same = theirs.shape.size() == 2 && theirs.shape[0] == ours.rows() && theirs.shape[1] == ours.cols();
  if (!same) return std::numeric_limits<float>::infinity();
  float largest = 0;
  for (int64_t r = 0; r < ours.rows(); ++r) {
    for (int64_t c = 0; c < ours.cols(); ++c) {
      const float difference = std::abs(ours.row(r)[c] - theirs.data[static_cast<size_t>(r * ours.cols() + c)]);
      largest = std::max(largest, std::isnan(difference) ? std::numeric_limits<float>::infinity() : difference);
    }
  }
  return largest;
}

}  // namespace hydrant::test
