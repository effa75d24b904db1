// SPDX-License-Identifier: Apache-2.0
#include "train/state_source.h"

#include <algorithm>

namespace hydrant::train {

void StateSource::Compute(std::span<const int32_t> segments, std::span<const Text> texts, std::vector<Matrix>& states) {
  if (!cache_) return base_->Compute(texts, states);
  int64_t total = 0;
  for (const Text& text : texts) total += static_cast<int64_t>(text.size());
  states.resize(num_states_);
  for (Matrix& matrix : states) matrix.Resize(total, hidden_size_);
  std::vector<size_t> missing;
  std::vector<int64_t> rows;  // of each text
  int64_t row = 0;
  for (size_t t = 0; t < texts.size(); ++t) {
    rows.push_back(row);
    if (!cache_->Read(static_cast<size_t>(segments[t]), states, row)) missing.push_back(t);
    row += static_cast<int64_t>(texts[t].size());
  }
  if (missing.empty()) return;
  std::vector<Text> left;
  for (const size_t t : missing) left.push_back(texts[t]);
  base_->Compute(left, computed_);
  int64_t from = 0;
  for (const size_t t : missing) {
    const auto count = static_cast<int64_t>(texts[t].size());
    for (size_t w = 0; w < num_states_; ++w) {
      for (int64_t r = 0; r < count; ++r) {
        std::copy_n(computed_[w].row(from + r), hidden_size_, states[w].row(rows[t] + r));
      }
    }
    cache_->Write(static_cast<size_t>(segments[t]), states, rows[t]);
    // What this epoch learns from is what later ones will.
    cache_->Read(static_cast<size_t>(segments[t]), states, rows[t]);
    from += count;
  }
}

}  // namespace hydrant::train
