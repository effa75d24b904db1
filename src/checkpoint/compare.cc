// SPDX-License-Identifier: Apache-2.0
#include "checkpoint/compare.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <vector>

namespace hydrant::checkpoint {
namespace {

constexpr int64_t kPiece = 1 << 14;  // elements that are widened at a time

// Half a unit in the last place of bf16, from either side, and the smallest steps of f16.
constexpr float kRounding = 1.0F / 256, kSmallest = 1.0F / (1 << 23);

template <typename Equal>
bool AllEqual(const TensorView& a, const TensorView& b, Equal equal) {
  if (a.shape != b.shape || !IsFloat(a.dtype) || !IsFloat(b.dtype)) return false;
  if (a.dtype == b.dtype && (a.data == b.data || std::memcmp(a.data, b.data, a.num_bytes()) == 0)) return true;
  const int64_t all = a.num_elements();
  for (int64_t first = 0; first < all; first += kPiece) {
    const int64_t count = std::min(kPiece, all - first);
    const TensorView piece_a = Slice(a, first, count), piece_b = Slice(b, first, count);
    if (a.dtype == b.dtype && std::memcmp(piece_a.data, piece_b.data, piece_a.num_bytes()) == 0) continue;
    const std::vector<float> x = ToFloats(piece_a), y = ToFloats(piece_b);
    if (!std::equal(x.begin(), x.end(), y.begin(), equal)) return false;
  }
  return true;
}

}  // namespace

bool SameValues(const TensorView& a, const TensorView& b) {
  return AllEqual(a, b, [](float x, float y) { return x == y || (std::isnan(x) && std::isnan(y)); });
}

bool SameButRounded(const TensorView& a, const TensorView& b) {
  return AllEqual(a, b, [](float x, float y) {
    return x == y || std::abs(x - y) <= kRounding * std::max(std::abs(x), std::abs(y)) + kSmallest ||
           (std::isnan(x) && std::isnan(y));
  });
}

TensorView Slice(const TensorView& tensor, int64_t first, int64_t count) {
  TensorView slice = tensor;
  slice.data = tensor.data + static_cast<size_t>(first) * SizeOf(tensor.dtype);
  slice.shape = {count};
  return slice;
}

bool AllZero(const TensorView& tensor) {
  const size_t width = SizeOf(tensor.dtype);
  const size_t bytes = tensor.num_bytes();
  for (size_t i = 0; i < bytes; ++i) {
    const bool holds_sign = IsFloat(tensor.dtype) && i % width == width - 1;
    if ((tensor.data[i] & (holds_sign ? 0x7F : 0xFF)) != 0) return false;
  }
  return true;
}

}  // namespace hydrant::checkpoint
