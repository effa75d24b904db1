// SPDX-License-Identifier: Apache-2.0
#include "checkpoint/packed_tensors.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "base/json.h"
#include "checkpoint/safetensors.h"
#include "checkpoint/test_archives.h"
#include "hydrant/error.h"

namespace hydrant::checkpoint::packed_tensors_test {
namespace {

using test_archives::InMemory;
using test_archives::Safetensors;
using ::testing::ElementsAre;
using ::testing::HasSubstr;

// A header with one packed tensor "w" of one panel of 64 bytes (the sizes need not be a real layout's here), its
// scales, a dictionary, and a float tensor.
base::Json Header() {
  base::Json packed = {{"w", {{"format", "w4a8"}, {"shape", {3, 5}}, {"slices", 1}}}};
  return {{"__metadata__", {{"hydrant.layout", "5"}, {"hydrant.packed", packed.dump()}, {"tied", "w"}}},
          {"w", {{"dtype", "U8"}, {"shape", {1, 1, 64}}, {"data_offsets", {0, 64}}}},
          {"w.scales", {{"dtype", "F32"}, {"shape", {1, 16}}, {"data_offsets", {64, 128}}}},
          {"hydrant.dictionary", {{"dtype", "U8"}, {"shape", {256, 16}}, {"data_offsets", {128, 4224}}}},
          {"norm", {{"dtype", "F32"}, {"shape", {2}}, {"data_offsets", {4224, 4232}}}}};
}

std::string Content(const base::Json& header) { return Safetensors(header.dump(), std::string(4232, 'x')); }

std::string RefusalOf(const base::Json& header) {
  try {
    ReadSafetensors(InMemory("w.safetensors", Content(header)));
    return "";
  } catch (const FileError& e) {
    return std::string(e.what()) + "\n" + e.hint();
  }
}

std::string RefusalOfEntry(const base::Json& entry) {
  base::Json header = Header();
  header["__metadata__"]["hydrant.packed"] = base::Json({{"w", entry}}).dump();
  return RefusalOf(header);
}

TEST(PackedTensorsTest, APackedTensorHasTheShapeOfItsMatrix) {
  const auto source = ReadSafetensors(InMemory("w.safetensors", Content(Header())));
  EXPECT_THAT(source->Names(), ElementsAre("norm", "tied", "w"));
  const StoredTensor& w = *source->Find("w");
  ASSERT_TRUE(w.packed);
  EXPECT_EQ(w.packed->format, "w4a8");
  EXPECT_THAT(w.shape(), ElementsAre(3, 5));
  EXPECT_THAT(w.view.shape, ElementsAre(1, 1, 64));
  EXPECT_THAT(w.packed->scales.shape, ElementsAre(1, 16));
  EXPECT_THAT(w.packed->dictionary.shape, ElementsAre(256, 16));
  EXPECT_EQ(w.bytes(), 128U);
  EXPECT_EQ(source->Find("tied")->packed, w.packed);
  EXPECT_EQ(source->Find("tied")->storage_id, w.storage_id);
  EXPECT_FALSE(source->Find("norm")->packed);
  EXPECT_EQ(source->metadata().at("hydrant.layout"), "5");
}

TEST(PackedTensorsTest, OtherLayoutsAreRefused) {
  base::Json header = Header();
  header["__metadata__"]["hydrant.layout"] = "1";
  EXPECT_THAT(RefusalOf(header), HasSubstr("w.safetensors: has packed weights of layout 1, expected layout 6 or 5"));
  EXPECT_THAT(RefusalOf(header), HasSubstr("convert it again"));
  header["__metadata__"].erase("hydrant.layout");
  EXPECT_THAT(RefusalOf(header), HasSubstr("of layout unknown"));
  header = Header();
  header["__metadata__"].erase("hydrant.packed");
  EXPECT_THAT(RefusalOf(header), HasSubstr("have no 'hydrant.packed'"));
}

TEST(PackedTensorsTest, MetadataThatDoNotFitTheTensorsAreRefused) {
  base::Json header = Header();
  header.erase("w.scales");
  header["filler"] = {{"dtype", "F32"}, {"shape", {1, 16}}, {"data_offsets", {64, 128}}};
  EXPECT_THAT(RefusalOf(header), HasSubstr("tensor 'w.scales' is missing"));
  header = Header();
  header["w"]["shape"] = {1, 64};
  EXPECT_THAT(RefusalOf(header), HasSubstr("tensor 'w' is u8 [1, 64], expected u8 with 3 dimensions"));
  header = Header();
  header["w"] = {{"dtype", "F32"}, {"shape", {1, 1, 16}}, {"data_offsets", {0, 64}}};
  EXPECT_THAT(RefusalOf(header), HasSubstr("tensor 'w' is f32"));
  header = Header();
  header["__metadata__"]["hydrant.packed"] = "[";
  EXPECT_THAT(RefusalOf(header), HasSubstr("w.safetensors ('hydrant.packed' of its metadata): is not valid JSON"));
  header["__metadata__"]["hydrant.packed"] = "[1]";
  EXPECT_THAT(RefusalOf(header), HasSubstr("metadata): the JSON value is [1], expected an object"));
  header["__metadata__"]["hydrant.packed"] = R"({"absent":{"format":"w8a8","shape":[1,1],"slices":1}})";
  EXPECT_THAT(RefusalOf(header), HasSubstr("tensor 'absent' is missing"));
}

TEST(PackedTensorsTest, EntriesWithImpossibleValuesAreRefused) {
  EXPECT_THAT(RefusalOfEntry({{"format", 1}, {"shape", {3, 5}}, {"slices", 1}}), HasSubstr("'w.format' is 1"));
  EXPECT_THAT(RefusalOfEntry({{"format", "w8a8"}, {"shape", {3}}, {"slices", 1}}), HasSubstr("expected two extents"));
  EXPECT_THAT(RefusalOfEntry({{"format", "w8a8"}, {"shape", {3, 0}}, {"slices", 1}}), HasSubstr("'w.shape[1]' is 0"));
  EXPECT_THAT(RefusalOfEntry({{"format", "w8a8"}, {"shape", {3, 5}}, {"slices", 0}}), HasSubstr("'w.slices' is 0"));
  EXPECT_THAT(RefusalOfEntry({{"format", "w8a8"}, {"shape", {3, 5}}, {"slices", 2}}), HasSubstr("a divisor"));
  EXPECT_THAT(RefusalOfEntry({{"shape", {3, 5}}, {"slices", 1}}), HasSubstr("format"));
}

}  // namespace
}  // namespace hydrant::checkpoint::packed_tensors_test
