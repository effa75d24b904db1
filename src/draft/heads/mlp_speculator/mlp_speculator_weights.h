// SPDX-License-Identifier: Apache-2.0
// The tensors of IBM's MLP speculators as released files spell them, and the weights as the drafter uses them.
#pragma once

#include <cstdint>
#include <memory>
#include <vector>

#include "draft/heads/head_kind.h"
#include "draft/heads/head_stack.h"
#include "model/weights.h"

namespace hydrant::draft {

extern const HeadKind kMlpSpeculatorKind;

class MlpSpeculatorWeights : public HeadWeights {
 public:
  // x -> scale * x / rms(x) + shift.
  struct Norm {
    std::vector<float> scale, shift;  // [N]
  };
  // What one level of drafting runs.
  struct Stage {
    const TensorView* embedding;
    const model::Linear* projection;
    const Norm* norm;
    const Head* head;
  };

  // Room for the stages that `info` counts: where they are tied, for one of each tensor, and two projections, since the
  // first reads another width.
  explicit MlpSpeculatorWeights(const HeadsInfo& heads);
  std::vector<HeadPlace> Places() override;
  std::unique_ptr<Drafter> IntoDrafter(const model::ModelWeights& base, kernels::Queue* queue) override;

  Stage StageAt(int32_t depth) const;
  int64_t state_size() const { return config.intermediate_size; }  // N

  model::ModelConfig config;               // HeadsInfo::layer
  std::vector<TensorView> embeddings;      // [V, N]
  std::vector<model::Linear> projections;  // [N, D], then [N, N]
  std::vector<Norm> norms;
  std::vector<Head> heads;  // no blocks; lm heads [V', N]
};

}  // namespace hydrant::draft
