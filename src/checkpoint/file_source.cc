// SPDX-License-Identifier: Apache-2.0
#include "checkpoint/file_source.h"

#include <algorithm>
#include <array>
#include <utility>

#include "base/check.h"
#include "hydrant/error.h"

namespace hydrant::checkpoint {
namespace {

constexpr size_t kMaxNameBytes = 4096;

bool IsControl(char c) { return static_cast<unsigned char>(c) < 0x20 || c == 0x7f; }

}  // namespace

void FileSource::Add(const std::string& name, StoredTensor tensor) {
  if (name.size() > kMaxNameBytes || std::any_of(name.begin(), name.end(), IsControl)) {
    throw FileError(tensor.file, "tensor name '" + Printable(name) +
                                     "' has control characters or more than 4096 bytes, expected plain text");
  }
  const std::string file = tensor.file;
  if (!tensors_.emplace(name, std::move(tensor)).second) throw FileError(file, "tensor '" + name + "' is stored twice");
}

void FileSource::MarkPacked(const std::string& name, std::shared_ptr<const PackedTensor> packed) {
  const auto found = tensors_.find(name);
  HYDRANT_CHECK(found != tensors_.end());
  found->second.packed = std::move(packed);
}

std::optional<int64_t> CheckedProduct(std::span<const int64_t> extents) {
  int64_t product = 1;
  bool has_zero = false;
  for (const int64_t extent : extents) {
    if (extent < 0) return std::nullopt;
    has_zero = has_zero || extent == 0;
    if (extent != 0 && __builtin_mul_overflow(product, extent, &product)) return std::nullopt;
  }
  return has_zero ? 0 : product;
}

std::string Printable(std::string_view text) {
  constexpr size_t kShown = 100;
  constexpr std::array<char, 17> kHex = {"0123456789abcdef"};
  std::string shown;
  for (const char c : text.substr(0, kShown)) {
    const auto byte = static_cast<unsigned char>(c);
    if (byte >= 0x20 && byte < 0x7f) {
      shown += c;
    } else {
      shown += {'\\', 'x', kHex[byte >> 4], kHex[byte & 15]};
    }
  }
  return text.size() > kShown ? shown + "..." : shown;
}

}  // namespace hydrant::checkpoint
