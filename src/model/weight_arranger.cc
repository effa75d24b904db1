// SPDX-License-Identifier: Apache-2.0
#include "model/weight_arranger.h"

#include "quant/pack.h"

namespace hydrant::model {

void WeightArranger::Arrange(Linear& linear) {
  if (!linear.packed || linear.packed->matrix.type >= kernels::PackedType::kQuads) return;
  if (linear.packed->matrix.inputs > table_->max_small_inputs) return;
  std::shared_ptr<const quant::PackedWeight>& small = arranged_[linear.packed];
  if (!small) small = quant::Rearranged(*linear.packed, *pool_);
  linear.packed = small;
}

void WeightArranger::Arrange(LayerWeights& layer) {
  for (Linear* linear : LinearsOf(layer)) Arrange(*linear);
}

void WeightArranger::Arrange(ModelWeights& weights) {
  for (LayerWeights& layer : weights.layers) Arrange(layer);
  Arrange(weights.lm_head);
}

}  // namespace hydrant::model
