// SPDX-License-Identifier: Apache-2.0
// Where two records of settings differ: a run that was broken off is gone on with under the same settings only.
#pragma once

#include <optional>
#include <string>

#include "base/json.h"

namespace hydrant::base {

// "heads[0].recipe.peak_rate": the members and elements that lead there.
struct JsonDifference {
  std::string name;
  Json found, expected;
};
// The first of `expected` that `found` has otherwise, or lacks (null). Members that `found` alone has do not count.
std::optional<JsonDifference> FirstDifference(const Json& found, const Json& expected);

}  // namespace hydrant::base
