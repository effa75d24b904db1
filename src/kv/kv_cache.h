// SPDX-License-Identifier: Apache-2.0
// Paged KV cache: what one sequence has of a pool of blocks.
#pragma once

#include <cstdint>
#include <span>
#include <string_view>
#include <vector>

#include "kv/block_pool.h"

namespace hydrant::kv {

// The blocks of one sequence, of all layers. Slots [0, length) hold committed positions; slots above may hold a tree's
// rows. Blocks may be other sequences' too, as long as nobody writes them.
class BlockTable {
 public:
  explicit BlockTable(BlockPool* pool) : pool_(pool) {}
  ~BlockTable();
  BlockTable(const BlockTable&) = delete;
  BlockTable& operator=(const BlockTable&) = delete;

  // Before anything else: takes what the pool has kept of the beginning of `tokens` in `scope`, at most `most`
  // positions, which are then committed. Returns how many.
  int32_t Adopt(std::string_view scope, std::span<const int32_t> tokens, int32_t most);
  // Makes slots [length, num_slots) writable; a block that is shared, or known by its content, is copied for it. False
  // when the pool is full; what was taken so far is kept.
  bool Reserve(int32_t num_slots);
  // The rows just written at slots length .. length + count - 1 become committed positions.
  void Append(int32_t count);
  // Keeps the rows that `layers` have at slots length + places[i] (ascending): copies them to length, length + 1, …,
  // and commits them. Ascending order needs no staging, since places[i] >= i.
  void CommitPath(std::span<const int32_t> places, LayerRange layers);
  // Lets others find the blocks that are full. `tokens`: of all committed positions.
  void Publish(std::string_view scope, std::span<const int32_t> tokens);
  // The drafter now has its own keys and values of `count` more positions.
  void AppendDrafted(int32_t count);
  // Gives all blocks back, and nobody finds them any more.
  void Forget();
  // Forgets positions from `length` on and gives back blocks that hold none of the rest.
  void Truncate(int32_t length);

  // Whether f16 has made a number of `layers` in the slots `first` .. first + count - 1 infinite. False for other
  // types, which hold what f32 holds.
  bool Overflows(int32_t first, int32_t count, LayerRange layers) const;

  const BlockPool& pool() const { return *pool_; }
  int32_t length() const { return length_; }
  int32_t drafted_length() const { return drafted_length_; }  // positions of which the drafter has its own
  const int32_t* blocks() const { return blocks_.data(); }
  int32_t num_blocks() const { return static_cast<int32_t>(blocks_.size()); }
  int32_t num_own() const;     // blocks that nobody else uses
  int32_t num_copies() const;  // blocks that the next Reserve has to copy: 0 or 1

 private:
  bool MakeWritable(int32_t index);

  BlockPool* pool_;
  std::vector<int32_t> blocks_;
  int32_t length_ = 0, drafted_length_ = 0;
  std::vector<BlockIndex::Content> contents_;  // of the leading blocks that are full and published
};

}  // namespace hydrant::kv
