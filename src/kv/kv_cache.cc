// SPDX-License-Identifier: Apache-2.0
#include "kv/kv_cache.h"

#include <cstring>
#include <string>

#include "base/check.h"
#include "base/free_memory.h"
#include "hydrant/error.h"

namespace hydrant::kv {
namespace {

constexpr int32_t kP = kernels::kBlockPositions;

kernels::KvLayer LayerOf(const KvShape& shape, int32_t num_blocks, uint8_t* data) {
  return {.data = data,
          .dtype = shape.dtype,
          .num_kv_heads = shape.num_kv_heads,
          .head_dim = shape.head_dim,
          .num_blocks = num_blocks};
}

// Small pools in huge pages: tale-14m's 512 positions would be 2,000 small ones, which a pass visits all. A huge page
// is there as a whole from its first byte on, and a position writes to every head's part of every layer: so not a pool
// of gigabytes, of which a short text uses little. Pools of less than one, like a prefix layer's, get their small pages
// at once: all threads come to a new block at a time, and wait 80 to 120 us for its eight pages (AMD Zen 4, in a
// virtual machine), where one call brings a page a microsecond.
base::PageBuffer MemoryFor(size_t bytes) {
  constexpr size_t kHugePage = size_t{2} << 20, kMost = size_t{64} << 20;
  constexpr const char* kHint = "ask for fewer tokens, or use --kv-type bf16";
  if (bytes > kMost) {  // small ones are made for every text
    const base::FreeMemory free = base::FreeNow();
    if (bytes > free.own) {
      throw UserError("the KV cache needs " + base::MemoryText(bytes) + ", and " + base::FreeText(free), kHint);
    }
  }
  try {
    const bool huge = bytes >= kHugePage && bytes <= kMost;
    base::PageBuffer memory(bytes, huge ? base::PageSize::kHuge : base::PageSize::kSmall, /*reserve=*/false);
    if (bytes < kHugePage) memory.Populate();
    return memory;
  } catch (const UserError&) {
    throw UserError("the KV cache needs " + base::MemoryText(bytes) + ", and " + base::FreeText(base::FreeNow()),
                    kHint);
  }
}

// A config may claim extents whose product no machine has, or no 64 bits hold.
size_t PoolBytes(const KvShape& shape, int32_t num_blocks) {
  const int64_t block_bytes = LayerOf(shape, num_blocks, nullptr).block_bytes();
  int64_t bytes = 0;
  if (__builtin_mul_overflow(block_bytes, num_blocks, &bytes) ||
      __builtin_mul_overflow(bytes, shape.num_kv_heads, &bytes) ||
      __builtin_mul_overflow(bytes, shape.num_layers, &bytes)) {
    throw UserError("the KV cache needs more bytes than 64 bits count", "check the model's config.json");
  }
  return static_cast<size_t>(bytes);
}

bool IsInfiniteF16(const uint8_t* data) {
  uint16_t bits = 0;
  std::memcpy(&bits, data, sizeof bits);
  return (bits & 0x7FFF) == 0x7C00;
}

// Of one slot of one head.
bool HoldsInfinity(const kernels::KvLayer& layer, const int32_t* blocks, int64_t head, int64_t slot) {
  for (int64_t d = 0; d < layer.head_dim; ++d) {
    if (IsInfiniteF16(layer.key(blocks, head, slot, d)) || IsInfiniteF16(layer.value(blocks, head, slot, d)))
      return true;
  }
  return false;
}

}  // namespace

BlockPool::BlockPool(const KvShape& shape, int32_t num_blocks)
    : shape_(shape), num_blocks_(num_blocks), memory_(MemoryFor(PoolBytes(shape, num_blocks))) {
  HYDRANT_CHECK(num_blocks > 0 && memory_.size() > 0);
  // Handed out from the back: block 0 first.
  for (int32_t block = num_blocks; block-- > 0;) free_.push_back(block);
}

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
  const kernels::KvLayer first = LayerOf(shape_, num_blocks_, memory_.data());
  return LayerOf(shape_, num_blocks_, memory_.data() + index * first.num_bytes());
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

void BlockTable::CommitPath(std::span<const int32_t> places) {
  std::vector<int32_t> from, to;
  for (size_t i = 0; i < places.size(); ++i) {
    HYDRANT_CHECK(i == 0 ? places[i] >= 0 : places[i] > places[i - 1]);
    HYDRANT_CHECK(length_ + places[i] < num_blocks() * kP);
    if (places[i] == static_cast<int32_t>(i)) continue;
    from.push_back(length_ + places[i]);
    to.push_back(length_ + static_cast<int32_t>(i));
  }
  for (int64_t l = 0; l < pool_->shape().num_layers && !from.empty(); ++l) {
    kernels::CopySlots(pool_->layer(l), blocks_.data(), from, to);
  }
  Append(static_cast<int32_t>(places.size()));
}

bool BlockTable::Overflows(int32_t first, int32_t count) const {
  const KvShape& shape = pool_->shape();
  if (shape.dtype != DType::kF16) return false;
  HYDRANT_CHECK(first >= 0 && count >= 0 && first + count <= num_blocks() * kP);
  for (int64_t l = 0; l < shape.num_layers; ++l) {
    const kernels::KvLayer layer = pool_->layer(l);
    for (int64_t h = 0; h < shape.num_kv_heads; ++h) {
      for (int32_t slot = first; slot < first + count; ++slot) {
        if (HoldsInfinity(layer, blocks_.data(), h, slot)) return true;
      }
    }
  }
  return false;
}

void BlockTable::Truncate(int32_t length) {
  HYDRANT_CHECK(length >= 0 && length <= length_);
  length_ = length;
  while (num_blocks() > (length + kP - 1) / kP) {
    pool_->Free(blocks_.back());
    blocks_.pop_back();
  }
}

}  // namespace hydrant::kv
