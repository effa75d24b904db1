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

  // Copies what the kernels do not read as it lies into their layout (kernels/packed.h), each shared matrix once. The
  // weights stay the same. A matrix that nothing else uses is freed, or its pages given back to the file it came from.
  void Arrange(Linear& linear);
  void Arrange(LayerWeights& layer);
  void Arrange(ModelWeights& weights);

 private:
  const kernels::KernelTable* table_;
  base::ThreadPool* pool_;
  // By what they were made of, which need not live any longer.
  std::map<std::weak_ptr<const quant::PackedWeight>, std::shared_ptr<const quant::PackedWeight>, std::owner_less<>>
      arranged_;
};

}  // namespace hydrant::model
