// SPDX-License-Identifier: Apache-2.0
#include "train/fit/batch_tensors.h"

#include <algorithm>
#include <cstring>
#include <limits>

#include "base/check.h"

namespace hydrant::train {
namespace {

template <typename T>
at::Tensor Copied(const std::vector<T>& values, at::ScalarType type) {
  at::Tensor tensor = at::empty({static_cast<int64_t>(values.size())}, type);
  std::memcpy(tensor.data_ptr(), values.data(), values.size() * sizeof(T));
  return tensor;
}

// Which segment a place belongs to; padding belongs to none and sees itself, so that no softmax is empty.
at::Tensor MaskOf(const std::vector<int64_t>& owner, int64_t num_rows, int64_t length) {
  const at::Tensor owners = Copied(owner, at::kLong).view({num_rows, length});
  const at::Tensor same = owners.unsqueeze(2).eq(owners.unsqueeze(1));
  const at::Tensor seen = same.logical_and(at::ones({length, length}, at::kBool).tril());
  const float none = -std::numeric_limits<float>::infinity();
  return at::zeros(seen.sizes()).masked_fill_(seen.logical_not(), none).unsqueeze(1);
}

RowLayout LayOut(std::span<const SegmentTokens> segments, std::span<const int32_t> rows) {
  RowLayout layout;
  layout.num_rows = static_cast<int64_t>(rows.size());
  size_t segment = 0;
  bool one_each = true;
  std::vector<int64_t> lengths;
  for (const int32_t count : rows) {
    int64_t length = 0;
    for (int32_t i = 0; i < count; ++i) length += static_cast<int64_t>(segments[segment++].tokens.size());
    lengths.push_back(length);
    layout.length = std::max(layout.length, length);
    one_each = one_each && count == 1;
  }
  HYDRANT_CHECK(segment == segments.size());
  std::vector<int64_t> place, owner(static_cast<size_t>(layout.num_rows * layout.length), -1);
  segment = 0;
  for (size_t row = 0; row < rows.size(); ++row) {
    int64_t next = static_cast<int64_t>(row) * layout.length;
    for (int32_t i = 0; i < rows[row]; ++i, ++segment) {
      for (size_t t = 0; t < segments[segment].tokens.size(); ++t) {
        owner[static_cast<size_t>(next)] = static_cast<int64_t>(segment);
        place.push_back(next++);
      }
    }
  }
  layout.is_dense = place.size() == owner.size();
  layout.place = Copied(place, at::kLong);
  if (one_each && layout.is_dense) {
    layout.mask = MaskOf(std::vector<int64_t>(static_cast<size_t>(layout.length), 0), 1, layout.length);
  } else {
    layout.mask = MaskOf(owner, layout.num_rows, layout.length);
  }
  return layout;
}

}  // namespace

BatchTensors MakeBatchTensors(std::span<const SegmentTokens> segments, std::span<const int32_t> rows,
                              std::vector<at::Tensor> hidden) {
  std::vector<int64_t> tokens, position;
  std::vector<uint8_t> learned;
  for (const SegmentTokens& segment : segments) {
    HYDRANT_CHECK(segment.tokens.size() == segment.learned.size());
    for (size_t t = 0; t < segment.tokens.size(); ++t) {
      tokens.push_back(segment.tokens[t]);
      position.push_back(static_cast<int64_t>(t));
      learned.push_back(segment.learned[t]);
    }
  }
  return {.tokens = Copied(tokens, at::kLong),
          .position = Copied(position, at::kLong),
          .learned = Copied(learned, at::kByte).to(at::kBool),
          .hidden = std::move(hidden),
          .rows = LayOut(segments, rows)};
}

at::Tensor TensorOf(const Matrix& matrix) {
  at::Tensor tensor = at::empty({matrix.rows(), matrix.cols()});
  auto* data = tensor.data_ptr<float>();
  for (int64_t r = 0; r < matrix.rows(); ++r) {
    std::copy_n(matrix.row(r), matrix.cols(), data + r * matrix.cols());
  }
  return tensor;
}

at::Tensor Shifted(const at::Tensor& values, int64_t shift) { return values.roll(-shift, 0); }

at::Tensor ToRows(const RowLayout& rows, const at::Tensor& flat) {
  if (rows.is_dense) return flat.view({rows.num_rows, rows.length, flat.size(1)});
  return at::zeros({rows.num_rows * rows.length, flat.size(1)})
      .index_copy(0, rows.place, flat)
      .view({rows.num_rows, rows.length, flat.size(1)});
}

at::Tensor ToFlat(const RowLayout& rows, const at::Tensor& padded) {
  const at::Tensor flat = padded.reshape({rows.num_rows * rows.length, padded.size(2)});
  return rows.is_dense ? flat : flat.index_select(0, rows.place);
}

}  // namespace hydrant::train
