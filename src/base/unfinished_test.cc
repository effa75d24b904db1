// SPDX-License-Identifier: Apache-2.0
#include "base/unfinished.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <csignal>
#include <filesystem>
#include <fstream>
#include <string>

#include "base/output_folder.h"
#include "tests/test_data.h"

namespace hydrant::base::unfinished_test {
namespace {

namespace fs = std::filesystem;

// A program that is killed while it writes a folder for `target`.
void KilledWriter(const std::string& target) {
  const pid_t child = fork();
  if (child == 0) {
    const OutputFolder folder(target, false, {});
    std::ofstream(folder.path() + "/model.safetensors") << std::string(1000, 'x') << std::flush;
    raise(SIGKILL);
  }
  int status = 0;
  waitpid(child, &status, 0);
  ASSERT_TRUE(WIFSIGNALED(status));
}

int64_t EntriesIn(const std::string& folder) {
  return std::distance(fs::directory_iterator(folder), fs::directory_iterator());
}

TEST(UnfinishedTest, WhatAKilledWriterLeftIsRemovedByTheNextToTheSamePlace) {
  const test::TempDir dir;
  const std::string target = dir.path() + "/out";
  KilledWriter(target);
  KilledWriter(target);  // removes the first one's
  KilledWriter(dir.path() + "/other");
  ASSERT_EQ(EntriesIn(dir.path()), 2);
  OutputFolder folder(target + "/", false, {});
  ASSERT_EQ(folder.removed().size(), 1U);
  EXPECT_THAT(folder.removed()[0].path, testing::StartsWith(target + "."));
  EXPECT_GE(folder.removed()[0].bytes, 1000U);
  EXPECT_EQ(EntriesIn(dir.path()), 2);  // the new one, and the other target's
  folder.Keep();
  EXPECT_EQ(EntriesIn(target), 0);  // no mark
  EXPECT_EQ(OutputFolder(dir.path() + "/other", false, {}).removed().size(), 1U);
}

TEST(UnfinishedTest, WhatIsStillWrittenStays) {
  const test::TempDir dir;
  const OutputFolder first(dir.path() + "/out", false, {});
  const OutputFolder second(dir.path() + "/out", false, {});
  EXPECT_TRUE(second.removed().empty());
  EXPECT_TRUE(fs::exists(first.path()));
}

TEST(UnfinishedTest, WhatAUserMadeStays) {
  const test::TempDir dir;
  const fs::path out = dir.path() + "/out";
  fs::create_directories(out.string() + ".backup");  // six letters, no mark
  std::ofstream(out.string() + ".backup/model.safetensors") << "x";
  fs::create_directories(out.string() + ".second");  // a mark that names another folder
  std::ofstream(out.string() + ".second/" + UnfinishedMark::kName) << "out.abcdef";
  fs::create_directories(out.string() + ".third1/sub");  // holds a folder
  std::ofstream(out.string() + ".third1/" + UnfinishedMark::kName) << "out.third1";
  fs::create_directories(dir.path() + "/elsewhere");  // behind a link
  std::ofstream(dir.path() + "/elsewhere/" + UnfinishedMark::kName) << "out.linked";
  fs::create_directory_symlink(dir.path() + "/elsewhere", out.string() + ".linked");
  EXPECT_TRUE(RemoveLeftovers(out.string()).empty());
  EXPECT_EQ(EntriesIn(dir.path()), 5);
}

}  // namespace
}  // namespace hydrant::base::unfinished_test
