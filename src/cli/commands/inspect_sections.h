// SPDX-License-Identifier: Apache-2.0
// What `hydrant inspect` finds out, section by section.
#pragma once

#include <string>

#include "base/json_fwd.h"
#include "checkpoint/tensor_source.h"
#include "cli/terminal/sections.h"

namespace hydrant::cli {

// Each reads and checks what `run` would use, and throws FileError where that would be refused.
Section BaseSection(const std::string& folder);
// `with_base`: the folder holds the heads' base too, and they are compared with it.
Section HeadsSection(const std::string& folder, bool with_base);
Section TokenizerSection(const std::string& path);  // folder or file
Section TensorsSection(const checkpoint::TensorSource& source);

base::Json TensorListJson(const checkpoint::TensorSource& source);
std::string TensorListText(const checkpoint::TensorSource& source);

}  // namespace hydrant::cli
