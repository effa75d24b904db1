// SPDX-License-Identifier: Apache-2.0
// Brings packed weights into the order that the machine's kernels read fastest, where that differs from the file's.
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

  // Small packed matrices become quads or octets (kernels/packed.h), each shared one once; others stay as they are. The
  // weights stay the same.
  void Arrange(Linear& linear);
  void Arrange(LayerWeights& layer);
  void Arrange(ModelWeights& weights);

 private:
  const kernels::KernelTable* table_;
  base::ThreadPool* pool_;
  std::map<std::shared_ptr<const quant::PackedWeight>, std::shared_ptr<const quant::PackedWeight>> arranged_;
};

}  // namespace hydrant::model
