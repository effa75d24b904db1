// SPDX-License-Identifier: Apache-2.0
#include "kv/block_pool.h"

#include <algorithm>
#include <cstring>
#include <limits>
#include <string>

#include "base/check.h"
#include "base/free_memory.h"
#include "hydrant/error.h"

namespace hydrant::kv {
namespace {

kernels::KvLayer LayerOf(const LayerShape& layer, DType dtype) {
  return {.data = nullptr, .dtype = dtype, .num_kv_heads = layer.num_kv_heads, .head_dim = layer.head_dim};
}

// Segments up to kMostInHugePages are put into huge pages: the 512 positions of tale-14m would be 2,000 small pages,
// all of which every pass visits. Larger segments are not, because a huge page takes its whole memory from the first
// byte on and one position writes to every head's part of every layer: a short text would take much more memory than it
// uses. Pools of less than one huge page get their small pages at once. Otherwise all threads come to a new block at
// the same time and wait 80 to 120 us for its eight pages (AMD Zen 4, in a virtual machine), while one call brings a
// page per microsecond.
constexpr size_t kHugePage = size_t{2} << 20, kMostInHugePages = size_t{64} << 20;
constexpr const char* kHint = "ask for fewer tokens, or use EngineOptions::kv_type bf16";

base::PageBuffer MemoryFor(size_t bytes, size_t segment_bytes) {
  const bool huge = bytes >= kHugePage && segment_bytes <= kMostInHugePages;
  base::PageBuffer memory(bytes, huge ? base::PageSize::kHuge : base::PageSize::kSmall, /*reserve=*/false);
  if (bytes < kHugePage) memory.Populate();
  return memory;
}

[[noreturn]] void FailFor(size_t bytes) {
  throw UserError("the KV cache needs " + base::MemoryText(bytes) + ", and " + base::FreeText(base::FreeNow()), kHint);
}

}  // namespace

int64_t BlockBytes(const KvShape& shape) {
  int64_t sum = 0;
  for (const LayerShape& layer : shape.layers) {
    int64_t bytes = LayerOf(layer, shape.dtype).block_bytes();
    if (__builtin_mul_overflow(bytes, layer.num_kv_heads, &bytes) || __builtin_add_overflow(sum, bytes, &sum)) {
      throw UserError("a block of the KV cache needs more bytes than 64 bits count", "check the model's config.json");
    }
  }
  return sum;
}

BlockPool::BlockPool(const KvShape& shape, int32_t num_blocks)
    : shape_(shape), segment_blocks_(std::min(num_blocks, kSegmentBlocks)) {
  HYDRANT_CHECK(num_blocks > 0);
  int64_t bytes = 0;
  if (__builtin_mul_overflow(BlockBytes(shape), num_blocks, &bytes)) {
    throw UserError("the KV cache needs more bytes than 64 bits count", "check the model's config.json");
  }
  if (static_cast<size_t>(bytes) > kMostInHugePages &&  // small segments are made for every text
      static_cast<size_t>(bytes) > base::FreeNow().own) {
    FailFor(static_cast<size_t>(bytes));
  }
  blocks_.resize(static_cast<size_t>(num_blocks));
  for (const LayerShape& layer : shape.layers) AddToGroup(layer);
  MapGroups();
  for (size_t i = blocks_.size(); i-- > 0;) free_.push_back(NumberOf(i));  // the first block is handed out first
}

void BlockPool::AddToGroup(const LayerShape& layer) {
  size_t g = 0;
  while (g < groups_.size() && groups_[g].head_dim != layer.head_dim) ++g;
  if (g == groups_.size()) groups_.push_back({.head_dim = layer.head_dim, .num_heads = 0, .memory = {}});
  places_.emplace_back(g, groups_[g].num_heads);
  groups_[g].num_heads += layer.num_kv_heads;
}

void BlockPool::MapGroups() {
  int64_t most_heads = 1;
  for (const Group& group : groups_) most_heads = std::max(most_heads, group.num_heads);
  const int64_t stride = most_heads * segment_blocks_;
  const int64_t segments = (num_blocks() + segment_blocks_ - 1) / segment_blocks_;
  if (stride * segments > std::numeric_limits<int32_t>::max()) {
    throw UserError("the KV cache has " + std::to_string(num_blocks()) + " blocks of " + std::to_string(most_heads) +
                        " heads, which are more than 31 bits number",
                    "ask for fewer tokens");
  }
  segment_stride_ = static_cast<int32_t>(stride);
  for (Group& group : groups_) {
    const int64_t block = LayerOf({.num_kv_heads = 1, .head_dim = group.head_dim}, shape_.dtype).block_bytes();
    const int64_t segment = group.num_heads * segment_blocks_ * block;
    const auto bytes = static_cast<size_t>((segments - 1) * stride * block + segment);
    try {
      group.memory = MemoryFor(bytes, static_cast<size_t>(segment));
    } catch (const UserError&) {
      FailFor(bytes);
    }
  }
}

int32_t BlockPool::NumberOf(size_t index) const {
  const auto i = static_cast<int32_t>(index);
  return i / segment_blocks_ * segment_stride_ + i % segment_blocks_;
}

size_t BlockPool::Index(int32_t block) const {
  HYDRANT_CHECK(block >= 0 && block % segment_stride_ < segment_blocks_);
  const auto index = static_cast<size_t>(block / segment_stride_ * segment_blocks_ + block % segment_stride_);
  HYDRANT_CHECK(index < blocks_.size());
  return index;
}

int32_t BlockPool::Allocate() {
  int32_t block = -1;
  if (!free_.empty()) {
    block = free_.back();
    free_.pop_back();
  } else if (!kept_.empty()) {
    block = kept_.begin()->second;
    kept_.erase(kept_.begin());
    index_.Remove(block);
  } else {
    return -1;
  }
  blocks_[Index(block)] = {.users = 1, .drafted = false, .kept_since = 0};
  return block;
}

void BlockPool::Retain(int32_t block) {
  Block& kept = blocks_[Index(block)];
  if (kept.users++ > 0) {
    if (kept.users == 2) ++num_shared_;
    return;
  }
  HYDRANT_CHECK(kept.kept_since > 0);  // a free block is nobody's to share
  kept_.erase(kept.kept_since);
  kept.kept_since = 0;
}

void BlockPool::Release(int32_t block) {
  Block& left = blocks_[Index(block)];
  HYDRANT_CHECK(left.users > 0);
  if (--left.users > 0) {
    if (left.users == 1) --num_shared_;
    return;
  }
  if (!index_.Holds(block)) {
    free_.push_back(block);
    return;
  }
  left.kept_since = ++now_;
  kept_.emplace(now_, block);
}

int32_t BlockPool::NumKnown(std::string_view scope, std::span<const int32_t> tokens) const {
  BlockIndex::Content before = BlockIndex::kNothing;
  for (int32_t known = 0;; ++known) {
    const BlockIndex::Tokens own = TokensOf(tokens, static_cast<size_t>(known));
    if (own.empty()) return known;
    const BlockIndex::Found found = index_.Find(before, scope, own);
    if (found.block < 0) return known;
    before = found.content;
  }
}

BlockIndex::Tokens BlockPool::TokensOf(std::span<const int32_t> text, size_t b) const {
  constexpr size_t kP = kernels::kBlockPositions;
  const size_t size = shape_.reads_next_token ? kP + 1 : kP;
  return text.size() < b * kP + size ? BlockIndex::Tokens() : text.subspan(b * kP, size);
}

kernels::KvLayer BlockPool::layer(int64_t index) const {
  HYDRANT_CHECK(index >= 0 && index < num_layers());
  const auto& [group, first_head] = places_[static_cast<size_t>(index)];
  kernels::KvLayer layer = LayerOf(shape_.layers[static_cast<size_t>(index)], shape_.dtype);
  layer.num_blocks = segment_blocks_;
  layer.data = groups_[group].memory.data() + first_head * segment_blocks_ * layer.block_bytes();
  return layer;
}

void BlockPool::Copy(int32_t from, int32_t to) {
  for (int64_t l = 0; l < num_layers(); ++l) {
    const kernels::KvLayer kv = layer(l);
    const int64_t bytes = kv.block_bytes();
    for (int64_t h = 0; h < kv.num_kv_heads; ++h) {
      uint8_t* head = kv.data + h * kv.num_blocks * bytes;
      std::memcpy(head + to * bytes, head + from * bytes, static_cast<size_t>(bytes));
    }
  }
}

}  // namespace hydrant::kv
