// SPDX-License-Identifier: Apache-2.0
// Paged KV cache: a pool of blocks of 32 positions, and per sequence a table of its blocks.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "base/page_buffer.h"
#include "kernels/ops.h"

namespace hydrant::kv {

struct KvShape {
  int64_t num_layers = 0;
  int64_t num_kv_heads = 0;  // Hk
  int64_t head_dim = 0;      // Dh
  DType dtype = DType::kF32;

  bool operator==(const KvShape&) const = default;
};

// All blocks of all layers: [layer][kv head][block], inside a block as kernels::KvHead says. Memory is touched only
// when written, in huge pages up to 64 MiB.
class BlockPool {
 public:
  BlockPool(const KvShape& shape, int32_t num_blocks);  // throws UserError when the memory cannot be had
  BlockPool(const BlockPool&) = delete;
  BlockPool& operator=(const BlockPool&) = delete;

  // Takes a free block, or returns -1 when there is none (an expected outcome, not an error).
  int32_t Allocate();
  void Free(int32_t block);

  int32_t num_blocks() const { return num_blocks_; }
  int32_t num_free() const { return static_cast<int32_t>(free_.size()); }
  const KvShape& shape() const { return shape_; }
  kernels::KvLayer layer(int64_t index) const;
  size_t num_bytes() const { return memory_.size(); }

 private:
  KvShape shape_;
  int32_t num_blocks_;
  base::PageBuffer memory_;
  std::vector<int32_t> free_;
};

// The blocks of one sequence. Slots [0, length) hold committed positions; slots above may hold a tree's rows.
class BlockTable {
 public:
  explicit BlockTable(BlockPool* pool) : pool_(pool) {}
  ~BlockTable();
  BlockTable(const BlockTable&) = delete;
  BlockTable& operator=(const BlockTable&) = delete;

  // Makes slots [0, num_slots) usable. False when the pool is full; what was taken so far is kept.
  bool Reserve(int32_t num_slots);
  // The rows just written at slots length .. length + count - 1 become committed positions.
  void Append(int32_t count);
  // Keeps the rows written at slots length + places[i] (ascending): copies them to length, length + 1, …, and commits
  // them. Ascending order needs no staging, since places[i] >= i.
  void CommitPath(std::span<const int32_t> places);
  // Forgets positions from `length` on and frees blocks that hold none of the rest.
  void Truncate(int32_t length);

  // Whether f16 has made a number of the slots `first` .. first + count - 1 infinite. False for other types, which hold
  // what f32 holds.
  bool Overflows(int32_t first, int32_t count) const;

  int32_t length() const { return length_; }
  const int32_t* blocks() const { return blocks_.data(); }
  int32_t num_blocks() const { return static_cast<int32_t>(blocks_.size()); }

 private:
  BlockPool* pool_;
  std::vector<int32_t> blocks_;
  int32_t length_ = 0;
};

}  // namespace hydrant::kv
