// SPDX-License-Identifier: Apache-2.0
#include "train/state_cache.h"

#include <gtest/gtest.h>

#include <cmath>
#include <filesystem>
#include <fstream>
#include <vector>

#include "hydrant/error.h"
#include "tests/test_data.h"

namespace hydrant::train::state_cache_test {
namespace {

const std::vector<Segment> kSegments = {{0, 3}, {3, 2}, {10, 4}};
constexpr int64_t kNumbers = 5;  // two hidden states: of 3 and 2 numbers

std::vector<Matrix> StatesOf(int64_t rows, float first) {
  std::vector<Matrix> states;
  for (const int64_t width : {3, 2}) {
    states.emplace_back(rows, width);
    for (int64_t r = 0; r < rows; ++r) {
      for (int64_t c = 0; c < width; ++c) states.back().row(r)[c] = first + static_cast<float>(r * 10 + c) / 3;
    }
  }
  return states;
}

std::filesystem::perms UsualPermissions(const std::string& folder) {
  std::ofstream(folder + "/any");
  return std::filesystem::status(folder + "/any").permissions();
}

TEST(StateCache, GivesBackWhatItWasGivenAsBFloat16) {
  const test::TempDir dir;
  {
    StateCache cache(dir.path(), "key", kSegments, kNumbers);
    std::vector<Matrix> states = StatesOf(6, 0);
    EXPECT_FALSE(cache.Read(1, states, 0));
    cache.Write(1, states, 4);
    EXPECT_EQ(cache.num_kept(), 1);
    EXPECT_EQ(std::filesystem::file_size(cache.path()), StateCache::BytesFor(kSegments, kNumbers));
    EXPECT_EQ(std::filesystem::status(cache.path()).permissions(), UsualPermissions(dir.path()));
  }
  const StateCache again(dir.path(), "key", kSegments, kNumbers);
  const std::vector<Matrix> written = StatesOf(6, 0);
  std::vector<Matrix> states = StatesOf(3, 100);
  ASSERT_TRUE(again.Read(1, states, 1));
  EXPECT_EQ(states[0].row(0)[0], 100.0F);  // not of this segment
  for (size_t w = 0; w < 2; ++w) {
    for (int64_t r = 0; r < 2; ++r) {
      for (int64_t c = 0; c < states[w].cols(); ++c) {
        EXPECT_EQ(states[w].row(1 + r)[c], BFloat16ToFloat(FloatToBFloat16(written[w].row(4 + r)[c])));
      }
    }
  }
  EXPECT_FALSE(again.Read(0, states, 0));
  EXPECT_FALSE(again.Read(2, states, 0));
}

TEST(StateCache, OtherStatesAreInAnotherFile) {
  const test::TempDir dir;
  const StateCache a(dir.path(), "a", kSegments, kNumbers), b(dir.path(), "b", kSegments, kNumbers);
  EXPECT_NE(a.path(), b.path());
}

TEST(StateCache, DamagedStatesAreNotThere) {
  const test::TempDir dir;
  std::vector<Matrix> states = StatesOf(4, 1);
  StateCache cache(dir.path(), "key", kSegments, kNumbers);
  cache.Write(0, states, 0);
  cache.Write(2, states, 0);
  const auto size = static_cast<std::streamoff>(std::filesystem::file_size(cache.path()));
  std::fstream(cache.path(), std::ios::in | std::ios::out | std::ios::binary).seekp(size - 1).put('x');
  EXPECT_FALSE(cache.Read(2, states, 0));
  EXPECT_TRUE(cache.Read(0, states, 0));
}

TEST(StateCache, RefusesAFileThatIsAnother) {
  const test::TempDir dir;
  const std::string path = StateCache(dir.path(), "key", kSegments, kNumbers).path();
  std::filesystem::resize_file(path, std::filesystem::file_size(path) - 1);
  EXPECT_THROW(StateCache(dir.path(), "key", kSegments, kNumbers), FileError);
  std::ofstream(path) << "something else";
  EXPECT_THROW(StateCache(dir.path(), "key", kSegments, kNumbers), FileError);
  EXPECT_THROW(StateCache("/proc/nowhere", "key", kSegments, kNumbers), FileError);
}

}  // namespace
}  // namespace hydrant::train::state_cache_test
