// SPDX-License-Identifier: Apache-2.0
#include "base/placeholder.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>

#include "base/json.h"
#include "hydrant/error.h"
#include "tests/test_data.h"

namespace hydrant::base::placeholder_test {
namespace {

using hydrant::test::TempDir;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

constexpr const char* kPointer =
    "version https://git-lfs.github.com/spec/v1\n"
    "oid sha256:9e556afd44213b6bd1be2b850ebbbd98f5481437a8021afaf58ee7fb1818d347\nsize 499723\n";

std::string RefusalOf(const std::string& content) {
  try {
    RefusePlaceholder(content, "m/x.bin");
    return "";
  } catch (const FileError& e) {
    return std::string(e.what()) + "\n" + e.hint();
  }
}

TEST(PlaceholderTest, PointersAndWebPagesAreNamed) {
  EXPECT_THAT(RefusalOf(kPointer), HasSubstr("m/x.bin: is a Git LFS pointer"));
  EXPECT_THAT(RefusalOf(kPointer), HasSubstr("git lfs pull"));
  EXPECT_THAT(RefusalOf("\n<!DOCTYPE HTML><title>404"), HasSubstr("is a web page"));
  EXPECT_EQ(RefusalOf("{}"), "");
  EXPECT_EQ(RefusalOf(""), "");
  EXPECT_EQ(RefusalOf("version 2"), "");
}

TEST(PlaceholderTest, JsonThatIsAPointerIsNamedSo) {
  try {
    ParseJson(kPointer, "m/config.json");
    FAIL();
  } catch (const FileError& e) {
    EXPECT_THAT(e.what(), HasSubstr("m/config.json: is a Git LFS pointer"));
  }
}

TEST(PlaceholderTest, HubNamesGetTheCommandThatFetchesThem) {
  const std::string command = "hf download lmsys/vicuna-7b-v1.3 --local-dir vicuna-7b-v1.3";
  for (const char* path :
       {"lmsys/vicuna-7b-v1.3", "lmsys/vicuna-7b-v1.3/", "https://huggingface.co/lmsys/vicuna-7b-v1.3",
        "https://huggingface.co/lmsys/vicuna-7b-v1.3/tree/main", "hf://lmsys/vicuna-7b-v1.3"}) {
    EXPECT_THAT(MissingPathHint(path), HasSubstr(command)) << path;
  }
  for (const char* path :
       {"./lmsys/vicuna", "/lmsys/vicuna", "../lmsys/vicuna", "a/b/c", "vicuna", "~/m/v", "m/x.json"}) {
    EXPECT_THAT(MissingPathHint(path), testing::Not(HasSubstr("hf download"))) << path;
  }
}

TEST(PlaceholderTest, MistypedPathsGetTheNearestName) {
  const TempDir dir;
  std::filesystem::create_directory(dir.path() + "/tale-14m");
  EXPECT_EQ(MissingPathHint(dir.path() + "/tale-14n"), "did you mean " + dir.path() + "/tale-14m?");
  EXPECT_EQ(MissingPathHint(dir.path() + "/tale-41m/"), "did you mean " + dir.path() + "/tale-14m?");
  EXPECT_THAT(MissingPathHint(dir.path() + "/other"), IsEmpty());
}

}  // namespace
}  // namespace hydrant::base::placeholder_test
