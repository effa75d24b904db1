// SPDX-License-Identifier: Apache-2.0
// What drafters that draft for one sequence share: each wants hidden states of its own, and keeps its keys and values
// behind those of the others.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "draft/drafter.h"

namespace hydrant::draft {

class Several {
 public:
  // All must outlive this.
  explicit Several(std::vector<Drafter*> drafters);

  size_t size() const { return drafters_.size(); }
  Drafter& operator[](size_t part) const { return *drafters_[part]; }
  const std::vector<Drafter*>& all() const { return drafters_; }
  // Layers that any of them wants.
  const std::vector<int32_t>& wanted() const { return wanted_; }
  // Places in wanted() of the layers that one of them wants.
  const std::vector<size_t>& WantsOf(size_t part) const { return wants_[part]; }
  std::vector<kv::LayerShape> KvLayers() const;
  bool ReadsNextToken() const;
  DraftKv KvOf(size_t part, DraftKv kv) const {
    kv.first_layer += first_kv_[part];
    return kv;
  }
  bool HasKv(size_t part) const { return first_kv_[part + 1] > first_kv_[part]; }
  int32_t max_depth() const;
  uint64_t weight_bytes() const;
  uint64_t table_bytes() const;
  uint64_t bytes_read() const;

 private:
  std::vector<Drafter*> drafters_;
  std::vector<int32_t> wanted_;
  std::vector<std::vector<size_t>> wants_;
  std::vector<int64_t> first_kv_;  // [size + 1]: layers of keys and values of those before
};

}  // namespace hydrant::draft
