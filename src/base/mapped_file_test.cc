// SPDX-License-Identifier: Apache-2.0
#include "base/mapped_file.h"

#include <gtest/gtest.h>

#include <cstdlib>
#include <fstream>
#include <memory>
#include <string>

#include "hydrant/error.h"
#include "tests/test_data.h"

namespace hydrant::base::mapped_file_test {
namespace {

// Made before anything that the first Open makes, so it ends later.
std::shared_ptr<const MappedFile> g_mapping;

// The address sanitizer sees what is used after its end.
TEST(MappedFileTest, AGlobalMayKeepOneToTheEndOfTheProgram) {
  const test::TempDir dir;
  const std::string path = dir.Write("weights", "abc");
  GTEST_FLAG_SET(death_test_style, "threadsafe");
  EXPECT_EXIT(
      {
        g_mapping = MappedFile::Open(path);
        std::exit(g_mapping->bytes().size() == 3 ? 7 : 1);
      },
      testing::ExitedWithCode(7), "");
}

TEST(ReadTextFileTest, TakesFilesThatSayTheyAreEmpty) {
  std::ifstream file("/proc/self/cgroup");
  std::string expected;
  std::getline(file, expected);
  ASSERT_FALSE(expected.empty());
  EXPECT_TRUE(ReadTextFile("/proc/self/cgroup").starts_with(expected));
  EXPECT_THROW(ReadTextFile("/proc/self/cgroup", 1), FileError);
}

TEST(ReadTextFileTest, TakesAsManyBytesAsAreAccepted) {
  const test::TempDir dir;
  const std::string path = dir.Write("text", std::string(1000, 'a'));
  EXPECT_EQ(ReadTextFile(path, 1000).size(), 1000U);
  EXPECT_THROW(ReadTextFile(path, 999), FileError);
  EXPECT_EQ(ReadTextFile(dir.Write("none", "")), "");
}

}  // namespace
}  // namespace hydrant::base::mapped_file_test
