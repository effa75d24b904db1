// SPDX-License-Identifier: Apache-2.0
#include <array>

#include "draft/heads/eagle_weights.h"
#include "draft/heads/head_kind.h"
#include "draft/heads/hydra_weights.h"
#include "draft/heads/medusa_weights.h"

namespace hydrant::draft {

std::span<const HeadKind* const> HeadKinds() {
  static constexpr std::array<const HeadKind*, 3> kKinds{&kHydraKind, &kEagleKind, &kMedusaKind};
  return kKinds;
}

}  // namespace hydrant::draft
