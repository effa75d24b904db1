// SPDX-License-Identifier: Apache-2.0
#include "base/free_memory.h"

#include <gtest/gtest.h>

#include <filesystem>
#include <string>

#include "tests/test_data.h"

namespace hydrant::base::free_memory_test {
namespace {

TEST(FreeMemoryTest, TheTightestLimitDecidesAndIsNamed) {
  EXPECT_EQ(FreeOf({}).own, ~uint64_t{0});
  FreeMemory free = FreeOf({.system = 700, .cgroup = 500, .address_space = 300, .data = 400});
  EXPECT_EQ(free.own, 300U);
  EXPECT_EQ(free.pages, 500U);  // mapped files count in no ulimit
  EXPECT_EQ(free.limit, " (ulimit -v)");
  free = FreeOf({.system = 700, .cgroup = 500, .address_space = {}, .data = {}});
  EXPECT_EQ(free.own, 500U);
  EXPECT_EQ(free.limit, " (the cgroup's limit)");
  free = FreeOf({.system = 700, .cgroup = {}, .address_space = {}, .data = {}});
  EXPECT_EQ(free.own, 700U);
  EXPECT_EQ(FreeText(free), "0 MB are free");
}

TEST(FreeMemoryTest, PageCacheOfAGroupIsFree) {
  // v2
  EXPECT_EQ(FreeInGroup("1000\n", "900\n", "anon 200\ninactive_file 300\nactive_file 100\n"), 500U);
  EXPECT_EQ(FreeInGroup("max\n", "900\n", ""), std::nullopt);
  EXPECT_EQ(FreeInGroup("1000\n", "1200\n", "anon 1200\n"), 0U);
  EXPECT_EQ(FreeInGroup("1000", "100", "inactive_file 400\n"), 1000U);  // figures of different moments
  // v1, whose limit is a large number where there is none
  EXPECT_EQ(FreeInGroup("9223372036854771712\n", "900\n", ""), std::nullopt);
  EXPECT_EQ(FreeInGroup("1000\n", "900\n", "inactive_file 1\ntotal_inactive_file 300\ntotal_active_file 100\n"), 500U);
  EXPECT_EQ(FreeInGroup("", "", ""), std::nullopt);
  EXPECT_EQ(FreeInGroup("x", "1", ""), std::nullopt);
}

TEST(FreeMemoryTest, LinesAreFoundByTheirWholeName) {
  EXPECT_EQ(KilobytesOf("MemFree: 1 kB\nMemAvailable:   2 kB\n", "MemAvailable"), 2048U);
  EXPECT_EQ(KilobytesOf("XMemAvailable: 1 kB\n", "MemAvailable"), std::nullopt);
  EXPECT_EQ(KilobytesOf("MemAvailable: x\n", "MemAvailable"), std::nullopt);
  EXPECT_EQ(KilobytesOf("", "MemAvailable"), std::nullopt);
}

// A folder in place of "/".
class Root {
 public:
  void Write(const std::string& path, const std::string& text) const {
    std::filesystem::create_directories(std::filesystem::path(dir_.path() + "/" + path).parent_path());
    dir_.Write(path, text);
  }
  MemoryLimits Read() const { return ReadMemoryLimits(dir_.path()); }

 private:
  test::TempDir dir_;
};

TEST(FreeMemoryTest, GroupsAreReadUpToTheRoot) {
  const Root root;
  root.Write("proc/meminfo", "MemAvailable: 1000 kB\n");
  EXPECT_EQ(root.Read().cgroup, std::nullopt);
  root.Write("proc/self/cgroup", "0::/a/b\n");
  root.Write("sys/fs/cgroup/a/b/memory.max", "max\n");
  root.Write("sys/fs/cgroup/a/b/memory.current", "100\n");
  root.Write("sys/fs/cgroup/a/memory.max", "5000\n");
  root.Write("sys/fs/cgroup/a/memory.current", "2000\n");
  root.Write("sys/fs/cgroup/a/memory.stat", "inactive_file 500\n");
  EXPECT_EQ(root.Read().cgroup, 3500U);
  EXPECT_EQ(root.Read().system, 1024000U);
  root.Write("sys/fs/cgroup/a/b/memory.high", "1100\n");
  EXPECT_EQ(root.Read().cgroup, 1000U);
}

TEST(FreeMemoryTest, GroupsOfVersionOneAndThoseOfAContainerAreReadToo) {
  const Root root;
  root.Write("proc/self/cgroup", "9:cpu:/x\n4:memory,hugetlb:/docker/1\n");
  root.Write("sys/fs/cgroup/memory/memory.limit_in_bytes", "5000\n");  // the group itself is mounted there
  root.Write("sys/fs/cgroup/memory/memory.usage_in_bytes", "2000\n");
  EXPECT_EQ(root.Read().cgroup, 3000U);
}

TEST(FreeMemoryTest, ThisProcessHasMemory) {
  EXPECT_GT(FreeNow().own, 1'000'000U);
  EXPECT_EQ(MemoryText(3'700'000'000), "3.7 GB");
  EXPECT_EQ(MemoryText(812'000'000), "812 MB");
}

}  // namespace
}  // namespace hydrant::base::free_memory_test
