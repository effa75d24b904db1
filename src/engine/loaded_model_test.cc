// SPDX-License-Identifier: Apache-2.0
#include "engine/loaded_model.h"

#include <gtest/gtest.h>

namespace hydrant::engine {
namespace {

model::ModelConfig Config(int64_t hidden, int64_t inner, int64_t heads, int64_t kv_heads, int64_t head_dim) {
  model::ModelConfig config;
  config.hidden_size = hidden;
  config.intermediate_size = inner;
  config.num_heads = heads;
  config.num_kv_heads = kv_heads;
  config.head_dim = head_dim;
  return config;
}

TEST(LoadedModelTest, SmallModelsRunOnFewThreads) {
  const model::ModelConfig embedded = Config(256, 704, 4, 4, 64), large = Config(4096, 11008, 32, 32, 128);
  EXPECT_EQ(ThreadsFor(embedded, 1), 1);
  EXPECT_EQ(ThreadsFor(embedded, 2), 2);
  EXPECT_EQ(ThreadsFor(embedded, 64), 4);
  EXPECT_EQ(ThreadsFor(large, 64), 64);
  EXPECT_EQ(ThreadsFor(Config(2048, 8192, 32, 8, 64), 64), 64);
  EXPECT_EQ(ThreadsFor(Config(16, 32, 1, 1, 16), 64), 1);
}

}  // namespace
}  // namespace hydrant::engine
