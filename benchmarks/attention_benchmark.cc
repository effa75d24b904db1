// SPDX-License-Identifier: Apache-2.0
// Attention of a forward pass at the shape of Llama-7B (32 layers, 32 heads of 128, no shared kv heads): ms per forward
// for trees of R rows over a committed context, beside a plain read of the same keys and values in the same process.
// Three rows of the first layer are compared with the twin's, which sees each alone.
//   attention_benchmark [bf16|f16|f32] [context] [kv heads] [target] [rows,rows,...; 512 = a chunk of a prompt]
#include <algorithm>
#include <chrono>
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <functional>
#include <random>
#include <sstream>
#include <string>
#include <vector>

#include "base/thread_pool.h"
#include "kernels/kernels.h"
#include "kernels/ops/ops.h"
#include "kv/kv_cache.h"

namespace hydrant::kernels {
namespace {

constexpr int64_t kLayers = 32, kHeads = 32, kHeadDim = 128;
constexpr int32_t kChunk = 512;

Matrix RandomMatrix(int64_t rows, int64_t cols, uint32_t seed) {
  std::mt19937 random(seed);
  std::normal_distribution<float> normal;
  Matrix matrix(rows, cols);
  for (int64_t r = 0; r < rows; ++r) {
    for (int64_t c = 0; c < cols; ++c) matrix.row(r)[c] = normal(random);
  }
  return matrix;
}

double Milliseconds(const std::function<void()>& run) {
  const auto start = std::chrono::steady_clock::now();
  run();
  return std::chrono::duration<double, std::milli>(std::chrono::steady_clock::now() - start).count();
}

double Median(std::vector<double> values) {
  std::nth_element(values.begin(), values.begin() + static_cast<int64_t>(values.size() / 2), values.end());
  return values[values.size() / 2];
}

struct Setup {
  Queue queue;
  kv::BlockPool pool;
  kv::BlockTable table{&pool};
  int32_t context;

  Setup(Queue q, const kv::KvShape& shape, int32_t positions)
      : queue(q), pool(shape, positions / kBlockPositions + 20), context(positions) {
    if (!table.Reserve(context + kChunk)) std::abort();
    const int64_t width = shape.layers.front().num_kv_heads * shape.layers.front().head_dim;
    std::vector<RowKv> rows;
    for (int32_t p = 0; p < context + kChunk; ++p) rows.push_back({table.blocks(), nullptr, p, p + 1, p});
    const Matrix k = RandomMatrix(context + kChunk, width, 1), v = RandomMatrix(context + kChunk, width, 2);
    for (int64_t l = 0; l < kLayers; ++l) StoreKv(queue, k, v, rows, pool.layer(l));
  }

  // A plain read of what R = 1 needs.
  void Read(uint64_t& sum) const {
    const int64_t blocks = context / kBlockPositions, bytes = pool.layer(0).block_bytes();
    const int64_t heads = pool.layer(0).num_kv_heads;
    ForItems(const_cast<Queue&>(queue), kLayers, blocks * bytes * heads, [&](int64_t begin, int64_t end) {
      uint64_t part = 0;
      for (int64_t item = begin * heads; item < end * heads; ++item) {
        const uint8_t* keys = pool.layer(item / heads).head(item % heads).keys;
        for (int64_t b = 0; b < blocks; b += kv::BlockPool::kSegmentBlocks) {  // neighbours
          const int64_t together = std::min<int64_t>(kv::BlockPool::kSegmentBlocks, blocks - b);
          part += queue.table->peak->read_lines(keys + table.blocks()[b] * bytes, together * bytes);
        }
      }
      __atomic_fetch_add(&sum, part, __ATOMIC_RELAXED);
    });
  }
};

// Node r's parent is (r - 1) / 2: depth about log2 R. Slots in preorder, as the engine gives them.
struct Tree {
  std::vector<std::vector<int32_t>> paths;
  std::vector<RowKv> rows;

  Tree(int32_t num_rows, int32_t root, const int32_t* blocks) : paths(static_cast<size_t>(num_rows)) {
    int32_t next = root;
    const std::function<void(int32_t, std::vector<int32_t>)> place = [&](int32_t node, std::vector<int32_t> path) {
      if (node >= num_rows) return;
      path.push_back(next++);
      paths[static_cast<size_t>(node)] = path;
      place(2 * node + 1, path);
      place(2 * node + 2, path);
    };
    place(0, {});
    std::sort(paths.begin(), paths.end());
    for (const auto& path : paths) {
      rows.push_back({blocks, path.data(), root + static_cast<int32_t>(path.size()) - 1, root, path.back()});
    }
  }
};

void Run(Setup& setup, const std::string& what, const std::vector<RowKv>& rows, int64_t num_kv_heads) {
  const auto num_rows = static_cast<int64_t>(rows.size());
  const Matrix q = RandomMatrix(num_rows, kHeads * kHeadDim, 3);
  const Matrix k = RandomMatrix(num_rows, num_kv_heads * kHeadDim, 4);
  const AttentionOptions options{kHeads, 1.0F / std::sqrt(static_cast<float>(kHeadDim)), 0};
  Matrix out(num_rows, q.cols()), alone(1, q.cols());
  Queue twin{setup.queue.pool, &AttentionTwin(*setup.queue.table, setup.pool.layer(0).dtype)};
  StoreKv(setup.queue, k, k, rows, setup.pool.layer(0));
  Attention(setup.queue, q, rows, setup.pool.layer(0), options, out);
  bool equal = true;
  for (const int64_t r : {int64_t{0}, num_rows / 2, num_rows - 1}) {
    Attention(twin, ConstRows(q.row(r), 1, q.cols(), q.stride()), {&rows[static_cast<size_t>(r)], 1},
              setup.pool.layer(0), options, alone);
    equal = equal && std::memcmp(out.row(r), alone.row(0), static_cast<size_t>(q.cols()) * 4) == 0;
  }
  std::vector<double> read, store, attend;
  uint64_t sum = 0;
  for (int repeat = 0; repeat < (num_rows > 100 ? 5 : 21); ++repeat) {
    read.push_back(Milliseconds([&] { setup.Read(sum); }));
    attend.push_back(Milliseconds([&] {
      for (int64_t l = 0; l < kLayers; ++l) Attention(setup.queue, q, rows, setup.pool.layer(l), options, out);
    }));
    store.push_back(Milliseconds([&] {
      for (int64_t l = 0; l < kLayers; ++l) StoreKv(setup.queue, k, k, rows, setup.pool.layer(l));
    }));
  }
  std::printf("%-16s read %6.1f ms  attention %7.1f ms  %5.2f x read  store %6.2f ms  %s%s\n", what.c_str(),
              Median(read), Median(attend), Median(attend) / Median(read), Median(store),
              equal ? "equal to its twin" : "DIFFERS from its twin", sum == 1 ? "." : "");
  std::fflush(stdout);
}

void RunAll(DType dtype, int32_t context, int64_t num_kv_heads, const KernelTable& table,
            const std::string& rows_list) {
  base::ThreadPool pool(base::DefaultThreads(), true);
  Setup setup({&pool, &table},
              {.layers = std::vector<kv::LayerShape>(kLayers, {.num_kv_heads = num_kv_heads, .head_dim = kHeadDim}),
               .dtype = dtype},
              context);
  std::printf("%s, %s, %d positions, %d threads, %lld kv heads\n", table.name, NameOf(dtype), context,
              pool.num_threads(), static_cast<long long>(num_kv_heads));
  std::stringstream list(rows_list);
  for (std::string rows; std::getline(list, rows, ',');) {
    const int32_t num_rows = std::stoi(rows);
    if (num_rows == kChunk) {
      std::vector<RowKv> chunk;
      for (int32_t p = context; p < context + kChunk; ++p) {
        chunk.push_back({setup.table.blocks(), nullptr, p, p + 1, p});
      }
      Run(setup, "prompt R = 512", chunk, num_kv_heads);
    } else {
      const Tree tree(num_rows, context, setup.table.blocks());
      Run(setup, "tree R = " + rows, tree.rows, num_kv_heads);
    }
  }
}

}  // namespace
}  // namespace hydrant::kernels

int main(int argc, char** argv) {
  using hydrant::DType;
  const std::string type = argc > 1 ? argv[1] : "bf16";
  const DType dtype = type == "f32" ? DType::kF32 : type == "f16" ? DType::kF16 : DType::kBF16;
  hydrant::kernels::RunAll(dtype, argc > 2 ? std::atoi(argv[2]) : 1000, argc > 3 ? std::atoi(argv[3]) : 32,
                           hydrant::kernels::KernelsFor(argc > 4 ? argv[4] : "auto"),
                           argc > 5 ? argv[5] : "1,2,4,6,8,16,32,64,512");
  return 0;
}
