// SPDX-License-Identifier: Apache-2.0
// The drafter over a LevelModel: it keeps the network's own keys and values in step with what is committed, and drafts
// the trees of all sequences level by level, each level in one pass.
#pragma once

#include <memory>

#include "draft/drafter.h"
#include "draft/levels/level_model.h"

namespace hydrant::draft {

// `vocab_size`: of the base model. `queue` must outlive the drafter.
std::unique_ptr<Drafter> MakeLevelDrafter(std::unique_ptr<LevelModel> model, int64_t vocab_size, kernels::Queue* queue);

}  // namespace hydrant::draft
