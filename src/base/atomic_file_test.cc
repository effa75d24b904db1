// SPDX-License-Identifier: Apache-2.0
#include "base/atomic_file.h"

#include <gtest/gtest.h>

#include <filesystem>

#include "base/mapped_file.h"
#include "hydrant/error.h"
#include "tests/test_data.h"

namespace hydrant::base::atomic_file_test {
namespace {

namespace fs = std::filesystem;

void Replace(const std::string& path, bool keep) {
  AtomicFile file(path);
  file.Write("new", 3);
  if (keep) file.Keep();
}

TEST(AtomicFileTest, ReplacesAFileOnceItIsKept) {
  const test::TempDir dir;
  const std::string path = dir.Write("a", "old");
  Replace(path, false);
  EXPECT_EQ(ReadTextFile(path), "old");
  Replace(path, true);
  EXPECT_EQ(ReadTextFile(path), "new");
  EXPECT_EQ(std::distance(fs::directory_iterator(dir.path()), fs::directory_iterator()), 1);
}

// /dev/stdout is such a link.
TEST(AtomicFileTest, ALinkStaysALink) {
  const test::TempDir dir;
  const std::string path = dir.Write("a", "old"), link = dir.path() + "/link", lost = dir.path() + "/lost";
  fs::create_symlink(path, link);
  Replace(link, true);
  EXPECT_TRUE(fs::is_symlink(link));
  EXPECT_EQ(ReadTextFile(path), "new");
  fs::create_symlink(dir.path() + "/nowhere", lost);
  EXPECT_THROW(AtomicFile{lost}, FileError);
}

TEST(AtomicFileTest, RefusesWhatIsNoFile) {
  const test::TempDir dir;
  EXPECT_THROW(AtomicFile{dir.path()}, FileError);
  EXPECT_THROW(AtomicFile{"/dev/null"}, FileError);
  EXPECT_THROW(AtomicFile{dir.path() + "/absent/file"}, FileError);
}

}  // namespace
}  // namespace hydrant::base::atomic_file_test
