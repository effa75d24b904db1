// SPDX-License-Identifier: Apache-2.0
#include "checkpoint/safetensors_writer.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <array>
#include <filesystem>

#include "checkpoint/tensor_source.h"
#include "hydrant/error.h"
#include "tests/test_data.h"

namespace hydrant::checkpoint::safetensors_writer_test {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;

// Two tensors, the second with rows 4 floats apart of which 3 count.
constexpr std::array<float, 2> kFirst = {1.5F, -2.0F};
constexpr std::array<float, 8> kSecond = {1, 2, 3, 99, 4, 5, 6, 99};
const std::array<FloatTensor, 2> kTensors = {{{"b", {2}, kFirst.data(), 2}, {"a", {2, 3}, kSecond.data(), 4}}};

size_t FilesIn(const std::string& folder) {
  return static_cast<size_t>(
      std::distance(std::filesystem::directory_iterator(folder), std::filesystem::directory_iterator()));
}

TEST(SafetensorsWriterTest, ReaderGetsBackNamesShapesAndValues) {
  const test::TempDir dir;
  const std::string path = dir.path() + "/out.safetensors";
  WriteSafetensors(path, kTensors);
  const auto source = OpenTensorFile(path);
  EXPECT_THAT(source->Names(), ElementsAre("a", "b"));
  const TensorView a = source->Find("a")->view;
  EXPECT_THAT(a.shape, ElementsAre(2, 3));
  EXPECT_THAT(ToFloats(a), ElementsAre(1, 2, 3, 4, 5, 6));
  EXPECT_THAT(ToFloats(source->Find("b")->view), ElementsAre(1.5F, -2.0F));
}

TEST(SafetensorsWriterTest, ReplacesAnOlderFileAndLeavesNothingElse) {
  const test::TempDir dir;
  const std::string path = dir.Write("out.safetensors", "old");
  WriteSafetensors(path, kTensors);
  EXPECT_EQ(OpenTensorFile(path)->Names().size(), 2U);
  EXPECT_EQ(FilesIn(dir.path()), 1U);
}

TEST(SafetensorsWriterTest, FolderThatDoesNotExistIsNamed) {
  const test::TempDir dir;
  try {
    WriteSafetensors(dir.path() + "/nowhere/out.safetensors", kTensors);
    FAIL() << "no error";
  } catch (const FileError& e) {
    EXPECT_THAT(e.what(), HasSubstr("/nowhere/out.safetensors: cannot be created: No such file"));
  }
  EXPECT_EQ(FilesIn(dir.path()), 0U);
}

TEST(SafetensorsWriterTest, FolderInPlaceOfTheFileIsRefused) {
  const test::TempDir dir;
  EXPECT_THROW(WriteSafetensors(dir.path(), kTensors), FileError);
}

}  // namespace
}  // namespace hydrant::checkpoint::safetensors_writer_test
