// SPDX-License-Identifier: Apache-2.0
#include "model/weight_arranger.h"

#include "quant/pack.h"

namespace hydrant::model {

void WeightArranger::Arrange(Linear& linear) {
  if (!linear.packed || table_->Reads(linear.packed->matrix.type)) return;
  std::shared_ptr<const quant::PackedWeight>& arranged = arranged_[linear.packed];
  if (!arranged) arranged = quant::InLayout(*linear.packed, table_->layout(), *pool_);
  linear.packed = arranged;
}

void WeightArranger::Arrange(LayerWeights& layer) {
  for (Linear* linear : LinearsOf(layer)) Arrange(*linear);
}

void WeightArranger::Arrange(ModelWeights& weights) {
  for (LayerWeights& layer : weights.layers) Arrange(layer);
  Arrange(weights.lm_head);
}

}  // namespace hydrant::model
