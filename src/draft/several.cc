// SPDX-License-Identifier: Apache-2.0
#include "draft/several.h"

#include <algorithm>
#include <utility>

namespace hydrant::draft {

Several::Several(std::vector<Drafter*> drafters) : drafters_(std::move(drafters)), first_kv_(1, 0) {
  for (const Drafter* drafter : drafters_) {
    std::vector<size_t>& places = wants_.emplace_back();
    for (const int32_t layer : drafter->WantedLayers()) {
      const auto found = std::ranges::find(wanted_, layer);
      places.push_back(static_cast<size_t>(found - wanted_.begin()));
      if (found == wanted_.end()) wanted_.push_back(layer);
    }
    first_kv_.push_back(first_kv_.back() + static_cast<int64_t>(drafter->KvLayers().size()));
  }
}

std::vector<kv::LayerShape> Several::KvLayers() const {
  std::vector<kv::LayerShape> layers;
  for (const Drafter* drafter : drafters_) {
    const std::vector<kv::LayerShape> own = drafter->KvLayers();
    layers.insert(layers.end(), own.begin(), own.end());
  }
  return layers;
}

bool Several::ReadsNextToken() const {
  return std::ranges::any_of(drafters_, [](const Drafter* drafter) { return drafter->ReadsNextToken(); });
}

int32_t Several::max_depth() const {
  int32_t depth = 0;
  for (const Drafter* drafter : drafters_) depth = std::max(depth, drafter->max_depth());
  return depth;
}

uint64_t Several::weight_bytes() const {
  uint64_t bytes = 0;
  for (const Drafter* drafter : drafters_) bytes += drafter->weight_bytes();
  return bytes;
}

uint64_t Several::table_bytes() const {
  uint64_t bytes = 0;
  for (const Drafter* drafter : drafters_) bytes += drafter->table_bytes();
  return bytes;
}

uint64_t Several::bytes_read() const {
  uint64_t bytes = 0;
  for (const Drafter* drafter : drafters_) bytes += drafter->bytes_read();
  return bytes;
}

}  // namespace hydrant::draft
