// SPDX-License-Identifier: Apache-2.0
// Hidden states of the base on the disk: computed once, then read by further epochs, by a run that goes on, and by
// other runs over the same text. One file, of a fixed size from the beginning:
//   4096 bytes   a line of JSON that says of what they are (StateCache's `key`), padded with zeros
//   8 bytes each a checksum per segment; 0: not there yet
//   the rest     bf16 [tokens of all segments, states of a token]
// Several processes may read and write one file: they would write the same bytes, and what is half written does not
// match its checksum.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "base/mapped_file.h"
#include "tensor/tensor.h"
#include "train/data/segments.h"

namespace hydrant::train {

class StateCache {
 public:
  // Bytes of the file.
  static uint64_t BytesFor(std::span<const Segment> segments, int64_t numbers);

  // Opens or makes the file in `folder`, whose name follows from `key`: all that the states depend on. `numbers`: of
  // one token, in all hidden states together. Throws FileError: the disk is full, or the file cannot be read.
  StateCache(const std::string& folder, const std::string& key, std::span<const Segment> segments, int64_t numbers);
  ~StateCache();
  StateCache(const StateCache&) = delete;
  StateCache& operator=(const StateCache&) = delete;

  // Sets rows `row`, row + 1, .. of the states to those of a segment. False where it does not have them, or they are
  // damaged.
  bool Read(size_t segment, std::vector<Matrix>& states, int64_t row) const;
  // Keeps them, rounded to bf16. Throws FileError.
  void Write(size_t segment, const std::vector<Matrix>& states, int64_t row);

  const std::string& path() const { return path_; }
  uint64_t bytes() const { return bytes_; }
  int64_t num_kept() const;  // segments

 private:
  std::span<const uint8_t> BytesOf(size_t segment) const;
  uint64_t ChecksumOf(size_t segment) const;
  void Make(const std::string& key);
  void WriteAt(uint64_t offset, const void* bytes, size_t size) const;

  std::string path_;
  int64_t numbers_ = 0;
  std::vector<uint64_t> offsets_;  // [segments + 1], of their data in the file
  uint64_t bytes_ = 0;
  int file_ = -1;
  std::shared_ptr<const base::MappedFile> mapped_;
  mutable std::vector<uint16_t> buffer_;
};

}  // namespace hydrant::train
