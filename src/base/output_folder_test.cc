// SPDX-License-Identifier: Apache-2.0
#include "base/output_folder.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>

#include "hydrant/error.h"
#include "tests/test_data.h"

namespace hydrant::base::output_folder_test {
namespace {

namespace fs = std::filesystem;
using ::testing::HasSubstr;

int64_t EntriesIn(const std::string& folder) {
  return std::distance(fs::directory_iterator(folder), fs::directory_iterator());
}

void WriteFile(const std::string& path) { std::ofstream(path) << "x"; }

std::string Refusal(const std::string& target, bool replace, const std::vector<std::string>& sources = {}) {
  try {
    OutputFolder folder(target, replace, sources);
    return "";
  } catch (const FileError& e) {
    return std::string(e.what()) + "\n" + e.hint();
  }
}

TEST(OutputFolderTest, AppearsWhenItIsKept) {
  const test::TempDir dir;
  const std::string target = dir.path() + "/out";
  {
    OutputFolder folder(target + "/", false, {});
    WriteFile(folder.path() + "/a");
    EXPECT_FALSE(fs::exists(target));
    folder.Keep();
  }
  EXPECT_TRUE(fs::exists(target + "/a"));
  EXPECT_EQ(EntriesIn(dir.path()), 1);
}

TEST(OutputFolderTest, LeavesNothingWhenItIsNotKept) {
  const test::TempDir dir;
  try {
    OutputFolder folder(dir.path() + "/out", false, {});
    WriteFile(folder.path() + "/a");
    throw 1;
  } catch (int) {
  }
  EXPECT_EQ(EntriesIn(dir.path()), 0);
}

TEST(OutputFolderTest, ReplacesOnlyWhatWasConvertedAndOnlyWhenAsked) {
  const test::TempDir dir;
  const std::string target = dir.path() + "/out";
  fs::create_directory(target);
  EXPECT_THAT(Refusal(target, false), HasSubstr("exists already"));
  EXPECT_THAT(Refusal(target, false), HasSubstr("ConvertOptions::replace"));
  EXPECT_EQ(Refusal(target, true), "");  // empty
  WriteFile(target + "/config.json");
  EXPECT_THAT(Refusal(target, true), HasSubstr("holds no hydrant.json"));  // somebody's checkpoint
  WriteFile(target + "/hydrant.json");
  fs::create_directory(target + "/runs");
  EXPECT_THAT(Refusal(target, true), HasSubstr("holds a folder, runs"));
  fs::remove(target + "/runs");
  {
    OutputFolder folder(target, true, {});
    WriteFile(folder.path() + "/new");
    EXPECT_TRUE(fs::exists(target + "/config.json"));
    folder.Keep();
  }
  EXPECT_TRUE(fs::exists(target + "/new"));
  EXPECT_FALSE(fs::exists(target + "/config.json"));
  EXPECT_EQ(EntriesIn(dir.path()), 1);
}

// What comes to the target while the new folder is written, which may take minutes, is looked at again.
TEST(OutputFolderTest, NeverReplacesWhatAppearsMeanwhile) {
  const test::TempDir dir;
  const std::string target = dir.path() + "/out";
  const auto refusal_after = [&](bool replace, const auto& meanwhile) {
    OutputFolder folder(target, replace, {});
    WriteFile(folder.path() + "/new");
    meanwhile();
    try {
      folder.Keep();
      return std::string();
    } catch (const UserError& e) {
      EXPECT_THAT(e.hint(), HasSubstr("what was made is in " + folder.path()));
      return std::string(e.what());
    }
  };
  EXPECT_THAT(refusal_after(false,
                            [&] {
                              fs::create_directory(target);
                              WriteFile(target + "/thesis");
                            }),
              HasSubstr("exists already"));
  EXPECT_TRUE(fs::exists(target + "/thesis"));
  fs::remove(target + "/thesis");
  WriteFile(target + "/hydrant.json");
  EXPECT_THAT(refusal_after(true, [&] { fs::create_directory(target + "/notes"); }),
              HasSubstr("holds a folder, notes"));
  EXPECT_TRUE(fs::exists(target + "/notes"));
  EXPECT_EQ(EntriesIn(dir.path()), 3);  // both that were made are there
  for (const auto& entry : fs::directory_iterator(dir.path())) {
    EXPECT_TRUE(entry.path() == target || fs::exists(entry.path() / "new"));
  }
}

TEST(OutputFolderTest, AWayThroughTheTargetItselfLeadsThere) {
  const test::TempDir dir;
  const std::string target = dir.path() + "/out";
  OutputFolder(target, false, {}).Keep();
  {
    OutputFolder folder(target + "/../out", true, {});
    WriteFile(folder.path() + "/new");
    folder.Keep();
  }
  EXPECT_TRUE(fs::exists(target + "/new"));
  EXPECT_EQ(EntriesIn(dir.path()), 1);
}

TEST(OutputFolderTest, NeverReplacesWhatIsRead) {
  const test::TempDir dir;
  const std::string target = dir.path() + "/out", other = dir.path() + "/out-4";
  fs::create_directory(target);
  fs::create_directory(other);
  WriteFile(target + "/hydrant.json");
  EXPECT_EQ(Refusal(target, true, {other, ""}), "");  // a name that begins alike
  EXPECT_THAT(Refusal(target, true, {other, target}), HasSubstr("is what is read: it would be lost"));
  EXPECT_THAT(Refusal(target + "/", true, {dir.path() + "/out-4/../out/."}),
              HasSubstr("is what is read: it would be lost"));
  fs::create_directory_symlink(target, dir.path() + "/link");
  EXPECT_THAT(Refusal(target, true, {dir.path() + "/link"}), HasSubstr("is what is read: it would be lost"));
  fs::create_directory(target + "/in");
  EXPECT_THAT(Refusal(target, true, {target + "/in"}), HasSubstr("holds " + target + "/in, which is read"));
}

// The folder that the program runs in would be gone under its feet. Another spelling of a name is that name.
TEST(OutputFolderTest, NeverReplacesWhereItRuns) {
  const test::TempDir dir;
  const std::string target = dir.path() + "/out";
  fs::create_directories(target + "/in");
  const fs::path before = fs::current_path();
  fs::current_path(target + "/in");
  EXPECT_THAT(Refusal(target, true), HasSubstr("holds the folder that this runs in"));
  fs::current_path(target);
  fs::remove(target + "/in");
  EXPECT_THAT(Refusal(".", true), HasSubstr("is the folder that this runs in"));
  EXPECT_EQ(EntriesIn(target), 0);
  fs::current_path(dir.path());
  WriteFile(target + "/hydrant.json");
  OutputFolder("./out/.", true, {}).Keep();
  EXPECT_EQ(EntriesIn(target), 0);
  EXPECT_EQ(EntriesIn(dir.path()), 1);
  fs::current_path(before);
}

TEST(OutputFolderTest, GoesWhereTheSystemFollowsALink) {
  const test::TempDir dir;
  fs::create_directories(dir.path() + "/far/in");
  fs::create_directory_symlink(dir.path() + "/far/in", dir.path() + "/link");
  OutputFolder(dir.path() + "/link/../out/./", false, {}).Keep();
  EXPECT_TRUE(fs::exists(dir.path() + "/far/out"));
  EXPECT_FALSE(fs::exists(dir.path() + "/out"));
}

TEST(OutputFolderTest, RefusesWhatIsNoFolder) {
  const test::TempDir dir;
  WriteFile(dir.path() + "/file");
  EXPECT_THAT(Refusal(dir.path() + "/file", true), HasSubstr("is not a folder"));
  fs::create_directory(dir.path() + "/folder");
  fs::create_directory_symlink(dir.path() + "/folder", dir.path() + "/link");
  EXPECT_THAT(Refusal(dir.path() + "/link", true), HasSubstr("is a link"));
  EXPECT_THAT(Refusal(dir.path() + "/nowhere/out", false), HasSubstr("cannot be created: No such file"));
}

}  // namespace
}  // namespace hydrant::base::output_folder_test
