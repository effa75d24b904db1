// SPDX-License-Identifier: Apache-2.0
#include "kv/kv_cache.h"

#include <algorithm>
#include <cstring>

#include "base/check.h"

namespace hydrant::kv {
namespace {

constexpr int32_t kP = kernels::kBlockPositions;

int32_t BlocksFor(int32_t slots) { return (slots + kP - 1) / kP; }

bool IsInfiniteF16(const uint8_t* data) {
  uint16_t bits = 0;
  std::memcpy(&bits, data, sizeof bits);
  return (bits & 0x7FFF) == 0x7C00;
}

// Whether one slot of one head holds an infinity.
bool HoldsInfinity(const kernels::KvLayer& layer, const int32_t* blocks, int64_t head, int64_t slot) {
  for (int64_t d = 0; d < layer.head_dim; ++d) {
    if (IsInfiniteF16(layer.key(blocks, head, slot, d)) || IsInfiniteF16(layer.value(blocks, head, slot, d)))
      return true;
  }
  return false;
}

}  // namespace

BlockTable::~BlockTable() { Truncate(0); }

int32_t BlockTable::Adopt(std::string_view scope, std::span<const int32_t> tokens, int32_t most) {
  HYDRANT_CHECK(blocks_.empty() && most >= 0 && most <= static_cast<int32_t>(tokens.size()));
  BlockIndex::Content before = BlockIndex::kNothing;
  bool drafted = true;
  while (length_ < most) {
    const BlockIndex::Tokens own = pool_->TokensOf(tokens, blocks_.size());
    if (own.empty()) break;
    const BlockIndex::Found found = pool_->index().Find(before, scope, own);
    if (found.block < 0) break;
    pool_->Retain(found.block);
    blocks_.push_back(found.block);
    length_ = std::min(length_ + kP, most);
    drafted = drafted && pool_->is_drafted(found.block);
    if (drafted) drafted_length_ = length_;
    if (length_ == num_blocks() * kP) contents_.push_back(found.content);
    before = found.content;
  }
  return length_;
}

int32_t BlockTable::num_own() const {
  return static_cast<int32_t>(
      std::ranges::count_if(blocks_, [this](int32_t block) { return pool_->num_users(block) == 1; }));
}

int32_t BlockTable::num_copies() const {
  return length_ % kP != 0 && pool_->num_users(blocks_[static_cast<size_t>(length_ / kP)]) > 1 ? 1 : 0;
}

bool BlockTable::Reserve(int32_t num_slots) {
  // The blocks behind the one that holds `length` belong to nobody else: only full blocks are published.
  if (length_ % kP != 0 && num_slots > length_ && !MakeWritable(length_ / kP)) return false;
  while (num_blocks() < BlocksFor(num_slots)) {
    const int32_t block = pool_->Allocate();
    if (block < 0) return false;
    blocks_.push_back(block);
  }
  return true;
}

bool BlockTable::MakeWritable(int32_t index) {
  int32_t& block = blocks_[static_cast<size_t>(index)];
  if (pool_->num_users(block) == 1) {
    pool_->Remove(block);
    return true;
  }
  const int32_t copy = pool_->Allocate();
  if (copy < 0) return false;
  pool_->Copy(block, copy);
  pool_->Release(block);
  block = copy;
  return true;
}

void BlockTable::Append(int32_t count) {
  HYDRANT_CHECK(count >= 0 && length_ + count <= num_blocks() * kP);
  length_ += count;
}

void BlockTable::CommitPath(std::span<const int32_t> places, LayerRange layers) {
  std::vector<int32_t> from, to;
  for (size_t i = 0; i < places.size(); ++i) {
    HYDRANT_CHECK(i == 0 ? places[i] >= 0 : places[i] > places[i - 1]);
    HYDRANT_CHECK(length_ + places[i] < num_blocks() * kP);
    if (places[i] == static_cast<int32_t>(i)) continue;
    from.push_back(length_ + places[i]);
    to.push_back(length_ + static_cast<int32_t>(i));
  }
  for (int64_t l = 0; l < layers.count && !from.empty(); ++l) {
    kernels::CopySlots(pool_->layer(layers.first + l), blocks_.data(), from, to);
  }
  Append(static_cast<int32_t>(places.size()));
}

void BlockTable::Publish(std::string_view scope, std::span<const int32_t> tokens) {
  HYDRANT_CHECK(static_cast<int32_t>(tokens.size()) >= length_);
  while (static_cast<int32_t>(contents_.size() + 1) * kP <= length_) {
    const size_t b = contents_.size();
    const BlockIndex::Tokens own = pool_->TokensOf(tokens, b);
    if (own.empty()) break;
    const BlockIndex::Content before = b == 0 ? BlockIndex::kNothing : contents_.back();
    contents_.push_back(pool_->Enter(blocks_[b], before, scope, own).content);
  }
}

void BlockTable::AppendDrafted(int32_t count) {
  const int32_t first = drafted_length_ / kP;
  drafted_length_ += count;
  HYDRANT_CHECK(count >= 0 && drafted_length_ <= length_);
  for (int32_t b = first; (b + 1) * kP <= drafted_length_; ++b) pool_->set_drafted(blocks_[static_cast<size_t>(b)]);
}

void BlockTable::Forget() {
  for (const int32_t block : blocks_) pool_->Remove(block);
  Truncate(0);
}

void BlockTable::Truncate(int32_t length) {
  HYDRANT_CHECK(length >= 0 && length <= length_);
  length_ = length;
  drafted_length_ = std::min(drafted_length_, length);
  contents_.resize(std::min(contents_.size(), static_cast<size_t>(length / kP)));
  // Gives the last blocks back first: of what the pool keeps without a user, the end of a text should go before its
  // beginning.
  while (num_blocks() > BlocksFor(length)) {
    pool_->Release(blocks_.back());
    blocks_.pop_back();
  }
}

bool BlockTable::Overflows(int32_t first, int32_t count, LayerRange layers) const {
  if (pool_->shape().dtype != DType::kF16) return false;
  HYDRANT_CHECK(first >= 0 && count >= 0 && first + count <= num_blocks() * kP);
  for (int64_t l = layers.first; l < layers.first + layers.count; ++l) {
    const kernels::KvLayer layer = pool_->layer(l);
    for (int64_t h = 0; h < layer.num_kv_heads; ++h) {
      for (int32_t slot = first; slot < first + count; ++slot) {
        if (HoldsInfinity(layer, blocks_.data(), h, slot)) return true;
      }
    }
  }
  return false;
}

}  // namespace hydrant::kv
