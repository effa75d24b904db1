// SPDX-License-Identifier: Apache-2.0
// Whether the base that heads name is the one that they are used with, as far as names can tell.
#pragma once

#include <optional>
#include <string>
#include <vector>

namespace hydrant::draft {

// What a base says of itself.
struct BaseNames {
  std::string name_or_path;          // '_name_or_path' of its config.json; empty: none
  std::vector<std::string> folders;  // its path, and the folder that it was converted from
  std::string family;                // "llama"
};

// The base's name where it contradicts `named_by_heads` ("lmsys/vicuna-7b-v1.3"). Nothing where one of the base's names
// agrees with it, or where either side has no telling name (a hash, "model", "/tmp/x").
std::optional<std::string> DifferentBase(const std::string& named_by_heads, const BaseNames& base);

}  // namespace hydrant::draft
