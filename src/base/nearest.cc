// SPDX-License-Identifier: Apache-2.0
#include "base/nearest.h"

#include <algorithm>
#include <cstddef>
#include <utility>
#include <vector>

namespace hydrant::base {
namespace {

// Longer input cannot be a slip of the hand, and the distance costs length times length.
constexpr size_t kMaxLength = 100;

std::string Folded(std::string_view word) {
  std::string folded(word);
  for (char& c : folded) {
    if (c >= 'A' && c <= 'Z') c = static_cast<char>(c - 'A' + 'a');
    if (c == '_') c = '-';
  }
  return folded;
}

// Optimal string alignment distance, three rows kept.
size_t Distance(const std::string& a, const std::string& b) {
  std::vector<size_t> before(b.size() + 1), above(b.size() + 1), row(b.size() + 1);
  for (size_t j = 0; j <= b.size(); ++j) above[j] = j;
  for (size_t i = 1; i <= a.size(); ++i) {
    row[0] = i;
    for (size_t j = 1; j <= b.size(); ++j) {
      row[j] = std::min({above[j] + 1, row[j - 1] + 1, above[j - 1] + (a[i - 1] == b[j - 1] ? 0 : 1)});
      const bool swapped = i > 1 && j > 1 && a[i - 1] == b[j - 2] && a[i - 2] == b[j - 1];
      if (swapped) row[j] = std::min(row[j], before[j - 2] + 1);
    }
    std::swap(before, above);
    std::swap(above, row);
  }
  return above[b.size()];
}

}  // namespace

std::string Nearest(std::string_view word, std::span<const std::string_view> candidates) {
  if (word.empty() || word.size() > kMaxLength) return {};
  const std::string folded = Folded(word);
  std::string_view best, completed;
  const auto letters = std::ranges::count_if(folded, [](char c) { return c != '-'; });
  size_t best_distance = folded.size() / 3 + 1;  // one slip in a short word, one more per three letters
  bool found = false;
  for (const std::string_view candidate : candidates) {
    if (candidate.empty() || candidate.size() > kMaxLength) continue;
    const std::string other = Folded(candidate);
    const size_t distance = Distance(folded, other);
    // A replaced word is not a slip: at least one letter must have survived.
    if (distance < std::max(folded.size(), other.size()) &&
        (found ? distance < best_distance : distance <= best_distance)) {
      best = candidate;
      best_distance = distance;
      found = true;
    }
    if (completed.empty() && letters >= 2 && other.starts_with(folded)) completed = candidate;
  }
  return std::string(completed.empty() ? best : completed);
}

}  // namespace hydrant::base
