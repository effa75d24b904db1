// SPDX-License-Identifier: Apache-2.0
// `hydrant convert --layout` with a layout of heads.
#include <gtest/gtest.h>

#include <filesystem>
#include <string>
#include <vector>

#include "base/json.h"
#include "tests/program.h"
#include "tests/test_data.h"

namespace hydrant::test::respell_commands_test {
namespace {

namespace fs = std::filesystem;
using testing::AllOf;
using testing::HasSubstr;

std::string Golden(const std::string& name) { return SourceDir() + "/tests/golden/" + name; }

Json RunWith(const std::string& heads) {
  return JsonOf(Hydrant({"run", "--model", Golden("base_mha"), "--draft", heads, "--prompt-ids", "[1, 382, 395]",
                         "--max-tokens", "30", "--tree", "single", "--json"}));
}

// Written for another project, inspected, run as it lies, and brought home.
TEST(RespellCommandsTest, RanksOfHydraHeadsAreMadeInspectedRunAndJoined) {
  const TempDir dir;
  const std::string heads = Golden("hydra/prefix_mlp_k2_l1"), ranks = dir.path() + "/ranks",
                    home = dir.path() + "/home";
  const Json made = JsonOf(Hydrant({"convert", "--layout", "tensorrt-llm", "--tp", "2", heads, ranks, "--json"}));
  EXPECT_EQ(made["layout"], "tensorrt-llm");
  EXPECT_EQ(made["drafter"], "hydra++");
  EXPECT_EQ(made["weights_files"], Json({"rank0.safetensors", "rank1.safetensors"}));
  EXPECT_EQ(made["left_out"].size(), 3U);

  const Json seen = JsonOf(Hydrant({"inspect", ranks, "--json"}))["heads"];
  EXPECT_EQ(seen["spelling"], "tensorrt-llm");
  EXPECT_EQ(seen["architecture"], "prefix-mlp");
  EXPECT_EQ(seen["num_heads"], 2);

  const Outcome joined = Hydrant({"convert", "--layout", "hydra", ranks, home});
  EXPECT_EQ(joined.code, 0) << joined.err;
  EXPECT_THAT(joined.out, HasSubstr("home/hydra_lm_head.pt: "));
  EXPECT_THAT(joined.out, HasSubstr(" tensors of hydra++ heads in layout hydra, "));
  EXPECT_EQ(JsonOf(Hydrant({"inspect", home, "--json"}))["heads"]["spelling"], "hydra");
  const Json expected = RunWith(heads);
  for (const std::string& folder : {ranks, home}) {
    const Json run = RunWith(folder);
    EXPECT_EQ(run["token_ids"], expected["token_ids"]);
    EXPECT_EQ(run["num_emitted"], expected["num_emitted"]) << "the same drafts are accepted";
  }
}

TEST(RespellCommandsTest, WhatIsLeftOutIsSaid) {
  const TempDir dir;
  const Outcome made =
      Hydrant({"convert", "--layout", "tensorrt-llm", Golden("hydra/prefix_mlp_k2_l1"), dir.path() + "/ranks"});
  EXPECT_THAT(made.out, HasSubstr("Left out, since nothing reads it: input_embed_fn.weight, "));
}

TEST(RespellCommandsTest, AFolderIsReplacedOnlyByForce) {
  const TempDir dir;
  const std::string heads = Golden("medusa/a_k3_l2"), out = dir.path() + "/out";
  EXPECT_EQ(Hydrant({"convert", "--layout", "vllm", heads, out}).code, 0);
  ExpectRefused({"convert", "--layout", "medusa-a", heads, out}, "exists already");
  EXPECT_EQ(Hydrant({"convert", "--layout", "medusa-a", heads, out, "--force"}).code, 0);
  EXPECT_FALSE(fs::exists(out + "/model.safetensors"));
}

TEST(RespellCommandsTest, FlagsThatDoNotFitAreRefused) {
  const TempDir dir;
  const std::string medusa = Golden("medusa/a_k3_l2"), hydra = Golden("hydra/mlp_k3_l2"), out = dir.path() + "/out";
  ExpectRefused({"convert", "--layout", "vlm", medusa, out}, "did you mean vllm?");
  ExpectRefused({"convert", "--tp", "2", medusa, out}, "add --layout tensorrt-llm");
  ExpectRefused({"convert", "--layout", "vllm", "--tp", "2", medusa, out}, "--tp is for layout tensorrt-llm");
  ExpectRefused({"convert", "--layout", "tensorrt-llm", "--tp", "0", medusa, out}, "--tp");
  ExpectRefused({"convert", "--layout", "vllm", "--head-weights", "w8a8", medusa, out}, "--head-weights packs weights");
  ExpectRefused({"convert", "--layout", "medusa-b", medusa, out}, "name the base with --model");
  ExpectRefused({"convert", "--layout", "medusa-a", hydra, out},
                "holds hydra heads, which layout medusa-a cannot hold");
  EXPECT_TRUE(fs::is_empty(dir.path()));
}

}  // namespace
}  // namespace hydrant::test::respell_commands_test
