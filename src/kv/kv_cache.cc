// SPDX-License-Identifier: Apache-2.0
#include "kv/kv_cache.h"

#include <sys/mman.h>

#include <cstring>
#include <string>

#include "base/check.h"
#include "hydrant/error.h"

namespace hydrant::kv {
namespace {

constexpr int32_t kP = kernels::kBlockPositions;

size_t BlockBytes(const KvShape& shape) {
  return static_cast<size_t>(2 * shape.num_kv_heads * kP * shape.head_dim) * SizeOf(shape.dtype);
}

}  // namespace

BlockPool::BlockPool(const KvShape& shape, int32_t num_blocks)
    : shape_(shape),
      num_blocks_(num_blocks),
      num_bytes_(BlockBytes(shape) * static_cast<size_t>(shape.num_layers) * static_cast<size_t>(num_blocks)) {
  HYDRANT_CHECK(num_blocks > 0 && num_bytes_ > 0);
  void* memory = mmap(nullptr, num_bytes_, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (memory == MAP_FAILED) {
    throw UserError("the KV cache needs " + std::to_string(num_bytes_ >> 20) + " MiB, which this machine does not give",
                    "ask for fewer tokens, or use --kv-type bf16");
  }
  data_ = static_cast<uint8_t*>(memory);
  // Handed out from the back: block 0 first.
  for (int32_t block = num_blocks; block-- > 0;) free_.push_back(block);
}

BlockPool::~BlockPool() { munmap(data_, num_bytes_); }

int32_t BlockPool::Allocate() {
  if (free_.empty()) return -1;
  const int32_t block = free_.back();
  free_.pop_back();
  return block;
}

void BlockPool::Free(int32_t block) {
  HYDRANT_CHECK(block >= 0 && block < num_blocks_);
  free_.push_back(block);
}

kernels::KvLayer BlockPool::layer(int64_t index) const {
  HYDRANT_CHECK(index >= 0 && index < shape_.num_layers);
  kernels::KvLayer layer;
  layer.data = data_ + static_cast<size_t>(index) * static_cast<size_t>(num_blocks_) * BlockBytes(shape_);
  layer.dtype = shape_.dtype;
  layer.num_kv_heads = shape_.num_kv_heads;
  layer.head_dim = shape_.head_dim;
  return layer;
}

BlockTable::~BlockTable() {
  for (const int32_t block : blocks_) pool_->Free(block);
}

bool BlockTable::Reserve(int32_t num_slots) {
  while (num_blocks() < (num_slots + kP - 1) / kP) {
    const int32_t block = pool_->Allocate();
    if (block < 0) return false;
    blocks_.push_back(block);
  }
  return true;
}

void BlockTable::Append(int32_t count) {
  HYDRANT_CHECK(count >= 0 && length_ + count <= num_blocks() * kP);
  length_ += count;
}

void BlockTable::CommitPath(std::span<const int32_t> nodes) {
  for (size_t i = 0; i < nodes.size(); ++i) {
    HYDRANT_CHECK(i == 0 ? nodes[i] >= 0 : nodes[i] > nodes[i - 1]);
    CopySlot(length_ + nodes[i], length_ + static_cast<int32_t>(i));
  }
  Append(static_cast<int32_t>(nodes.size()));
}

void BlockTable::Truncate(int32_t length) {
  HYDRANT_CHECK(length >= 0 && length <= length_);
  length_ = length;
  while (num_blocks() > (length + kP - 1) / kP) {
    pool_->Free(blocks_.back());
    blocks_.pop_back();
  }
}

void BlockTable::CopySlot(int32_t from, int32_t to) {
  if (from == to) return;
  HYDRANT_CHECK(from < num_blocks() * kP && to < num_blocks() * kP);
  const KvShape& shape = pool_->shape();
  const size_t row_bytes = static_cast<size_t>(shape.head_dim) * SizeOf(shape.dtype);
  const size_t block_bytes = BlockBytes(shape);
  for (int64_t l = 0; l < shape.num_layers; ++l) {
    uint8_t* data = pool_->layer(l).data;
    const uint8_t* source = data + static_cast<size_t>(blocks_[static_cast<size_t>(from / kP)]) * block_bytes;
    uint8_t* target = data + static_cast<size_t>(blocks_[static_cast<size_t>(to / kP)]) * block_bytes;
    for (int64_t half = 0; half < 2 * shape.num_kv_heads; ++half) {
      const size_t base = static_cast<size_t>(half * kP);
      std::memcpy(target + (base + static_cast<size_t>(to % kP)) * row_bytes,
                  source + (base + static_cast<size_t>(from % kP)) * row_bytes, row_bytes);
    }
  }
}

}  // namespace hydrant::kv
