// SPDX-License-Identifier: Apache-2.0
#include <array>

#include "draft/heads/eagle_weights.h"
#include "draft/heads/head_kind.h"
#include "draft/heads/hydra_weights.h"
#include "draft/heads/medusa_weights.h"
#include "draft/heads/mlp_speculator/mlp_speculator_weights.h"
#include "draft/heads/redrafter_weights.h"

namespace hydrant::draft {

std::span<const HeadKind* const> HeadKinds() {
  // Medusa comes last: a ReDrafter stack may be spelled as one Medusa head.
  static constexpr std::array<const HeadKind*, 5> kKinds{&kMlpSpeculatorKind, &kHydraKind, &kEagleKind, &kRedrafterKind,
                                                         &kMedusaKind};
  return kKinds;
}

}  // namespace hydrant::draft
