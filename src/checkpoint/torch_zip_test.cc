// SPDX-License-Identifier: Apache-2.0
#include "checkpoint/torch_zip.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <random>

#include "checkpoint/test_archives.h"
#include "hydrant/error.h"
#include "tests/test_data.h"

namespace hydrant::checkpoint::torch_zip_test {
namespace {

using test_archives::Archive;
using test_archives::Dict;
using test_archives::Floats;
using test_archives::InMemory;
using test_archives::Proto;
using test_archives::Tensor;
using test_archives::ViewOf;
using test_archives::Zip;
using ::testing::ElementsAre;
using ::testing::HasSubstr;

std::string Refusal(const std::string& content) {
  try {
    ReadTorchZip(InMemory("m.pt", content));
    return "";
  } catch (const FileError& e) {
    EXPECT_EQ(e.file(), "m.pt");
    return e.what();
  }
}

std::string Pickle(const std::vector<std::pair<std::string, std::string>>& items) {
  return Proto() + Dict(items) + ".";
}

const std::string kStorage = Floats({0, 1, 2, 3, 4, 5});

// An archive with one tensor "w" over a storage of the six floats above.
std::string OneView(ViewOf view, bool zip64 = false) {
  view.elements = 6;
  return Archive(Pickle({{"w", Tensor(view)}}), {{"0", kStorage}}, zip64);
}

std::vector<float> Read(const std::string& content) {
  const auto source = ReadTorchZip(InMemory("m.pt", content));
  return ToFloats(source->Find("w")->view);
}

TEST(TorchZipTest, ContiguousTensorsAreViews) {
  const std::string content = OneView({.offset = 2, .shape = {2, 2}, .strides = {2, 1}});
  const auto source = ReadTorchZip(InMemory("m.pt", content));
  const TensorView& view = source->Find("w")->view;
  EXPECT_THAT(ToFloats(view), ElementsAre(2, 3, 4, 5));
  EXPECT_EQ(source->bytes_copied(), 0U);
  EXPECT_GE(view.data, reinterpret_cast<const uint8_t*>(content.data()));
  EXPECT_LT(view.data, reinterpret_cast<const uint8_t*>(content.data()) + content.size());
}

TEST(TorchZipTest, ReadsZip64) {
  EXPECT_THAT(Read(OneView({.offset = 1, .shape = {2}, .strides = {1}}, true)), ElementsAre(1, 2));
}

TEST(TorchZipTest, StridedViewsAreCopiedInRowOrder) {
  EXPECT_THAT(Read(OneView({.shape = {3, 2}, .strides = {1, 3}})), ElementsAre(0, 3, 1, 4, 2, 5));  // transposed
  EXPECT_THAT(Read(OneView({.offset = 1, .shape = {2, 2}, .strides = {3, 1}})), ElementsAre(1, 2, 4, 5));
  EXPECT_THAT(Read(OneView({.shape = {3}, .strides = {2}})), ElementsAre(0, 2, 4));
  EXPECT_THAT(Read(OneView({.shape = {1, 3}, .strides = {INT64_MAX, 2}})), ElementsAre(0, 2, 4));
  EXPECT_THAT(Read(OneView({.shape = {2, 1, 3}, .strides = {1, 7, 2}})), ElementsAre(0, 2, 4, 1, 3, 5));
}

TEST(TorchZipTest, ScalarsAndEmptyTensors) {
  EXPECT_THAT(Read(OneView({.offset = 5, .shape = {}, .strides = {}})), ElementsAre(5));
  EXPECT_THAT(Read(OneView({.offset = 6, .shape = {0, 3}, .strides = {3, 1}})), ElementsAre());
  EXPECT_NE(Refusal(OneView({.offset = 7, .shape = {0, 3}, .strides = {3, 1}})), "");
}

TEST(TorchZipTest, EqualViewsOfOneStorageShareTheirId) {
  const ViewOf whole = {.elements = 6, .shape = {6}, .strides = {1}};
  const ViewOf part = {.elements = 6, .shape = {3}, .strides = {2}};
  const std::string content =
      Archive(Pickle({{"a", Tensor(whole)}, {"b", Tensor(whole)}, {"c", Tensor(part)}, {"d", Tensor(part)}}),
              {{"0", kStorage}});
  const auto source = ReadTorchZip(InMemory("m.pt", content));
  EXPECT_EQ(source->Find("a")->storage_id, source->Find("b")->storage_id);
  EXPECT_EQ(source->Find("c")->storage_id, source->Find("d")->storage_id);
  EXPECT_NE(source->Find("a")->storage_id, source->Find("c")->storage_id);
  EXPECT_EQ(source->bytes_copied(), 12U);  // c and d are one copy
}

TEST(TorchZipTest, ReadsEveryDtype) {
  const std::vector<std::pair<std::string, DType>> classes = {
      {"FloatStorage", DType::kF32}, {"HalfStorage", DType::kF16}, {"BFloat16Storage", DType::kBF16},
      {"LongStorage", DType::kI64},  {"IntStorage", DType::kI32},  {"ByteStorage", DType::kU8},
      {"BoolStorage", DType::kBool}};
  for (const auto& [name, dtype] : classes) {
    const ViewOf view = {.storage_class = name, .elements = 3, .shape = {3}, .strides = {1}};
    const std::string content = Archive(Pickle({{"w", Tensor(view)}}), {{"0", std::string(3 * SizeOf(dtype), '\1')}});
    EXPECT_EQ(ReadTorchZip(InMemory("m.pt", content))->Find("w")->view.dtype, dtype) << name;
  }
}

TEST(TorchZipTest, RefusesViewsBeyondTheirStorage) {
  EXPECT_THAT(Refusal(OneView({.offset = 1, .shape = {6}, .strides = {1}})), HasSubstr("tensor 'w' of shape [6]"));
  EXPECT_NE(Refusal(OneView({.shape = {2, 3}, .strides = {4, 1}})), "");
  EXPECT_NE(Refusal(OneView({.offset = INT64_MAX, .shape = {1}, .strides = {1}})), "");
  EXPECT_NE(Refusal(OneView({.shape = {3, 3}, .strides = {INT64_MAX, INT64_MAX}})), "");
  EXPECT_NE(Refusal(OneView({.shape = {INT64_MAX, INT64_MAX}, .strides = {0, 0}})), "");
}

TEST(TorchZipTest, RefusesExpandedViewsAndManyCopies) {
  EXPECT_THAT(Refusal(OneView({.shape = {int64_t{1} << 40}, .strides = {0}})), HasSubstr("expanded view"));
  std::vector<std::pair<std::string, std::string>> items;
  constexpr int64_t kElements = 4096;
  for (int64_t i = 0; i < 200; ++i) {
    const ViewOf view = {.elements = kElements, .offset = i, .shape = {1000, 2}, .strides = {1, 1000}};
    items.emplace_back(std::string("w").append(std::to_string(i)), Tensor(view));
  }
  EXPECT_THAT(Refusal(Archive(Pickle(items), {{"0", std::string(4 * kElements, '\0')}})),
              HasSubstr("4 times the file"));
}

TEST(TorchZipTest, RefusesStoragesOfAnotherSize) {
  ViewOf view = {.elements = 7, .shape = {2}, .strides = {1}};
  EXPECT_THAT(Refusal(Archive(Pickle({{"w", Tensor(view)}}), {{"0", kStorage}})), HasSubstr("storage of 24 bytes"));
  view.elements = int64_t{1} << 62;
  EXPECT_THAT(Refusal(Archive(Pickle({{"w", Tensor(view)}}), {{"0", kStorage}})), HasSubstr("storage of 24 bytes"));
  view.key = "9";
  EXPECT_THAT(Refusal(Archive(Pickle({{"w", Tensor(view)}}), {{"0", kStorage}})), HasSubstr("data/9' is missing"));
}

TEST(TorchZipTest, RefusesCompressedAndEncryptedEntries) {
  EXPECT_THAT(Refusal(Zip({{"a/data.pkl", Proto() + "}.", 0, 8}})), HasSubstr("'a/data.pkl' is compressed (method 8)"));
  EXPECT_THAT(Refusal(Zip({{"a/data.pkl", Proto() + "}.", 1, 0}})), HasSubstr("'a/data.pkl' is encrypted"));
  EXPECT_EQ(Refusal(Zip({{"a/data.pkl", Proto() + "}.", 0, 0}})), "");
}

TEST(TorchZipTest, RefusesOtherKindsOfFile) {
  const std::string empty = Proto() + "}.";
  EXPECT_THAT(Refusal("plain text"), HasSubstr("not a PyTorch zip file"));
  EXPECT_THAT(Refusal(""), HasSubstr("not a PyTorch zip file"));
  EXPECT_THAT(Refusal("\x80\x02\x8a\x0a\x6c\xfc\x9c\x46\xf9\x20\x6a\xa8\x50\x19\x2e"), HasSubstr("before torch 1.6"));
  EXPECT_THAT(Refusal(Zip({{"a/other", ""}})), HasSubstr("without data.pkl"));
  EXPECT_THAT(Refusal(Zip({{"a/data.pkl", empty}, {"b/data.pkl", empty}})), HasSubstr("more than one data.pkl"));
  EXPECT_THAT(Refusal(Zip({{"a/data.pkl", empty}, {"a/data.pkl", empty}})), HasSubstr("there twice"));
  EXPECT_THAT(Refusal(Zip({{"a/data.pkl", empty}, {"a/constants.pkl", empty}})), HasSubstr("TorchScript"));
  EXPECT_THAT(Refusal(Zip({{"a/data.pkl", empty}, {"a/byteorder", "big"}})), HasSubstr("byte order 'big'"));
}

TEST(TorchZipTest, RefusesADamagedPickle) {
  std::string content = OneView({.shape = {6}, .strides = {1}});
  const size_t at = content.find("collections");
  content[at] = 'k';
  EXPECT_THAT(Refusal(content), HasSubstr("checksum"));
}

TEST(TorchZipTest, TruncationAnywhereIsAnError) {
  for (const bool zip64 : {false, true}) {
    const std::string content = OneView({.shape = {3, 2}, .strides = {1, 3}}, zip64);
    EXPECT_EQ(Refusal(content), "");
    for (size_t length = 0; length < content.size(); ++length) {
      EXPECT_NE(Refusal(content.substr(0, length)), "") << length;
    }
  }
}

TEST(TorchZipTest, FlippedBitsNeverCrash) {
  for (const bool zip64 : {false, true}) {
    const std::string content = OneView({.shape = {3, 2}, .strides = {1, 3}}, zip64);
    std::mt19937 random(11);
    for (size_t byte = 0; byte < content.size(); ++byte) {
      for (int bit = 0; bit < 8; ++bit) {
        std::string damaged = content;
        damaged[byte] = static_cast<char>(damaged[byte] ^ (1 << bit));
        Refusal(damaged);
        damaged[random() % content.size()] = static_cast<char>(random());
        Refusal(damaged);
      }
    }
  }
}

}  // namespace
}  // namespace hydrant::checkpoint::torch_zip_test
