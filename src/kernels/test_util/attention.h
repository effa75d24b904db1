// SPDX-License-Identifier: Apache-2.0
// Caches of random keys and values, and rows over them.
#pragma once

#include <cmath>
#include <cstdint>
#include <memory>
#include <numeric>
#include <random>
#include <string>
#include <vector>

#include "kernels/cpu_features.h"
#include "kernels/targets.h"
#include "kernels/test_util/test_util.h"

namespace hydrant::kernels {

struct Shape {
  DType dtype = DType::kF32;
  int64_t num_heads = 2, num_kv_heads = 1, head_dim = 16;

  std::string Name() const {
    return std::string(NameOf(dtype)) + " H=" + std::to_string(num_heads) + " Hk=" + std::to_string(num_kv_heads) +
           " Dh=" + std::to_string(head_dim);
  }
};

// A cache of `slots` random keys and values whose blocks lie in another order than the positions.
struct TestCache {
  Shape shape;
  Matrix k, v;  // [slots, Hk * Dh], as stored
  std::vector<uint8_t> bytes;
  std::vector<int32_t> blocks;
  KvLayer kv;

  TestCache(const Shape& s, int32_t slots, uint32_t seed) : shape(s) {
    const int64_t width = shape.num_kv_heads * shape.head_dim;
    k = RandomMatrix(slots, width, seed);
    v = RandomMatrix(slots, width, seed + 1);
    const int32_t num_blocks = (slots + kBlockPositions - 1) / kBlockPositions;
    blocks.resize(static_cast<size_t>(num_blocks));
    std::iota(blocks.rbegin(), blocks.rend(), 1);  // descending, and block 0 is not ours
    kv.dtype = shape.dtype;
    kv.num_kv_heads = shape.num_kv_heads;
    kv.head_dim = shape.head_dim;
    kv.num_blocks = num_blocks + 1;
    // Slots that were never written hold NaN (all bits set).
    bytes.assign(static_cast<size_t>(kv.num_bytes()), 0xff);
    kv.data = bytes.data();
    base::ThreadPool one(1, false);
    Queue queue{&one, &PortableKernels()};
    std::vector<RowKv> rows(static_cast<size_t>(slots));
    for (int32_t slot = 0; slot < slots; ++slot)
      rows[static_cast<size_t>(slot)] = {blocks.data(), nullptr, slot, slot + 1, slot};
    StoreKv(queue, k, v, rows, kv);
  }

  // Where element d of a slot lies: the layout, [head][block][keys, values], written down a second time.
  const uint8_t* At(bool value, int64_t kv_head, int64_t slot, int64_t d) const {
    const int64_t dim = shape.head_dim, value_dim = (dim + 15) / 16 * 16, place = slot % 32;
    const auto num_blocks = static_cast<int64_t>(blocks.size()) + 1;  // block 0 is not ours
    const int64_t block = blocks[static_cast<size_t>(slot / 32)];
    int64_t element = (kv_head * num_blocks + block) * 32 * (dim + value_dim);
    const bool pairs = shape.dtype == DType::kBF16;
    if (value) {
      element += 32 * dim + (pairs ? (place / 2 * value_dim + d) * 2 + place % 2 : place * value_dim + d);
    } else {
      element += pairs ? (d / 2 * 32 + place) * 2 + d % 2 : d * 32 + place;
    }
    return bytes.data() + static_cast<size_t>(element) * SizeOf(shape.dtype);
  }
  double Key(int64_t h, int64_t slot, int64_t d) const {
    return static_cast<double>(LoadAs(shape.dtype, At(false, h, slot, d)));
  }
  double Value(int64_t h, int64_t slot, int64_t d) const {
    return static_cast<double>(LoadAs(shape.dtype, At(true, h, slot, d)));
  }
};

inline AttentionOptions OptionsFor(const Shape& shape, int32_t window) {
  return {shape.num_heads, 1.0F / std::sqrt(static_cast<float>(shape.head_dim)), window};
}

inline RowKv PromptRow(const TestCache& cache, int32_t position) {
  return {cache.blocks.data(), nullptr, position, position + 1, position};
}

// A random tree's rows in one cache, and for each node a cache in which its path was decoded token by token.
struct TreeAndChains {
  TestCache tree;
  std::vector<std::vector<int32_t>> paths;  // slots
  std::vector<RowKv> rows;
  std::vector<std::unique_ptr<TestCache>> chains;
  std::vector<RowKv> chain_rows;

  TreeAndChains(const Shape& shape, int32_t committed, int32_t num_nodes, uint32_t seed)
      : tree(shape, committed + num_nodes, seed) {
    std::mt19937 random(seed);
    for (int32_t n = 0; n < num_nodes; ++n) {
      std::vector<int32_t> path;
      if (n > 0) path = paths[random() % static_cast<uint32_t>(n)];
      path.push_back(committed + n);
      paths.push_back(path);
    }
    base::ThreadPool one(1, false);
    Queue portable{&one, &PortableKernels()};
    for (const auto& path : paths) {
      const auto length = committed + static_cast<int32_t>(path.size());
      rows.push_back({tree.blocks.data(), path.data(), length - 1, committed, path.back()});
      auto& chain = chains.emplace_back(std::make_unique<TestCache>(shape, length, seed));
      for (size_t j = 0; j < path.size(); ++j) {
        const int32_t position = committed + static_cast<int32_t>(j);
        const RowKv to{chain->blocks.data(), nullptr, position, position + 1, position};
        StoreKv(portable, ConstRows(tree.k.row(path[j]), 1, tree.k.cols(), tree.k.stride()),
                ConstRows(tree.v.row(path[j]), 1, tree.v.cols(), tree.v.stride()), {&to, 1}, chain->kv);
      }
      chain_rows.push_back({chain->blocks.data(), nullptr, length - 1, length, length - 1});
    }
  }
};

// ForEveryQueue, and also the form of avx512's attention that this machine would not choose.
template <typename Fn>
void ForEveryAttention(const Fn& fn) {
  ForEveryQueue(fn);
#if defined(__x86_64__)
  const CpuFeatures& cpu = DetectCpuFeatures();
  if (!cpu.avx512) return;
  base::ThreadPool one(1, false);
  Queue queue{&one, &kAvx512[cpu.reads_in_turns][!cpu.slow_bf16_dots]};
  fn(queue, std::string("avx512, the other attention"));
#endif
}

}  // namespace hydrant::kernels
