// SPDX-License-Identifier: Apache-2.0
#include "base/json_difference.h"

namespace hydrant::base {

std::optional<JsonDifference> FirstDifference(const Json& found, const Json& expected) {
  if (found == expected) return std::nullopt;
  const bool are_objects = found.is_object() && expected.is_object();
  const bool are_lists = found.is_array() && expected.is_array() && found.size() == expected.size();
  if (!are_objects && !are_lists) return JsonDifference{"", found, expected};
  for (const auto& [key, value] : expected.items()) {
    const Json theirs = are_lists ? found[std::stoul(key)] : found.contains(key) ? found.at(key) : Json();
    std::optional<JsonDifference> difference = FirstDifference(theirs, value);
    if (!difference) continue;
    const std::string own = are_lists ? "[" + key + "]" : key;
    const bool is_joined = difference->name.empty() || difference->name.starts_with('[');
    difference->name = own + (is_joined ? "" : ".") + difference->name;
    return difference;
  }
  return std::nullopt;
}

}  // namespace hydrant::base
