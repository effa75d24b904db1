// SPDX-License-Identifier: Apache-2.0
// Names of base/json.h for headers that need no more: nlohmann's takes seconds to compile.
#pragma once

#include <nlohmann/json_fwd.hpp>

namespace hydrant::base {

using Json = nlohmann::json;
class JsonView;

}  // namespace hydrant::base
