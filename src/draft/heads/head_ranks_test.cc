// SPDX-License-Identifier: Apache-2.0
#include "draft/heads/head_ranks.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <array>
#include <vector>

#include "checkpoint/rank_files.h"
#include "checkpoint/safetensors_writer.h"
#include "draft/heads/head_tensors.h"
#include "hydrant/error.h"
#include "tests/test_data.h"

namespace hydrant::draft::head_ranks_test {
namespace {

using checkpoint::ShardAxis;
using ::testing::HasSubstr;

class HeadRanksTest : public ::testing::Test {
 protected:
  // A file of these names, [2, 1] each.
  void Write(int64_t rank, const std::vector<std::string>& names) const {
    std::vector<checkpoint::FloatTensor> tensors;
    for (const std::string& name : names) tensors.push_back({name, {2, 1}, kNumbers.data(), 1});
    checkpoint::WriteSafetensors(dir_.path() + "/" + checkpoint::RankFileName(rank), tensors);
  }
  std::string Refusal(const std::string& config) const {
    dir_.Write("config.json", config);
    try {
      OpenHeads(dir_.path());
      return "";
    } catch (const FileError& e) {
      return std::string(e.what()) + "\n" + e.hint();
    }
  }

  static constexpr std::array<float, 2> kNumbers = {1, 2};
  test::TempDir dir_;
};

const std::vector<std::string> kMedusa = {"medusa_heads.0.medusa_layers.0.linear.weight",
                                          "medusa_heads.0.lm_head.weight"};
const std::vector<std::string> kHydra = {"hydra_heads.0.hydra_mlp.linear.weight",
                                         "hydra_heads.0.hydra_mlp.res_connection.weight",
                                         "hydra_heads.0.hydra_lm_head.weight"};

TEST_F(HeadRanksTest, EachHeadTensorHasAnAxis) {
  const std::vector<std::pair<const char*, ShardAxis>> axes = {
      {"medusa_heads.3.medusa_layers.0.linear.weight", ShardAxis::kOutputs},
      {"medusa_heads.3.medusa_layers.0.linear.bias", ShardAxis::kOutputs},
      {"medusa_heads.3.lm_head.weight", ShardAxis::kVocabulary},
      {"hydra_heads.0.hydra_mlp.linear.weight", ShardAxis::kOutputs},
      {"hydra_heads.0.hydra_mlp.res_connection.bias", ShardAxis::kOutputs},
      {"hydra_heads.0.hydra_mlps.2.linear.weight", ShardAxis::kOutputs},
      {"hydra_heads.0.hydra_lm_head.weight", ShardAxis::kVocabulary},
      {"prefix_embedding_layer.layer.self_attn.q_proj.weight", ShardAxis::kOutputs},
      {"prefix_embedding_layer.layer.self_attn.v_proj.weight", ShardAxis::kOutputs},
      {"prefix_embedding_layer.layer.self_attn.o_proj.weight", ShardAxis::kInputs},
      {"prefix_embedding_layer.layer.mlp.up_proj.weight", ShardAxis::kOutputs},
      {"prefix_embedding_layer.layer.mlp.down_proj.weight", ShardAxis::kInputs},
      {"prefix_embedding_layer.layer.input_layernorm.weight", ShardAxis::kReplicated},
      {"prefix_embedding_layer.norm.weight", ShardAxis::kReplicated}};
  for (const auto& [name, axis] : axes) EXPECT_EQ(RankAxis(name), axis) << name;
  for (const char* name : {"lm_head.weight", "transformer.layers.0.mlp.fc.weight", "hydra_mlp.0.1.linear.weight"}) {
    EXPECT_FALSE(RankAxis(name)) << name;
  }
}

TEST_F(HeadRanksTest, RanksAreJoinedWhateverTheConfigLeavesOut) {
  for (const int64_t rank : {0, 1, 2}) Write(rank, kMedusa);
  const HeadsFile without = OpenHeads(dir_.path());
  EXPECT_EQ(without.tensors->Find(kMedusa[0])->shape().front(), 6);
  dir_.Write("config.json", R"({"mapping": {"tp_size": 3}, "vocab_size": 5})");
  const HeadsFile with = OpenHeads(dir_.path());
  EXPECT_EQ(with.tensors->Find(kMedusa[0])->shape().front(), 6);
  EXPECT_EQ(with.tensors->Find(kMedusa[1])->shape().front(), 5);
  EXPECT_EQ(with.info.layout, "e");
  EXPECT_EQ(with.tensors->files().size(), 3U);
}

TEST_F(HeadRanksTest, ARankThatIsMissingOrTooManyIsNamed) {
  for (const int64_t rank : {0, 1, 3}) Write(rank, kMedusa);
  EXPECT_THAT(
      Refusal(R"({"mapping": {"tp_size": 4}})"),
      AllOf(HasSubstr("holds 3 rank files, expected 4 ('mapping.tp_size' of "), HasSubstr("add rank2.safetensors")));
  EXPECT_THAT(Refusal(R"({"mapping": {"tp_size": 1}})"),
              AllOf(HasSubstr("holds 3 rank files, expected 1 "), HasSubstr("take away what is left of another")));
  for (const char* config : {R"({"mapping": {"tp_size": 3}})", "{}"}) {
    EXPECT_THAT(Refusal(config),
                AllOf(HasSubstr("holds 3 rank files, but no rank2.safetensors"), HasSubstr("add rank2.safetensors")));
  }
  EXPECT_THAT(Refusal(R"({"mapping": {"world_size": 4, "pp_size": 2, "tp_size": 2}})"),
              AllOf(HasSubstr("'mapping.pp_size' is 2, expected 1"), HasSubstr("without pipeline parallelism")));
}

// The port's own configs have no 'hydra_head_arch'.
TEST_F(HeadRanksTest, HydraHeadsInRankFilesSayByTheirTensorsWhatTheyAre) {
  dir_.Write("config.json", R"({"num_hydra_heads": 1, "num_hydra_layers": 1})");
  Write(0, kHydra);
  HeadsInfo info = OpenHeads(dir_.path()).info;
  EXPECT_EQ(info.name, "hydra");
  EXPECT_EQ(info.num_layers, 1);
  EXPECT_TRUE(info.sequentially_dependent);

  std::vector<std::string> names = kHydra;
  for (const char* name : {"hydra_heads.0.hydra_mlps.0.linear.weight", "hydra_heads.0.hydra_mlps.1.linear.weight",
                           "prefix_embedding_layer.norm.weight"}) {
    names.emplace_back(name);
  }
  Write(0, names);
  info = OpenHeads(dir_.path()).info;
  EXPECT_EQ(info.name, "hydra++");
  EXPECT_EQ(info.layout, "prefix-mlp");
  EXPECT_EQ(info.num_layers, 3);
  EXPECT_EQ(info.warnings.size(), 1U) << "num_hydra_layers is another";

  Write(0, {"hydra_heads.0.hydra_mlps.0.linear.weight", "hydra_heads.0.hydra_lm_head.weight"});
  info = OpenHeads(dir_.path()).info;
  EXPECT_FALSE(info.sequentially_dependent);
  EXPECT_EQ(info.num_layers, 1);
}

}  // namespace
}  // namespace hydrant::draft::head_ranks_test
