// SPDX-License-Identifier: Apache-2.0
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <fstream>
#include <map>

#include "base/json.h"
#include "hydrant/error.h"
#include "tests/test_data.h"
#include "tree/parse.h"

namespace hydrant::tree::presets_test {
namespace {

// Nodes per depth as the authors' lists have them.
const std::map<std::string, std::vector<int32_t>> kWidths = {
    {"mc_sim_7b_63", {10, 28, 23, 2}},
    {"vicuna_7b_stage1", {10, 32, 20, 1}},
    {"vicuna_7b_stage1_ablation", {10, 21, 25, 7}},
    {"vicuna_7b_stage2", {10, 23, 23, 7}},
    {"vicuna_13b_stage1", {10, 29, 23, 1}},
    {"vicuna_13b_stage2", {10, 19, 25, 9}},
    {"vicuna_33b_stage1", {10, 34, 19}},
    {"vicuna_33b_stage2", {10, 24, 24, 5}},
    {"zephyr_stage2", {10, 27, 23, 3}},
    {"eagle_1", {4, 8, 8, 3, 2}},
    {"single", {1}},
    {"chain", {1, 1, 1, 1}},
    {"blockwise", {1, 1, 1, 1, 1, 1, 1, 1, 1}},
};

TEST(PresetsTest, HaveTheirPublishedSizes) {
  EXPECT_EQ(PresetNames().size(), kWidths.size());
  for (const std::string_view name : PresetNames()) {
    SCOPED_TRACE(name);
    ASSERT_TRUE(kWidths.contains(std::string(name)));
    const std::vector<int32_t>& widths = kWidths.at(std::string(name));
    const Topology topology = Preset(name);
    ASSERT_EQ(topology.max_depth(), static_cast<int32_t>(widths.size()));
    for (int32_t d = 1; d <= topology.max_depth(); ++d) {
      EXPECT_EQ(topology.width_at(d), widths[static_cast<size_t>(d - 1)]);
    }
    if (widths[0] != 10) continue;
    EXPECT_EQ(topology.num_nodes(), 64);
    EXPECT_EQ(topology.max_children_at(0), 10);
    EXPECT_GE(topology.num_leaves(), 42);
    EXPECT_LE(topology.num_leaves(), 46);
  }
}

TEST(PresetsTest, BlockwiseAloneIsCutToTheHeads) {
  EXPECT_EQ(ForHeads(ParseTree("blockwise"), 3).max_depth(), 3);
  EXPECT_EQ(ForHeads(ParseTree("blockwise"), 64).max_depth(), 9);
  EXPECT_EQ(ForHeads(ParseTree("chain"), 3).max_depth(), 4) << "refused where it is used";
}

TEST(PresetsTest, UnknownNameSuggestsTheNearest) {
  EXPECT_FALSE(IsPreset("mc_sim_7b_64"));
  try {
    Preset("mc-sim-7b-36");
    FAIL();
  } catch (const UserError& error) {
    EXPECT_STREQ(error.what(), "no tree is called 'mc-sim-7b-36'");
    EXPECT_THAT(error.hint(), testing::HasSubstr("'mc_sim_7b_63'"));
  }
}

// The reference cases carry the authors' own list.
TEST(PresetsTest, McSimEqualsTheAuthorsList) {
  HYDRANT_NEED_SHARED();
  const base::Json json = base::ReadJsonFile(test::SharedDir() + "/golden/hydra/hydra_pp_k4_l4/case.json");
  const Topology theirs = ParseTreeJson(json.at("trees").at("mc_sim_7b_63").dump(), "case");
  EXPECT_EQ(Preset("mc_sim_7b_63"), theirs);
}

}  // namespace
}  // namespace hydrant::tree::presets_test
