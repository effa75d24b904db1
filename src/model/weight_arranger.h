// SPDX-License-Identifier: Apache-2.0
// Brings packed weights into the layout that the machine's kernels read, where that differs from the file's.
#pragma once

#include <map>
#include <memory>

#include "base/thread_pool.h"
#include "kernels/kernels.h"
#include "model/weights.h"

namespace hydrant::model {

class WeightArranger {
 public:
  WeightArranger(const kernels::KernelTable* table, base::ThreadPool* pool) : table_(table), pool_(pool) {}

  // Copies a matrix that the kernels cannot read as it lies into their layout (kernels/packed.h), a shared matrix only
  // once. The weights stay the same. A source that nothing else uses is freed, or its pages are given back to the file.
  void Arrange(Linear& linear);
  void Arrange(LayerWeights& layer);
  void Arrange(ModelWeights& weights);

 private:
  const kernels::KernelTable* table_;
  base::ThreadPool* pool_;
  // The copies by the matrices that they were made from, which need not live any longer.
  std::map<std::weak_ptr<const quant::PackedWeight>, std::shared_ptr<const quant::PackedWeight>, std::owner_less<>>
      arranged_;
};

}  // namespace hydrant::model
