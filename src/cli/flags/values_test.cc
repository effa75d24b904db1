// SPDX-License-Identifier: Apache-2.0
#include "cli/flags/values.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <array>
#include <functional>
#include <limits>

#include "hydrant/error.h"
#include "tests/test_data.h"

namespace hydrant::cli::values_test {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;

std::string Refusal(const std::function<void()>& parse) {
  try {
    parse();
  } catch (const UserError& e) {
    return std::string(e.what()) + " | " + e.hint();
  }
  return "accepted";
}

TEST(ValuesTest, IntegersInTheRangeAreReadAndOthersRefusedWithTheRange) {
  EXPECT_EQ(ParseInteger("--n", "0", 0, 10), 0);
  EXPECT_EQ(ParseInteger("--n", "-3", -5, 10), -3);
  for (const char* bad : {"", "11", "-1", "1.0", "1e1", "0x1", " 1", "1 ", "one", "99999999999999999999", "--1"}) {
    EXPECT_THAT(Refusal([&] { ParseInteger("--n", bad, 0, 10); }),
                HasSubstr("--n is \"" + std::string(bad) + "\", expected an integer from 0 to 10"));
  }
}

TEST(ValuesTest, SeedHas64Bits) {
  EXPECT_EQ(ParseSeed("--seed", "18446744073709551615"), std::numeric_limits<uint64_t>::max());
  for (const char* bad : {"18446744073709551616", "-1", "", "1.5", "x"}) {
    EXPECT_THAT(Refusal([&] { ParseSeed("--seed", bad); }), HasSubstr("from 0 to 18446744073709551615")) << bad;
  }
}

TEST(ValuesTest, NumbersOutsideTheRangeAreRefused) {
  const FloatRange closed = {.min = 0, .max = 2};
  const FloatRange open = {.min = 0, .max = 1, .open_below = true};
  EXPECT_EQ(ParseFloat("--t", "0", closed), 0.0F);
  EXPECT_EQ(ParseFloat("--t", "0.8", closed), 0.8F);
  EXPECT_EQ(ParseFloat("--t", "1e-3", open), 0.001F);
  for (const char* bad : {"nan", "NaN", "inf", "-inf", "infinity", "-1", "2.1", "1e400", "", "0,5", "0.5x", " 1"}) {
    EXPECT_THAT(Refusal([&] { ParseFloat("--t", bad, closed); }),
                HasSubstr("expected a number of at least 0, at most 2"))
        << bad;
  }
  // 1e-60 is above 0 as a double, and 0 as the float that would be used.
  for (const char* bad : {"0", "1e-60", "-0"}) {
    EXPECT_THAT(Refusal([&] { ParseFloat("--t", bad, open); }), HasSubstr("expected a number above 0, at most 1"))
        << bad;
  }
}

TEST(ValuesTest, ChoiceIsRefusedWithTheNearest) {
  constexpr std::array<std::string_view, 2> rules = {"exact", "typical"};
  EXPECT_EQ(ParseChoice("--accept", "typical", rules), "typical");
  EXPECT_EQ(Refusal([&] { ParseChoice("--accept", "typicl", rules); }),
            "--accept is \"typicl\", expected one of exact, typical | did you mean typical?");
}

TEST(ValuesTest, IdListIsALiteralOrAFile) {
  const test::TempDir dir;
  EXPECT_THAT(ParseIdList("--ids", "[1, 2,3]", false), ElementsAre(1, 2, 3));
  EXPECT_THAT(ParseIdList("--ids", " []", false), IsEmpty());
  for (const bool or_file : {false, true}) {
    EXPECT_THAT(ParseIdList("--ids", "1,2,3", or_file), ElementsAre(1, 2, 3));
    EXPECT_THAT(ParseIdList("--ids", " 1, 2 ", or_file), ElementsAre(1, 2));
    EXPECT_THAT(ParseIdList("--ids", "17", or_file), ElementsAre(17));
  }
  EXPECT_THAT(ParseIdList("--ids", dir.Write("bare.txt", "4,5\n"), true), ElementsAre(4, 5));
  EXPECT_THAT(ParseIdList("--ids", dir.Write("ids.json", "[4,5]\n"), true), ElementsAre(4, 5));
}

TEST(ValuesTest, ListsHaveOneStyle) {
  for (const char* text : {"1,4", "[1,4]", " [ 1 , 4 ] ", "1, 4"}) {
    EXPECT_THAT(ListItems(text), ElementsAre("1", "4")) << text;
  }
  for (const char* text : {"a,b+", "[a, b+]", "[\"a\", \"b+\"]"}) {
    EXPECT_THAT(ListItems(text), ElementsAre("a", "b+")) << text;
  }
  EXPECT_THAT(ListItems("[1,4"), ElementsAre("[1", "4"));  // refused by whoever reads the item
  EXPECT_THAT(ListItems("1,,4"), ElementsAre("1", "", "4"));
  EXPECT_THAT(ListItems("[]"), ElementsAre(""));
}

TEST(ValuesTest, BadIdListIsNamedWithItsSource) {
  const test::TempDir dir;
  const std::string file = dir.Write("ids.json", "[4,");
  EXPECT_THAT(Refusal([&] { ParseIdList("--ids", file, true); }), HasSubstr(file + ": is not valid JSON"));
  EXPECT_THAT(Refusal([&] { ParseIdList("--ids", "1,,2", true); }), HasSubstr("--ids: is not valid JSON"));
  EXPECT_THAT(Refusal([&] { ParseIdList("--ids", "-1,2", true); }), HasSubstr("--ids: "));
  EXPECT_THAT(Refusal([&] { ParseIdList("--ids", "no.json", true); }), HasSubstr("no.json: there is no such file"));
  EXPECT_THAT(Refusal([&] { ParseIdList("--ids", "", true); }),
              HasSubstr("--ids is \"\", expected a list of token ids"));
  EXPECT_THAT(Refusal([&] { ParseIdList("--ids", file, false); }), HasSubstr("expected a list of token ids"));
  for (const char* bad : {"[-1]", "[2147483648]", "[1.5]", "[\"1\"]", "[[1]]", "[1,]", "[1] x", "[null]"}) {
    EXPECT_THAT(Refusal([&] { ParseIdList("--ids", bad, true); }), HasSubstr("--ids: ")) << bad;
  }
}

TEST(ValuesTest, FolderIsToldFromFileAndFromNothing) {
  const test::TempDir dir;
  CheckIsFolder("--model", dir.path());
  EXPECT_THAT(Refusal([&] { CheckIsFolder("--model", dir.path() + "/x"); }), HasSubstr("/x: there is no such folder"));
  EXPECT_THAT(Refusal([&] { CheckIsFolder("--model", dir.Write("f", "")); }),
              HasSubstr("/f: is a file, expected a folder"));
}

TEST(ValuesTest, FloatsPrintAsTyped) {
  EXPECT_EQ(ShortestDouble(0.8F), 0.8);
  EXPECT_EQ(ShortestDouble(0.09F), 0.09);
}

TEST(ValuesTest, BytesHaveUnits) {
  EXPECT_EQ(ParseBytes("--kv-memory", "4096"), 4096U);
  EXPECT_EQ(ParseBytes("--kv-memory", "512M"), uint64_t{512} << 20);
  EXPECT_EQ(ParseBytes("--kv-memory", "8GiB"), uint64_t{8} << 30);
  EXPECT_EQ(ParseBytes("--kv-memory", "3KB"), 3072U);
  EXPECT_EQ(ParseBytes("--kv-memory", "1048576T"), uint64_t{1} << 60);
  for (const char* same : {"16M", "16m", "16mb", "16MB", "16MiB", "16mib"}) {
    EXPECT_EQ(ParseBytes("--kv-memory", same), uint64_t{16} << 20) << same;
  }
  for (const char* bad : {"", "0", "-1", "G", "1.5G", "8 G", "8GG", "1048577T", "iB", "99999999999999999999"}) {
    EXPECT_THROW(ParseBytes("--kv-memory", bad), UserError) << bad;
  }
}

}  // namespace
}  // namespace hydrant::cli::values_test
