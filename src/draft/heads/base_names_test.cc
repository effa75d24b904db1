// SPDX-License-Identifier: Apache-2.0
#include "draft/heads/base_names.h"

#include <gtest/gtest.h>

namespace hydrant::draft::base_names_test {
namespace {

bool Differ(const std::string& heads, const std::string& name_or_path, const std::string& folder,
            const std::string& family = "llama") {
  return DifferentBase(heads, {.name_or_path = name_or_path, .folders = {folder}, .family = family}).has_value();
}

TEST(BaseNamesTest, OneAgreeingNameIsEnough) {
  EXPECT_FALSE(Differ("lmsys/vicuna-7b-v1.3", "lmsys/vicuna-7b-v1.3", "/m"));
  EXPECT_FALSE(Differ("lmsys/vicuna-7b-v1.3", "Vicuna_7B-v1.3", "/m"));
  EXPECT_FALSE(Differ("lmsys/vicuna-7b-v1.3", "data/run-3", "/home/me/vicuna-7b-v1.3"));
  EXPECT_FALSE(Differ("lmsys/vicuna-7b-v1.3", "", "/home/me/vicuna-7b-v1.3-w4a8"));
  EXPECT_FALSE(Differ("lmsys/vicuna-7b-v1.3", "", "/home/me/vicuna-7b"));
  EXPECT_FALSE(Differ("lmsys/vicuna-7b-v1.3", "", "/c/models--lmsys--vicuna-7b-v1.3/snapshots/236eeeab96f0dc2e463f2b"));
  EXPECT_FALSE(Differ("../tale-14m", "", "/x/models/tale-14m"));
  EXPECT_FALSE(Differ("meta-llama/Llama-2-7b-chat-hf", "", "Llama-2-7b-chat"));
}

TEST(BaseNamesTest, OtherModelsDiffer) {
  EXPECT_TRUE(Differ("lmsys/vicuna-7b-v1.3", "lmsys/vicuna-7b-v1.5", "/m"));
  EXPECT_TRUE(Differ("lmsys/vicuna-7b-v1.3", "lmsys/vicuna-13b-v1.3", "/m"));
  EXPECT_TRUE(Differ("lmsys/vicuna-7b-v1.3", "", "/home/me/vicuna-7b-v1.5"));
  EXPECT_TRUE(Differ("lmsys/vicuna-7b-v1.5", "", "vicuna-7b-v1.5-16k"));
  EXPECT_TRUE(Differ("meta-llama/Llama-2-7b-hf", "meta-llama/Llama-2-7b-chat-hf", "/m"));
  EXPECT_TRUE(Differ("lmsys/vicuna-7b-v1.3", "", "/models/mistral", "llama"));
  EXPECT_TRUE(Differ("lmsys/vicuna-7b-v1.3", "", "/m", "qwen2"));
  EXPECT_TRUE(Differ("org/alpha", "org/beta", "/m"));
  EXPECT_TRUE(Differ("lmsys/vicuna-7b-v1.3", "", "/c/models--lmsys--vicuna-7b-v1.5/snapshots/236eeeab96f0dc2e463f2b"));
  const auto name =
      DifferentBase("a/vicuna-7b", {.name_or_path = "b/zephyr-7b", .folders = {"/x/m"}, .family = "llama"});
  EXPECT_EQ(name, "b/zephyr-7b");
}

TEST(BaseNamesTest, WhereANameSaysNothingNothingDiffers) {
  EXPECT_FALSE(Differ("lmsys/vicuna-7b-v1.3", "", "/tmp/m"));
  EXPECT_FALSE(Differ("lmsys/vicuna-7b-v1.3", "", "/tmp/base"));
  EXPECT_FALSE(Differ("lmsys/vicuna-7b-v1.3", "", "/x/snapshots/236eeeab96f0dc2e463f2ba3d3d9cb2ffd1b1d3f"));
  EXPECT_FALSE(Differ("lmsys/vicuna-7b-v1.3", "", "/tmp/hydrant_test_Ab3dEf"));
  EXPECT_FALSE(Differ("lmsys/vicuna-7b-v1.3", "./", "/x"));
  EXPECT_FALSE(Differ("lmsys/vicuna-7b-v1.3", "/root/out/checkpoint-1200", "/x"));
  EXPECT_FALSE(Differ("", "lmsys/vicuna-7b-v1.3", "/x"));
  EXPECT_FALSE(Differ("x", "", "/past_eos/base"));
  EXPECT_FALSE(Differ("../../base", "lmsys/vicuna-7b-v1.3", "/x"));
}

}  // namespace
}  // namespace hydrant::draft::base_names_test
