// SPDX-License-Identifier: Apache-2.0
#include "train/data/random.h"

#include <numeric>
#include <utility>

namespace hydrant::train {

uint64_t Random::Below(uint64_t count) {
  const uint64_t incomplete = (0 - count) % count;  // 2^64 mod count
  uint64_t number = Next();
  while (number < incomplete) number = Next();
  return number % count;
}

std::vector<int32_t> ShuffledIndices(size_t count, Random& random) {
  std::vector<int32_t> order(count);
  std::iota(order.begin(), order.end(), 0);
  for (size_t place = count; place > 1; --place) {
    std::swap(order[place - 1], order[static_cast<size_t>(random.Below(place))]);
  }
  return order;
}

}  // namespace hydrant::train
