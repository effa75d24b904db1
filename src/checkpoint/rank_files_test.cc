// SPDX-License-Identifier: Apache-2.0
#include "checkpoint/rank_files.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <map>
#include <numeric>
#include <vector>

#include "checkpoint/safetensors_writer.h"
#include "hydrant/error.h"
#include "tests/test_data.h"

namespace hydrant::checkpoint::rank_files_test {
namespace {

using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;

struct Numbers {
  std::vector<int64_t> shape;
  std::vector<float> values;

  // 1, 2, 3, ...
  static Numbers Count(const std::vector<int64_t>& shape) {
    int64_t count = 1;
    for (const int64_t extent : shape) count *= extent;
    Numbers numbers{shape, std::vector<float>(static_cast<size_t>(count))};
    std::iota(numbers.values.begin(), numbers.values.end(), 1.0F);
    return numbers;
  }
  TensorView View() const {
    TensorView view;
    view.data = reinterpret_cast<const uint8_t*>(values.data());
    view.shape = shape;
    return view;
  }
};

using Tensors = std::map<std::string, Numbers>;

// How the names of these tests are split.
std::optional<ShardAxis> Axis(const std::string& name) {
  if (name.starts_with("rows")) return ShardAxis::kOutputs;
  if (name.starts_with("columns")) return ShardAxis::kInputs;
  if (name.starts_with("vocabulary")) return ShardAxis::kVocabulary;
  if (name.starts_with("whole")) return ShardAxis::kReplicated;
  return std::nullopt;
}

class RankFilesTest : public ::testing::Test {
 protected:
  void Write(int64_t rank, const Tensors& tensors) const {
    std::vector<FloatTensor> list;
    for (const auto& [name, numbers] : tensors) {
      list.push_back({name, numbers.shape, numbers.values.data(), numbers.shape.back()});
    }
    WriteSafetensors(dir_.path() + "/" + RankFileName(rank), list);
  }
  // Each rank's part of the tensors, as ForEachPiece gives it.
  void WriteParts(const Tensors& tensors, int64_t count) const {
    for (int64_t rank = 0; rank < count; ++rank) {
      Tensors parts;
      for (const auto& [name, numbers] : tensors) {
        const ShardAxis axis = Axis(name).value();
        Numbers part{PartShape(numbers.shape, axis, count).value(), {}};
        ForEachPiece(numbers.View(), axis, {.rank = rank, .count = count}, [&](const uint8_t* bytes, size_t size) {
          const auto* floats = reinterpret_cast<const float*>(bytes);
          if (bytes == nullptr) part.values.insert(part.values.end(), size / 4, 0.0F);
          if (bytes != nullptr) part.values.insert(part.values.end(), floats, floats + size / 4);
        });
        parts[name] = part;
      }
      Write(rank, parts);
    }
  }
  std::unique_ptr<TensorSource> Join(int64_t vocab_size = 0) const {
    return JoinRanks(
        {.folder = dir_.path(), .count = static_cast<int64_t>(RanksIn(dir_.path()).size()), .vocab_size = vocab_size},
        Axis);
  }
  std::string Refusal(int64_t vocab_size = 0) const {
    try {
      Join(vocab_size);
      return "";
    } catch (const FileError& e) {
      return std::string(e.what()) + "\n" + e.hint();
    }
  }

  test::TempDir dir_;
};

TEST_F(RankFilesTest, RanksAreFoundByTheirWholeNames) {
  for (const char* name : {"rank10.safetensors", "rank0.safetensors", "rank2.safetensors", "rank01.safetensors",
                           "rank.safetensors", "rank3.bin", "rank-1.safetensors", "rank4.safetensors.part"}) {
    dir_.Write(name, "");
  }
  EXPECT_EQ(RanksIn(dir_.path()), (std::vector<int64_t>{0, 2, 10}));
  EXPECT_TRUE(RanksIn(dir_.path() + "/none").empty());
}

TEST_F(RankFilesTest, PartsJoinToTheTensorsThatWereCut) {
  const Tensors tensors = {{"rows.weight", Numbers::Count({12, 5})},    {"rows.bias", Numbers::Count({12})},
                           {"columns.weight", Numbers::Count({3, 12})}, {"vocabulary.weight", Numbers::Count({17, 2})},
                           {"vocabulary.bias", Numbers::Count({17})},   {"whole.weight", Numbers::Count({7})}};
  for (const int64_t count : {1, 2, 3, 4}) {
    SCOPED_TRACE(count);
    WriteParts(tensors, count);
    EXPECT_EQ(RanksIn(dir_.path()).size(), static_cast<size_t>(count));
    const auto joined = Join(17);
    EXPECT_EQ(joined->tensors().size(), tensors.size());
    EXPECT_EQ(joined->files().size(), static_cast<size_t>(count));
    for (const auto& [name, numbers] : tensors) {
      EXPECT_EQ(joined->Find(name)->shape(), numbers.shape) << name;
      EXPECT_EQ(ToFloats(joined->Find(name)->view), numbers.values) << name;
    }
  }
}

TEST_F(RankFilesTest, AVocabularyIsPaddedWithZeros) {
  const Numbers numbers = Numbers::Count({5, 1});
  EXPECT_THAT(PartShape({5, 1}, ShardAxis::kVocabulary, 4).value(), ElementsAre(2, 1));
  std::vector<size_t> data, zeros;
  for (int64_t rank = 0; rank < 4; ++rank) {
    size_t here = 0, padding = 0;
    ForEachPiece(numbers.View(), ShardAxis::kVocabulary, {.rank = rank, .count = 4},
                 [&](const uint8_t* bytes, size_t size) { (bytes == nullptr ? padding : here) += size; });
    data.push_back(here);
    zeros.push_back(padding);
  }
  EXPECT_THAT(data, ElementsAre(8, 8, 4, 0));
  EXPECT_THAT(zeros, ElementsAre(0, 0, 4, 8));
}

TEST_F(RankFilesTest, UnevenPartsAreNone) {
  EXPECT_FALSE(PartShape({5, 4}, ShardAxis::kOutputs, 2));
  EXPECT_FALSE(PartShape({4, 5}, ShardAxis::kInputs, 2));
  EXPECT_FALSE(PartShape({4}, ShardAxis::kInputs, 2));
  EXPECT_FALSE(PartShape({}, ShardAxis::kOutputs, 2));
  EXPECT_TRUE(PartShape({5, 5}, ShardAxis::kReplicated, 2));
}

// The port of Hydra++ splits weights and leaves their biases whole.
TEST_F(RankFilesTest, ABiasThatEveryRankHasWholeIsTakenOnce) {
  for (const int64_t rank : {0, 1}) {
    Write(rank, {{"rows.weight", Numbers::Count({2, 3})}, {"rows.bias", Numbers::Count({4})}});
  }
  EXPECT_THAT(Join()->Find("rows.bias")->shape(), ElementsAre(4));
  EXPECT_THAT(Join()->Find("rows.weight")->shape(), ElementsAre(4, 3));
}

TEST_F(RankFilesTest, OnlyWantedTensorsAreJoined) {
  for (const int64_t rank : {0, 1}) {
    Write(rank, {{"rows.weight", Numbers::Count({2, 3})},
                 {rank == 0 ? "transformer.ln_f.weight" : "transformer.other.weight", Numbers::Count({4})}});
  }
  EXPECT_THAT(Join()->Names(), ElementsAre("rows.weight"));
}

TEST_F(RankFilesTest, RanksThatDisagreeAreRefusedByName) {
  const Tensors good = {{"rows.weight", Numbers::Count({2, 3})}};
  Write(0, good);
  Write(1, {{"rows.weight", Numbers::Count({3, 2})}});
  EXPECT_THAT(Refusal(), AllOf(HasSubstr("rank1.safetensors: tensor 'rows.weight' is f32 [3, 2], expected f32 [2, 3] "
                                         "as in rank0.safetensors"),
                               HasSubstr("convert the checkpoint again")));
  Write(1, {{"rows.bias", Numbers::Count({2})}, {"rows.weight", Numbers::Count({2, 3})}});
  EXPECT_THAT(Refusal(), HasSubstr("holds tensor 'rows.bias', which rank0.safetensors lacks"));
  Write(1, {{"whole.weight", Numbers::Count({2})}});
  EXPECT_THAT(Refusal(), HasSubstr("rank1.safetensors: "));
  Write(0, {{"whole.weight", Numbers{{2}, {1, 9}}}});
  EXPECT_THAT(Refusal(), HasSubstr("differs from that of rank0.safetensors"));
  Write(1, {{"other", Numbers::Count({2})}});
  EXPECT_THAT(Refusal(), HasSubstr("rank1.safetensors: lacks tensor 'whole.weight'"));
  Write(0, {{"columns.weight", Numbers::Count({4})}});
  Write(1, {{"columns.weight", Numbers::Count({4})}});
  EXPECT_THAT(Refusal(), HasSubstr("expected a matrix"));
  Write(0, {{"rows.weight", Numbers{{0, 4}, {}}}});
  Write(1, {{"rows.weight", Numbers{{0, 4}, {}}}});
  EXPECT_THAT(Refusal(), HasSubstr("'rows.weight' is empty"));
}

TEST_F(RankFilesTest, OnlyPaddingIsCutFromAVocabulary) {
  for (const int64_t rank : {0, 1}) Write(rank, {{"vocabulary.weight", Numbers::Count({4, 1})}});
  EXPECT_EQ(Join(7)->Find("vocabulary.weight")->shape().front(), 7);
  EXPECT_EQ(Join(8)->Find("vocabulary.weight")->shape().front(), 8);
  EXPECT_EQ(Join()->Find("vocabulary.weight")->shape().front(), 8);
  EXPECT_THAT(Refusal(6), HasSubstr("has 8 rows in 2 ranks, expected 6 (vocab_size 6 of config.json"));
  EXPECT_THAT(Refusal(9), HasSubstr("expected 10"));
}

}  // namespace
}  // namespace hydrant::checkpoint::rank_files_test
