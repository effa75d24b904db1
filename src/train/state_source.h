// SPDX-License-Identifier: Apache-2.0
// The base's hidden states of segments by their numbers: from the disk where they are kept, else by the base.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "train/base_states.h"
#include "train/state_cache.h"

namespace hydrant::train {

class StateSource {
 public:
  // `cache`: null: none.
  StateSource(std::unique_ptr<BaseStates> base, std::unique_ptr<StateCache> cache, int64_t hidden_size,
              size_t num_states)
      : base_(std::move(base)), cache_(std::move(cache)), hidden_size_(hidden_size), num_states_(num_states) {}

  using Text = std::span<const int32_t>;

  // Sets states[w] to [all tokens, D], in order. `segments`: their numbers in the cache; `texts`: their tokens.
  void Compute(std::span<const int32_t> segments, std::span<const Text> texts, std::vector<Matrix>& states);

  const StateCache* cache() const { return cache_.get(); }

 private:
  std::unique_ptr<BaseStates> base_;
  std::unique_ptr<StateCache> cache_;
  int64_t hidden_size_;
  size_t num_states_;
  std::vector<Matrix> computed_;
};

}  // namespace hydrant::train
