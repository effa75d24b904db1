// SPDX-License-Identifier: Apache-2.0
// What the readers of one file share: its bytes, and the source that they fill.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>

#include "checkpoint/tensor_source.h"
#include "tensor/tensor.h"

namespace hydrant::checkpoint {

// A file as the readers see it: mapped, or held in memory by a test or a fuzzer.
struct FileBytes {
  std::string path;  // names the file in errors
  std::span<const uint8_t> bytes;
  std::shared_ptr<const void> owner;  // keeps the bytes alive
};

// A TensorSource under construction.
class FileSource : public TensorSource {
 public:
  explicit FileSource(std::string display_name) { display_name_ = std::move(display_name); }

  // Throws FileError (naming `tensor.file`) when the name is taken, longer than 4096 bytes, or has control characters.
  void Add(const std::string& name, StoredTensor tensor);
  void AddFile(const std::string& path) { files_.push_back(path); }
  void SetMetadata(std::map<std::string, std::string, std::less<>> metadata) { metadata_ = std::move(metadata); }
  // Notes that the tensor is packed.
  void MarkPacked(const std::string& name, std::shared_ptr<const PackedTensor> packed);
  void Remove(const std::string& name) { tensors_.erase(name); }
  void AddBytesCopied(uint64_t bytes) { bytes_copied_ += bytes; }
};

// Tensors of more dimensions are refused; released checkpoints have at most four.
inline constexpr size_t kMaxRank = 8;

// Product of the extents, nothing when one is negative or the product does not fit.
std::optional<int64_t> CheckedProduct(std::span<const int64_t> extents);

// Text from a file, fit for an error line: other than printable ASCII becomes \xNN, cut after 100 characters.
std::string Printable(std::string_view text);

}  // namespace hydrant::checkpoint
