// SPDX-License-Identifier: Apache-2.0
#include "checkpoint/tensor_table.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "checkpoint/safetensors.h"
#include "checkpoint/test_archives.h"
#include "hydrant/error.h"

namespace hydrant::checkpoint::tensor_table_test {
namespace {

using ::testing::ElementsAre;

const std::string kFile = test_archives::Safetensors(
    R"({"__metadata__":{"tied":"w"},"w":{"dtype":"F16","shape":[2,3],"data_offsets":[0,12]},)"
    R"("ids":{"dtype":"I32","shape":[1],"data_offsets":[12,16]}})",
    std::string(16, '\0'));

class TensorTableTest : public ::testing::Test {
 protected:
  TensorTableTest()
      : source_(ReadSafetensors(test_archives::InMemory("heads.pt", kFile))), loader_(*source_, "d/config.json") {}

  template <typename Action>
  static FileError Refused(Action action) {
    try {
      action();
    } catch (const FileError& e) {
      return e;
    }
    ADD_FAILURE() << "was accepted";
    return {"", ""};
  }

  std::unique_ptr<TensorSource> source_;
  TableLoader loader_;
};

TEST_F(TensorTableTest, TakesWhatFits) {
  const TensorView view = loader_.Take({.name = "w", .shape = {{2, "rows"}, {3, "columns"}}});
  EXPECT_THAT(view.shape, ElementsAre(2, 3));
  loader_.Take({.name = "tied", .shape = {{2, "rows"}, {3, "columns"}}});
  EXPECT_EQ(loader_.bytes_taken(), 12U);  // one storage
  loader_.Ignore("ids");
  EXPECT_NO_THROW(loader_.Finish());
}

TEST_F(TensorTableTest, AShapeErrorNamesBothFilesAndTheReason) {
  const FileError error = Refused([&] {
    loader_.Take({.name = "w",
                  .shape = {{2, "hidden_size"}, {6, "2 * hidden_size"}},
                  .note = "head 0 sees the hidden state and one embedding",
                  .hint = "grounded_heads may be wrong"});
  });
  EXPECT_STREQ(
      error.what(),
      "heads.pt: tensor 'w' is [2, 3], expected [2, 6] (2 * hidden_size of d/config.json: head 0 sees the hidden "
      "state and one embedding)");
  EXPECT_EQ(error.hint(), "grounded_heads may be wrong");
}

TEST_F(TensorTableTest, AnotherRankNamesAllSymbols) {
  EXPECT_STREQ(Refused([&] {
                 loader_.Take({.name = "w", .shape = {{6, "hidden_size"}}});
               }).what(),
               "heads.pt: tensor 'w' is [2, 3], expected [6] (hidden_size of d/config.json)");
}

TEST_F(TensorTableTest, AnExtentNamesTheConfigThatSaysIt) {
  const auto refused = [this](std::vector<Extent> shape) {
    return std::string(Refused([&] { loader_.Take({.name = "w", .shape = std::move(shape)}); }).what());
  };
  const std::string expected = "heads.pt: tensor 'w' is [2, 3], expected ";
  EXPECT_EQ(refused({{2, "vocab_size"}, {4, "inner_dim", "h/config.json"}}),
            expected + "[2, 4] (inner_dim of h/config.json)");
  EXPECT_EQ(refused({{5, "vocab_size"}, {3, "inner_dim", "h/config.json"}}),
            expected + "[5, 3] (vocab_size of d/config.json)");
  EXPECT_EQ(refused({{5, "vocab_size"}, {4, "inner_dim", "h/config.json"}}),
            expected + "[5, 4] (vocab_size of d/config.json, inner_dim of h/config.json)");
}

TEST_F(TensorTableTest, AMissingTensorIsAnError) {
  EXPECT_STREQ(Refused([&] {
                 loader_.Take({.name = "v", .shape = {{5, "vocab_size"}, {3, ""}}});
               }).what(),
               "heads.pt: tensor 'v' is missing, expected [5, 3] (vocab_size of d/config.json)");
}

TEST_F(TensorTableTest, OptionalTiedAndUnusedRows) {
  EXPECT_TRUE(loader_.Take({.name = "v", .shape = {{5, ""}}, .presence = Presence::kOptional}).empty());
  EXPECT_FALSE(loader_.Take({.name = "v", .shape = {{2, ""}, {3, ""}}, .tied_to = "w"}).empty());
  EXPECT_TRUE(loader_.Take({.name = "ids", .shape = {}, .presence = Presence::kUnused}).empty());
  EXPECT_TRUE(loader_.Take({.name = "gone", .shape = {}, .presence = Presence::kUnused}).empty());
  EXPECT_STREQ(Refused([&] { loader_.Finish(); }).what(),
               "heads.pt: tensor 'tied' [2, 3] is not expected here: d/config.json describes a model without it");
}

TEST_F(TensorTableTest, AnotherDtypeIsAnError) {
  EXPECT_STREQ(Refused([&] {
                 loader_.Take({.name = "ids", .shape = {{1, ""}}});
               }).what(),
               "heads.pt: tensor 'ids' has dtype i32, expected f32, f16 or bf16");
}

TEST_F(TensorTableTest, ExtraTensorsAreCounted) {
  EXPECT_STREQ(
      Refused([&] { loader_.Finish(); }).what(),
      "heads.pt: tensor 'ids' [1] is not expected here (and 2 more): d/config.json describes a model without it");
  loader_.IgnoreIf([](const std::string& name) { return name != "w"; });
  EXPECT_STREQ(Refused([&] { loader_.Finish(); }).what(),
               "heads.pt: tensor 'w' [2, 3] is not expected here: d/config.json describes a model without it");
}

}  // namespace
}  // namespace hydrant::checkpoint::tensor_table_test
