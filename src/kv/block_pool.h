// SPDX-License-Identifier: Apache-2.0
// The memory of all keys and values: blocks of 32 positions, shared by reference counts, with the contents that are
// worth keeping after their last user has gone.
#pragma once

#include <cstdint>
#include <map>
#include <string_view>
#include <vector>

#include "base/page_buffer.h"
#include "kernels/ops/ops.h"
#include "kv/block_index.h"

namespace hydrant::kv {

struct LayerShape {
  int64_t num_kv_heads = 0;  // Hk
  int64_t head_dim = 0;      // Dh

  bool operator==(const LayerShape&) const = default;
};

struct KvShape {
  std::vector<LayerShape> layers;  // the base model's, then those of its drafter
  DType dtype = DType::kF32;
  // Does the drafter's row of a position depend on the token behind it? Then a block is whose text it is with that
  // token: texts that part behind a full block do not share it.
  bool reads_next_token = false;

  bool operator==(const KvShape&) const = default;
};

// Of all layers. Throws UserError where 64 bits do not hold it.
int64_t BlockBytes(const KvShape& shape);

// Some neighbouring layers of a pool, such as the base model's.
struct LayerRange {
  int64_t first = 0, count = 0;
};

// Blocks are handed out by number. Their memory lies in segments of kSegmentBlocks blocks, [head of a layer][block],
// and inside a block as kernels::KvHead says. So most of what a sequence reads of a head is one stream, and a pool of
// gigabytes takes only the memory of the segments in use. Numbers are not dense (BlockNumber), so that one stride
// serves the blocks of all segments.
class BlockPool {
 public:
  static constexpr int32_t kSegmentBlocks = 16;

  // Memory is taken when it is written. Throws UserError when it cannot be had.
  BlockPool(const KvShape& shape, int32_t num_blocks);
  BlockPool(const BlockPool&) = delete;
  BlockPool& operator=(const BlockPool&) = delete;

  // A block for one user: a free one, else the one that has been kept longest without a user. -1 where all are in use:
  // an outcome, not an error.
  int32_t Allocate();
  void Retain(int32_t block);   // one user more
  void Release(int32_t block);  // one user fewer; without users a block is free, or kept where its content is known
  int32_t num_users(int32_t block) const { return blocks_[Index(block)].users; }

  int32_t num_blocks() const { return static_cast<int32_t>(blocks_.size()); }
  int32_t num_free() const { return static_cast<int32_t>(free_.size() + kept_.size()); }  // that Allocate can give
  int32_t num_kept() const { return static_cast<int32_t>(kept_.size()); }  // of those, with known content
  int32_t num_shared() const { return num_shared_; }                       // with several users

  // What is in which block. A block in the index must not be written: one of several users takes a copy, and an only
  // user first removes it from the index.
  const BlockIndex& index() const { return index_; }
  // What block b of a text is known by; empty: not all of it is there yet.
  BlockIndex::Tokens TokensOf(std::span<const int32_t> text, size_t b) const;
  BlockIndex::Found Enter(int32_t block, BlockIndex::Content before, std::string_view scope,
                          BlockIndex::Tokens tokens) {
    return index_.Add(block, before, scope, tokens);
  }
  void Remove(int32_t block) { index_.Remove(block); }
  // Of the blocks at the beginning of `tokens`, how many are known.
  int32_t NumKnown(std::string_view scope, std::span<const int32_t> tokens) const;
  // Does a block have the drafter's keys and values, beside the base's?
  bool is_drafted(int32_t block) const { return blocks_[Index(block)].drafted; }
  void set_drafted(int32_t block) { blocks_[Index(block)].drafted = true; }

  const KvShape& shape() const { return shape_; }
  int64_t num_layers() const { return static_cast<int64_t>(shape_.layers.size()); }
  kernels::KvLayer layer(int64_t index) const;
  size_t num_bytes() const { return static_cast<size_t>(BlockBytes(shape_)) * blocks_.size(); }  // when all are used
  void Copy(int32_t from, int32_t to);                                                           // all layers

 private:
  // Layers with heads of one size lie together: their blocks have one stride.
  struct Group {
    int64_t head_dim = 0, num_heads = 0;  // of all its layers
    base::PageBuffer memory;
  };
  struct Block {
    int32_t users = 0;
    bool drafted = false;
    uint64_t kept_since = 0;  // 0: not kept
  };

  void AddToGroup(const LayerShape& layer);
  void MapGroups();
  int32_t NumberOf(size_t index) const;
  size_t Index(int32_t block) const;

  KvShape shape_;
  int32_t segment_blocks_;
  int32_t segment_stride_ = 0;  // from a segment's first block number to the next one's
  std::vector<Group> groups_;
  std::vector<std::pair<size_t, int64_t>> places_;  // [layers]: its group, and its first head there
  std::vector<Block> blocks_;
  std::vector<int32_t> free_;         // handed out from the back
  std::map<uint64_t, int32_t> kept_;  // blocks without users, by when the last user left
  int32_t num_shared_ = 0;
  uint64_t now_ = 0;  // counts releases
  BlockIndex index_;
};

}  // namespace hydrant::kv
