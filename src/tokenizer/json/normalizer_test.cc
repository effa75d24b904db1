// SPDX-License-Identifier: Apache-2.0
#include "tokenizer/json/normalizer.h"

#include <gtest/gtest.h>
#include <utf8proc.h>

#include <cstdlib>
#include <random>

#include "base/json.h"
#include "hydrant/error.h"
#include "tokenizer/utf8.h"

namespace hydrant::tokenizer::normalizer_test {
namespace {

Normalizer Parsed(const char* json) {
  const base::Json value = base::ParseJson(json, "t.json");
  return Normalizer::Parse(base::JsonView(value, "t.json"));
}

// The library's own composition: quadratic in a run of marks, but right.
std::string NfcByLibrary(const std::string& text) {
  utf8proc_uint8_t* composed = nullptr;
  const auto options = static_cast<utf8proc_option_t>(UTF8PROC_STABLE | UTF8PROC_COMPOSE);
  const auto size = utf8proc_map(reinterpret_cast<const utf8proc_uint8_t*>(text.data()),
                                 static_cast<utf8proc_ssize_t>(text.size()), &composed, options);
  EXPECT_GE(size, 0);
  std::string result(reinterpret_cast<const char*>(composed), static_cast<size_t>(size));
  std::free(composed);
  return result;
}

TEST(NormalizerTest, ComposesAsTheLibraryDoes) {
  // Letters, marks of several classes, Hangul parts, singletons and exclusions.
  const std::vector<char32_t> pool = {'a',    'e',    0x301,  0x308,  0x323, 0x327,  0x345,  0x1100, 0x1161,
                                      0x11A8, 0xAC00, 0x212B, 0x2126, 0x958, 0x915,  0x93C,  0xFB1D, 0xE9,
                                      0x1E69, 0x307,  0x5D0,  0x5B8,  0x0,   0x4F60, 0x1D15E};
  std::mt19937 random(7);
  for (int round = 0; round < 2000; ++round) {
    std::string text;
    for (int i = 0; i < 12; ++i) AppendUtf8(pool[random() % pool.size()], &text);
    ASSERT_EQ(ToNfc(text), NfcByLibrary(text)) << round;
  }
}

// U+11A7 after a syllable, at both ends and twice, with syllables that do compose around it.
TEST(NormalizerTest, KeepsTheMarkBeforeHangulsFinals) {
  const std::string mark = "\xE1\x86\xA7", ga = "\xEA\xB0\x80", parts = "\xE1\x84\x80\xE1\x85\xA1";  // ga, and its two
  EXPECT_EQ(ToNfc(ga + mark + "x"), ga + mark + "x");
  EXPECT_EQ(ToNfc(mark + parts + mark + mark + parts + mark), mark + ga + mark + mark + ga + mark);
}

TEST(NormalizerTest, OrdersALongRunOfMarksInLinearithmicTime) {
  // 400000 marks in the worst order; a quadratic sort would take minutes.
  std::string text = "a";
  for (int i = 0; i < 200000; ++i) text += "\xCC\x81";   // class 230
  for (int i = 0; i < 200000; ++i) text += "\xCC\xA3";   // class 220
  EXPECT_TRUE(ToNfc(text).starts_with("\xE1\xBA\xA1"));  // a with dot below
}

TEST(NormalizerTest, PrependsAndReplacesInOrder) {
  const Normalizer normalizer = Parsed(R"({"type":"Sequence","normalizers":[{"type":"Prepend","prepend":"_"},)"
                                       R"({"type":"Replace","pattern":{"String":" "},"content":"_"}]})");
  EXPECT_EQ(normalizer.Apply("a b "), "_a_b_");
  EXPECT_EQ(normalizer.Apply(""), "");
}

TEST(NormalizerTest, RefusesToMultiplyTheText) {
  base::Json steps = base::Json::array();
  for (int i = 0; i < 8; ++i) {
    steps.push_back({{"type", "Replace"}, {"pattern", {{"String", "a"}}}, {"content", "aaaaaaaaaaaaaaaa"}});
  }
  const base::Json json = {{"type", "Sequence"}, {"normalizers", steps}};
  const Normalizer normalizer = Normalizer::Parse(base::JsonView(json, "t.json"));
  EXPECT_EQ(normalizer.Apply("b"), "b");
  EXPECT_THROW(normalizer.Apply("aaaa"), UserError);
}

TEST(NormalizerTest, RefusesUnknownOnesByName) {
  try {
    Parsed(R"({"type":"Sequence","normalizers":[{"type":"BertNormalizer"}]})");
    FAIL();
  } catch (const FileError& e) {
    EXPECT_STREQ(e.what(),
                 "t.json: 'normalizers[0].type' is \"BertNormalizer\", expected NFC, Prepend, Replace or Sequence");
  }
  EXPECT_THROW(Parsed(R"({"type":"Replace","pattern":{"Regex":" +"},"content":""})"), FileError);
  EXPECT_THROW(Parsed(R"({"type":"Replace","pattern":{"String":""},"content":"x"})"), FileError);
  EXPECT_THROW(Parsed(R"({"type":"Prepend","prepend":"a text that would be inserted again and again"})"), FileError);
}

}  // namespace
}  // namespace hydrant::tokenizer::normalizer_test
