// SPDX-License-Identifier: Apache-2.0
// Heads whose tensors are split over the files of several ranks.
#pragma once

#include <memory>
#include <optional>
#include <string>

#include "base/json_fwd.h"
#include "checkpoint/tensor_source.h"
#include "checkpoint/tensor_table.h"

namespace hydrant::draft {

// How rank files split a tensor of this name; nothing: it is no head's.
std::optional<checkpoint::ShardAxis> RankAxis(const std::string& name);

// The tensors of a heads folder, those of several ranks joined. `config`: of the folder, null where it has none. Throws
// FileError where files are missing or disagree.
std::unique_ptr<checkpoint::TensorSource> OpenHeadTensors(const std::string& folder, const base::JsonView* config);

}  // namespace hydrant::draft
