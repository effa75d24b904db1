// SPDX-License-Identifier: Apache-2.0
#include "checkpoint/safetensors.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <random>

#include "checkpoint/test_archives.h"
#include "hydrant/error.h"
#include "tests/test_data.h"

namespace hydrant::checkpoint::safetensors_test {
namespace {

using test_archives::InMemory;
using test_archives::Safetensors;
using ::testing::ElementsAre;
using ::testing::HasSubstr;

const char* const kTwo =
    R"({"__metadata__":{"format":"pt","tied":"a"},"a":{"dtype":"F32","shape":[2,1],"data_offsets":[0,8]},)"
    R"("b":{"dtype":"BF16","shape":[2],"data_offsets":[8,12]}}   )";

// What the reader says to a bad file; empty when it accepts it.
std::string Refusal(const std::string& content) {
  try {
    ReadSafetensors(InMemory("w.safetensors", content));
    return "";
  } catch (const FileError& e) {
    EXPECT_EQ(e.file(), "w.safetensors");
    return e.what();
  }
}

std::string RefusalOf(const std::string& header, size_t data_bytes) {
  return Refusal(Safetensors(header, std::string(data_bytes, 'x')));
}

TEST(SafetensorsTest, GivesViewsOfTheBytes) {
  const std::string content = Safetensors(kTwo, test_archives::Floats({1.5F, -2.0F}) + std::string(4, '\0'));
  const auto source = ReadSafetensors(InMemory("w.safetensors", content));
  EXPECT_THAT(source->Names(), ElementsAre("a", "b", "tied"));
  const StoredTensor* a = source->Find("a");
  ASSERT_NE(a, nullptr);
  EXPECT_THAT(a->view.shape, ElementsAre(2, 1));
  EXPECT_THAT(ToFloats(a->view), ElementsAre(1.5F, -2.0F));
  EXPECT_EQ(a->file, "w.safetensors");
  EXPECT_EQ(a->view.data, reinterpret_cast<const uint8_t*>(content.data()) + content.size() - 12);
  EXPECT_EQ(source->Find("b")->view.dtype, DType::kBF16);
  EXPECT_EQ(source->bytes_copied(), 0U);
}

TEST(SafetensorsTest, MetadataNamesAreAliasesOfTheStoredTensor) {
  const std::string content = Safetensors(kTwo, std::string(12, '\0'));
  const auto source = ReadSafetensors(InMemory("w.safetensors", content));
  EXPECT_EQ(source->Find("tied")->storage_id, source->Find("a")->storage_id);
  EXPECT_NE(source->Find("b")->storage_id, source->Find("a")->storage_id);
  EXPECT_EQ(source->Find("format"), nullptr);
}

TEST(SafetensorsTest, EmptyTensorsAndScalarsAreFine) {
  EXPECT_EQ(RefusalOf(R"({"s":{"dtype":"F16","shape":[],"data_offsets":[0,2]},)"
                      R"("e":{"dtype":"F16","shape":[0,9],"data_offsets":[2,2]}})",
                      2),
            "");
  EXPECT_EQ(RefusalOf("{}", 0), "");
}

TEST(SafetensorsTest, RefusesBadLengths) {
  EXPECT_THAT(Refusal("1234567"), HasSubstr("too short"));
  EXPECT_THAT(Refusal(test_archives::Le(uint64_t{1} << 63, 8) + "{}"), HasSubstr("9223372036854775808"));
  EXPECT_THAT(Refusal(test_archives::Le(~uint64_t{0}, 8) + "{}"), HasSubstr("18446744073709551615"));
  EXPECT_THAT(Refusal(test_archives::Le(0, 8)), HasSubstr("'{'"));
}

TEST(SafetensorsTest, RefusesOffsetsThatDoNotFit) {
  const auto one = [](const std::string& shape, const std::string& offsets) {
    return R"({"a":{"dtype":"F32","shape":)" + shape + R"(,"data_offsets":)" + offsets + "}}";
  };
  EXPECT_EQ(RefusalOf(one("[2]", "[0,8]"), 8), "");
  EXPECT_THAT(RefusalOf(one("[2]", "[0,8]"), 7), HasSubstr("'a' has data_offsets"));
  EXPECT_THAT(RefusalOf(one("[2]", "[8,0]"), 8), HasSubstr("data_offsets"));
  EXPECT_THAT(RefusalOf(one("[2]", "[0]"), 8), HasSubstr("data_offsets"));
  EXPECT_THAT(RefusalOf(one("[2]", "[0,4]"), 4), HasSubstr("expected 8"));
  EXPECT_THAT(RefusalOf(one("[2]", "[0,8]"), 9), HasSubstr("9 bytes of data"));
  EXPECT_THAT(RefusalOf(one("[2]", "[4,12]"), 12), HasSubstr("gaps"));
  EXPECT_THAT(RefusalOf(one("[4294967296,4294967296]", "[0,8]"), 8), HasSubstr("such a shape"));
  EXPECT_THAT(RefusalOf(one("[4611686018427387904]", "[0,0]"), 0), HasSubstr("'a'"));
  EXPECT_THAT(RefusalOf(one("[18446744073709551615]", "[0,8]"), 8), HasSubstr("18446744073709551615"));
  EXPECT_THAT(RefusalOf(one("[-2]", "[0,8]"), 8), HasSubstr("negative"));
  EXPECT_THAT(RefusalOf(one("[2.0]", "[0,8]"), 8), HasSubstr("fraction"));
  EXPECT_THAT(RefusalOf(one("[1,1,1,1,1,1,1,1,2]", "[0,8]"), 8), HasSubstr("more than 8"));
}

TEST(SafetensorsTest, RefusesOverlap) {
  EXPECT_THAT(RefusalOf(R"({"a":{"dtype":"U8","shape":[4],"data_offsets":[0,4]},)"
                        R"("b":{"dtype":"U8","shape":[4],"data_offsets":[2,6]}})",
                        6),
              HasSubstr("'b' begins at data offset 2, expected 4"));
}

TEST(SafetensorsTest, RefusesMalformedHeaders) {
  const std::string a = R"("a":{"dtype":"U8","shape":[1],"data_offsets":[0,1]})";
  EXPECT_EQ(RefusalOf("{" + a + "}", 1), "");
  EXPECT_THAT(RefusalOf("{" + a + "," + a + "}", 1), HasSubstr("'a' twice"));
  EXPECT_THAT(RefusalOf("{" + a, 1), HasSubstr("not valid JSON"));
  EXPECT_THAT(RefusalOf("{" + a + "}x", 1), HasSubstr("not valid JSON"));
  EXPECT_THAT(RefusalOf(R"({"a":{"dtype":"U8","shape":[1]}})", 1), HasSubstr("no dtype, shape or data_offsets"));
  EXPECT_THAT(RefusalOf(R"({"a":{"dtype":"U8","dtype":"U8"}})", 1), HasSubstr("'dtype' twice"));
  EXPECT_THAT(RefusalOf(R"({"a":{"more":1}})", 1), HasSubstr("'more'"));
  EXPECT_THAT(RefusalOf(R"({"a":[1]})", 1), HasSubstr("an array"));
  EXPECT_THAT(RefusalOf(R"({"a":{"dtype":{"x":1}}})", 1), HasSubstr("an object"));
  EXPECT_THAT(RefusalOf(R"({"__metadata__":{"x":1}})", 0), HasSubstr("a number"));
  EXPECT_THAT(RefusalOf(R"({"__metadata__":{"x":"1","x":"2"}})", 0), HasSubstr("twice"));
  EXPECT_THAT(RefusalOf(R"({"__metadata__":{},"__metadata__":{}})", 0), HasSubstr("twice"));
  EXPECT_THAT(RefusalOf(std::string("{\"a\":") + std::string(100000, '['), 0), HasSubstr("an array"));
  EXPECT_THAT(RefusalOf("{\"\xff\":1}", 0), HasSubstr("not valid JSON"));
  EXPECT_THAT(RefusalOf(R"({"\u001b[31m":{"dtype":"U8","shape":[1],"data_offsets":[0,1]}})", 1),
              HasSubstr("control characters"));
}

// As safetensors 0.5 does: no metadata. Any other null is refused, and twice is twice.
TEST(SafetensorsTest, MetadataMayBeNull) {
  const std::string a = R"("a":{"dtype":"U8","shape":[1],"data_offsets":[0,1]})";
  EXPECT_EQ(RefusalOf(R"({"__metadata__":null,)" + a + "}", 1), "");
  EXPECT_EQ(RefusalOf("{" + a + R"(,"__metadata__":null})", 1), "");
  EXPECT_THAT(RefusalOf(R"({"__metadata__":null,"__metadata__":{}})", 0), HasSubstr("twice"));
  EXPECT_THAT(RefusalOf(R"({"__metadata__":{},"__metadata__":null})", 0), HasSubstr("twice"));
}

TEST(SafetensorsTest, ValuesOfTheWrongKindAreNamedByTheirKeys) {
  EXPECT_THAT(RefusalOf(R"({"a.weight":null})", 0), HasSubstr("has null as 'a.weight'"));
  EXPECT_THAT(RefusalOf(R"({"a":{"dtype":"U8","shape":[1],"data_offsets":[0,1]},"b":null})", 1),
              HasSubstr("has null as 'b'"));
  EXPECT_THAT(RefusalOf(R"({"a":{"dtype":null}})", 0), HasSubstr("has null as 'dtype' in 'a'"));
  EXPECT_THAT(RefusalOf(R"({"a":{"dtype":"U8","shape":null}})", 0), HasSubstr("has null as 'shape' in 'a'"));
  EXPECT_THAT(RefusalOf(R"({"a":{"shape":[1,null]}})", 0), HasSubstr("has null as 'shape' in 'a'"));
  EXPECT_THAT(RefusalOf(R"({"__metadata__":{"format":null}})", 0), HasSubstr("has null as 'format' in '__metadata__'"));
  EXPECT_THAT(RefusalOf(R"({"__metadata__":"x"})", 0), HasSubstr("has text as '__metadata__'"));
  EXPECT_THAT(RefusalOf(R"({"a":3})", 0), HasSubstr("has a number as 'a'"));
}

TEST(SafetensorsTest, RefusesOtherDtypesByName) {
  EXPECT_THAT(RefusalOf(R"({"w":{"dtype":"F8_E4M3","shape":[1],"data_offsets":[0,1]}})", 1),
              HasSubstr("tensor 'w' has dtype F8_E4M3"));
}

TEST(SafetensorsTest, RefusesAnAliasOfAStoredName) {
  EXPECT_THAT(RefusalOf(R"({"__metadata__":{"b":"a"},"a":{"dtype":"U8","shape":[1],"data_offsets":[0,1]},)"
                        R"("b":{"dtype":"U8","shape":[1],"data_offsets":[1,2]}})",
                        2),
              HasSubstr("both are stored"));
}

TEST(SafetensorsTest, TruncationAnywhereIsAnError) {
  const std::string content = Safetensors(kTwo, std::string(12, '\1'));
  EXPECT_EQ(Refusal(content), "");
  for (size_t length = 0; length < content.size(); ++length)
    EXPECT_NE(Refusal(content.substr(0, length)), "") << length;
}

TEST(SafetensorsTest, FlippedBitsNeverCrash) {
  const std::string content = Safetensors(kTwo, std::string(12, '\1'));
  const size_t header_end = content.size() - 12;
  std::mt19937 random(7);
  size_t refused = 0;
  for (size_t byte = 0; byte < header_end; ++byte) {
    for (int bit = 0; bit < 8; ++bit) {
      std::string damaged = content;
      damaged[byte] = static_cast<char>(damaged[byte] ^ (1 << bit));
      refused += Refusal(damaged).empty() ? 0 : 1;
      damaged[random() % header_end] = static_cast<char>(random());
      Refusal(damaged);
    }
  }
  EXPECT_GT(refused, header_end * 4);  // names and metadata may change unnoticed
}

}  // namespace
}  // namespace hydrant::checkpoint::safetensors_test
