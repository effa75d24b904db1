// SPDX-License-Identifier: Apache-2.0
#include "cli/flags/flags.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "hydrant/error.h"

namespace hydrant::cli::flags_test {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;

struct Fixture {
  FlagSet flags{"hydrant test", "A test.", "Examples:\n  hydrant test --text x\n"};
  std::string text = "default", path;
  std::vector<std::string> stops;
  bool json = false;

  Fixture() {
    flags.Text("--text", "TEXT", &text, "Some text");
    flags.Repeated(
        "--stop", "TEXT", [this](const std::string& value) { stops.push_back(value); }, "Stop here");
    flags.Switch("--json", &json, "As JSON");
    flags.Positional("PATH", &path, false, "A path");
  }

  // Message and hint of the refusal; empty when the words are accepted.
  std::string Refusal(const std::vector<std::string>& args) {
    try {
      flags.Parse(args);
    } catch (const UserError& e) {
      return std::string(e.what()) + " | " + e.hint();
    }
    return "";
  }
};

TEST(FlagsTest, ValuesSwitchesAndPositionalsAreRead) {
  Fixture f;
  EXPECT_TRUE(f.flags.Parse({"--text", "a b", "here", "--json", "--stop", "x", "--stop=y"}));
  EXPECT_EQ(f.text, "a b");
  EXPECT_EQ(f.path, "here");
  EXPECT_TRUE(f.json);
  EXPECT_THAT(f.stops, ElementsAre("x", "y"));
  EXPECT_TRUE(f.flags.Given("--text"));
}

TEST(FlagsTest, AbsentFlagsKeepTheirDefaults) {
  Fixture f;
  EXPECT_TRUE(f.flags.Parse({}));
  EXPECT_EQ(f.text, "default");
  EXPECT_FALSE(f.json);
  EXPECT_THAT(f.stops, IsEmpty());
  EXPECT_FALSE(f.flags.Given("--text"));
}

TEST(FlagsTest, ValueIsTakenAsItStands) {
  for (const std::string value :
       {"", "-1", "-x", "[1,2]", "[[0],[0,0]]", "{}", "[]", "%%", "a=b", "\xff\n", "--notours"}) {
    Fixture separate, joined;
    EXPECT_TRUE(separate.flags.Parse({"--text", value})) << value;
    EXPECT_EQ(separate.text, value);
    EXPECT_TRUE(joined.flags.Parse({"--text=" + value})) << value;
    EXPECT_EQ(joined.text, value);
    Fixture repeated;
    EXPECT_TRUE(repeated.flags.Parse({"--stop", value})) << value;
    EXPECT_THAT(repeated.stops, ElementsAre(value));
  }
}

TEST(FlagsTest, NothingBehindTwoDashesIsAFlag) {
  Fixture f;
  EXPECT_TRUE(f.flags.Parse({"--text", "a", "--", "--json"}));
  EXPECT_EQ(f.path, "--json");
  EXPECT_FALSE(f.json);
  Fixture empty;
  EXPECT_TRUE(empty.flags.Parse({"--json", "--"}));
  EXPECT_TRUE(empty.json);
}

TEST(FlagsTest, UnknownFlagIsRefusedWithTheNearest) {
  EXPECT_EQ(Fixture().Refusal({"--txet", "a"}), "unknown flag '--txet' | did you mean --text?");
  EXPECT_EQ(Fixture().Refusal({"--jsn=1"}), "unknown flag '--jsn' | did you mean --json?");
  EXPECT_THAT(Fixture().Refusal({"--zzzzzzzzzz"}), HasSubstr("'hydrant test --help' lists the flags"));
  EXPECT_THAT(Fixture().Refusal({"-q"}), HasSubstr("unknown flag '-q'"));
}

TEST(FlagsTest, FlagIsNotTakenForTheValueOfAnother) {
  EXPECT_EQ(Fixture().Refusal({"--text", "--json"}),
            "--text needs a value (TEXT), found the flag --json | if --json is the value, write --text=--json");
  EXPECT_THAT(Fixture().Refusal({"--json", "--text"}), HasSubstr("--text needs a value (TEXT)"));
  Fixture f;
  EXPECT_TRUE(f.flags.Parse({"--text=--json"}));
  EXPECT_EQ(f.text, "--json");
  EXPECT_FALSE(f.json);
}

TEST(FlagsTest, OtherMistakesAreNamed) {
  EXPECT_THAT(Fixture().Refusal({"--text", "a", "--text", "b"}), HasSubstr("--text is given twice"));
  EXPECT_THAT(Fixture().Refusal({"--json=yes"}), HasSubstr("--json takes no value"));
  EXPECT_THAT(Fixture().Refusal({"one", "two"}), HasSubstr("unexpected argument 'two'"));
  EXPECT_THAT(Fixture().Refusal({"one", "--", "--json"}), HasSubstr("unexpected argument '--json'"));
}

TEST(FlagsTest, MissingPositionalIsNamed) {
  FlagSet flags("hydrant test", "", "");
  std::string path;
  flags.Positional("PATH", &path, true, "A path");
  try {
    flags.Parse({});
    FAIL() << "no error";
  } catch (const UserError& e) {
    EXPECT_THAT(e.what(), HasSubstr("PATH"));
  }
}

TEST(FlagsTest, HelpListsFlagsAndExamples) {
  const std::string help = Fixture().flags.Help();
  EXPECT_THAT(help, HasSubstr("--text TEXT"));
  EXPECT_THAT(help, HasSubstr("Examples:"));
}

}  // namespace
}  // namespace hydrant::cli::flags_test
