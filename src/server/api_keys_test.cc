// SPDX-License-Identifier: Apache-2.0
#include "server/api_keys.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>

#include "hydrant/error.h"
#include "tests/test_data.h"

namespace hydrant::server::api_keys_test {
namespace {

using testing::HasSubstr;

TEST(ApiKeysTest, KeysAreFoundByTheirHeader) {
  const test::TempDir dir;
  const ApiKeys keys = ApiKeys::Read(
      dir.Write("keys", "# team\n\n0123456789abcdef alice\n  fedcba9876543210\t bob \nfedcba9876543211\n"));
  const auto name = [&keys](const std::string& header) {
    const std::string* const found = keys.Find(header);
    return found == nullptr ? "-" : *found;
  };
  EXPECT_EQ(name("Bearer 0123456789abcdef"), "alice");
  EXPECT_EQ(name("bearer fedcba9876543210"), "bob");
  EXPECT_EQ(name("Bearer fedcba9876543211"), "key 5");
  for (const char* wrong : {"", "Bearer", "Bearer ", "Bearer 0123456789abcde", "Bearer 0123456789abcdef ",
                            "Bearer  0123456789abcdef", "Basic 0123456789abcdef", "0123456789abcdef", "Bearer alice"}) {
    EXPECT_EQ(name(wrong), "-") << wrong;
  }
  EXPECT_TRUE(ApiKeys().empty());
}

TEST(ApiKeysTest, FilesThatGuardNothingAreRefused) {
  const test::TempDir dir;
  const auto expect_refused = [&dir](const std::string& text, const std::string& part) {
    const std::string file = dir.Write("keys", text);
    try {
      static_cast<void>(ApiKeys::Read(file));
      ADD_FAILURE() << text;
    } catch (const FileError& error) {
      EXPECT_THAT(error.what(), testing::AllOf(HasSubstr(file), HasSubstr(part)));
      EXPECT_THAT(error.what(), testing::Not(HasSubstr("0123456789")));  // no key is shown
    }
  };
  expect_refused("", "has no key");
  expect_refused("# nothing\n", "has no key");
  expect_refused("short a\n", "line 1 has a key of 5 characters, expected 16");
  expect_refused("0123456789abcdef a\n0123456789abcdef b\n", "line 2 repeats the key of 'a'");
  expect_refused("0123456789abcdef a\n0123456789abcdee a\n", "line 2 has the name 'a'");
  expect_refused("0123456789abcdef a b\n", "line 1 has more than a key and a name");
}

}  // namespace
}  // namespace hydrant::server::api_keys_test
