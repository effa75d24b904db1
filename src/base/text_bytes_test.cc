// SPDX-License-Identifier: Apache-2.0
#include "base/text_bytes.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "hydrant/error.h"

namespace hydrant::base::text_bytes_test {
namespace {

using ::testing::HasSubstr;

std::string MessageOf(std::string_view content) {
  try {
    CheckIsText(content, "f");
  } catch (const FileError& error) {
    return error.what();
  }
  return "text";
}

TEST(CheckIsTextTest, PackedFilesAndOtherEncodingsAreRefused) {
  EXPECT_THAT(MessageOf("\x1f\x8b\x08 and more"), HasSubstr("f: is packed by gzip, expected text or JSON in UTF-8"));
  EXPECT_THAT(MessageOf("PK\x03\x04 and more"), HasSubstr("packed by zip"));
  EXPECT_THAT(MessageOf("\x28\xb5\x2f\xfd and more"), HasSubstr("packed by zstd"));
  EXPECT_THAT(MessageOf(std::string_view("\xfd\x37zXZ\0\1", 7)), HasSubstr("packed by xz"));
  EXPECT_THAT(MessageOf("BZh91AY&SY"), HasSubstr("packed by bzip2"));
  EXPECT_THAT(MessageOf("PAR1\x15"), HasSubstr("Parquet"));
  EXPECT_THAT(MessageOf(std::string_view("\xff\xfe[\0", 4)), HasSubstr("UTF-16"));
  EXPECT_THAT(MessageOf(std::string_view("\xfe\xff\0[", 4)), HasSubstr("UTF-16"));
}

TEST(CheckIsTextTest, TextIsTaken) {
  for (const char* text : {"", "P", "PARIS", "BZh is a word", "\xef\xbb\xbf[]", "PK", "\xc3\xa9"}) {
    EXPECT_EQ(MessageOf(text), "text") << text;
  }
}

}  // namespace
}  // namespace hydrant::base::text_bytes_test
