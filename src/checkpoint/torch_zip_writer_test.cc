// SPDX-License-Identifier: Apache-2.0
#include "checkpoint/torch_zip_writer.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <array>
#include <cstring>
#include <filesystem>
#include <vector>

#include "base/mapped_file.h"
#include "checkpoint/tensor_source.h"
#include "checkpoint/zip_archive.h"
#include "hydrant/error.h"
#include "tests/test_data.h"

namespace hydrant::checkpoint::torch_zip_writer_test {
namespace {

using ::testing::ElementsAre;

class TorchZipWriterTest : public ::testing::Test {
 protected:
  TorchZipWriterTest() {
    for (size_t i = 0; i < bytes_.size(); ++i) bytes_[i] = static_cast<uint8_t>(i % 2);
  }
  // A tensor of the shape in the bytes from `offset` on.
  TorchTensor Of(const std::string& name, DType dtype, const std::vector<int64_t>& shape, size_t offset) const {
    TorchTensor tensor{.name = name, .view = {}};
    tensor.view.data = bytes_.data() + offset;
    tensor.view.dtype = dtype;
    tensor.view.shape = shape;
    return tensor;
  }
  std::vector<TorchTensor> OfEveryType() const {
    return {Of("f32", DType::kF32, {3, 5}, 0),      Of("f16", DType::kF16, {7}, 1),
            Of("bf16", DType::kBF16, {300, 2}, 64), Of("i64", DType::kI64, {2, 1, 3}, 3),
            Of("i32", DType::kI32, {1}, 0),         Of("u8", DType::kU8, {70000}, 0),
            Of("bool", DType::kBool, {9}, 0),       Of("scalar", DType::kF32, {}, 8)};
  }
  void ExpectReadBack(const std::vector<TorchTensor>& tensors, const TorchZipOptions& options) const {
    const std::string path = dir_.path() + "/medusa_lm_head.pt";
    WriteTorchZip(path, tensors, options);
    const auto source = OpenTensorFile(path);
    EXPECT_EQ(source->tensors().size(), tensors.size());
    EXPECT_EQ(source->bytes_copied(), 0U) << "every tensor is used where it lies";
    for (const TorchTensor& tensor : tensors) {
      const StoredTensor* read = source->Find(tensor.name);
      ASSERT_NE(read, nullptr) << tensor.name;
      EXPECT_EQ(read->view.dtype, tensor.view.dtype) << tensor.name;
      EXPECT_EQ(read->view.shape, tensor.view.shape) << tensor.name;
      EXPECT_EQ(std::memcmp(read->view.data, tensor.view.data, tensor.view.num_bytes()), 0) << tensor.name;
      EXPECT_EQ(reinterpret_cast<uintptr_t>(read->view.data) % 64, 0U) << tensor.name << ": pages begin at such places";
    }
  }

  test::TempDir dir_;
  std::array<uint8_t, 80000> bytes_{};
};

TEST_F(TorchZipWriterTest, ReaderGetsBackNamesTypesShapesAndBytes) { ExpectReadBack(OfEveryType(), {}); }

// What heads of more than 4 GB need: offsets, and a storage that is larger by itself.
TEST_F(TorchZipWriterTest, LargeNumbersStandInZip64Fields) {
  for (const uint64_t from : {0, 1, 1000, 70000}) {
    SCOPED_TRACE(from);
    ExpectReadBack(OfEveryType(), {.zip64_from = from});
  }
}

TEST_F(TorchZipWriterTest, EqualViewsShareAStorage) {
  const std::string path = dir_.path() + "/a.pt";
  WriteTorchZip(path, std::vector{Of("first", DType::kF32, {2, 3}, 0), Of("tied", DType::kF32, {2, 3}, 0),
                                  Of("reshaped", DType::kF32, {3, 2}, 0), Of("other", DType::kF32, {2, 3}, 24)});
  const auto source = OpenTensorFile(path);
  EXPECT_EQ(source->Find("first")->storage_id, source->Find("tied")->storage_id);
  EXPECT_NE(source->Find("first")->storage_id, source->Find("reshaped")->storage_id);
  EXPECT_NE(source->Find("first")->storage_id, source->Find("other")->storage_id);
  const auto mapped = base::MappedFile::Open(path);
  EXPECT_EQ(ZipArchive({path, mapped->bytes(), mapped}).Names().size(), 3U + 3U) << "three storages";
}

// As torch.save names them, and with checksums, which our reader looks at in small entries alone.
TEST_F(TorchZipWriterTest, EntriesAndChecksumsAreThoseOfTorch) {
  const std::string path = dir_.path() + "/hydra_lm_head.pt";
  WriteTorchZip(path, std::vector{Of("a", DType::kU8, {999}, 5)});
  const auto mapped = base::MappedFile::Open(path);
  const ZipArchive zip({path, mapped->bytes(), mapped});
  EXPECT_THAT(zip.Names(), ElementsAre("hydra_lm_head/byteorder", "hydra_lm_head/data.pkl", "hydra_lm_head/data/0",
                                       "hydra_lm_head/version"));
  EXPECT_EQ(zip.Read("hydra_lm_head/byteorder", 100), "little");
  EXPECT_EQ(zip.Read("hydra_lm_head/version", 100), "3\n");
  EXPECT_EQ(zip.Read("hydra_lm_head/data/0", 1000).size(), 999U);
}

TEST_F(TorchZipWriterTest, AWorkThatEndsEarlyLeavesNothing) {
  struct Stop {};
  EXPECT_THROW(WriteTorchZip(dir_.path() + "/a.pt", OfEveryType(), {.look = [] { throw Stop(); }}), Stop);
  EXPECT_TRUE(std::filesystem::is_empty(dir_.path()));
  EXPECT_THROW(WriteTorchZip(dir_.path() + "/none/a.pt", OfEveryType()), FileError);
}

}  // namespace
}  // namespace hydrant::checkpoint::torch_zip_writer_test
