// SPDX-License-Identifier: Apache-2.0
#include "checkpoint/head_names.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "checkpoint/safetensors.h"
#include "checkpoint/test_archives.h"
#include "hydrant/error.h"
#include "tests/test_data.h"

namespace hydrant::checkpoint::head_names_test {
namespace {

using hydrant::test::SharedDir;
using ::testing::HasSubstr;

TEST(HeadNamesTest, KnowsTheNamesOfReleasedHeads) {
  for (const char* name :
       {"medusa_head.0.0.linear.weight", "medusa_heads.3.lm_head.weight", "hydra_mlp.0.1.linear.bias",
        "hydra_lm_head.3.weight", "prefix_embeding_layer.norm.weight", "input_embed_fn.weight",
        "hydra_heads.0.hydra_mlp.linear.weight", "prefix_embedding_layer.norm.weight"}) {
    EXPECT_TRUE(IsHeadTensor(name)) << name;
  }
  for (const char* name : {"model.norm.weight", "lm_head.weight", "model.hydra_mlp.weight", "medusa_header", ""}) {
    EXPECT_FALSE(IsHeadTensor(name)) << name;
  }
}

TEST(HeadNamesTest, KnowsLora) {
  EXPECT_TRUE(IsLoraTensor("base_model.model.model.layers.0.self_attn.q_proj.lora_A.weight"));
  EXPECT_TRUE(IsLoraTensor("model.layers.0.self_attn.q_proj.lora_B.default.weight"));
  EXPECT_FALSE(IsLoraTensor("model.layers.0.self_attn.q_proj.weight"));
}

// One "q.lora_A.weight" and one "q.lora_B.weight" of two bf16 values each.
std::string Adapter(const std::string& b_values) {
  return test_archives::Safetensors(R"({"q.lora_A.weight":{"dtype":"BF16","shape":[2],"data_offsets":[0,4]},)"
                                    R"("q.lora_B.weight":{"dtype":"BF16","shape":[2],"data_offsets":[4,8]}})",
                                    "\x01\x02\x03\x04" + b_values);
}

TEST(HeadNamesTest, AllowsOnlyZeroLoraB) {
  const std::string zero = Adapter(test_archives::Le(0, 4));
  EXPECT_NO_THROW(RefuseNonZeroLora(*ReadSafetensors(test_archives::InMemory("a.safetensors", zero))));
  const std::string minus_zero = Adapter(test_archives::Le(0x80008000, 4));
  EXPECT_NO_THROW(RefuseNonZeroLora(*ReadSafetensors(test_archives::InMemory("a.safetensors", minus_zero))));
  const std::string smallest = Adapter(test_archives::Le(0x00010000, 4));
  try {
    RefuseNonZeroLora(*ReadSafetensors(test_archives::InMemory("a.safetensors", smallest)));
    FAIL();
  } catch (const FileError& e) {
    EXPECT_THAT(e.what(), HasSubstr("a.safetensors: LoRA tensor 'q.lora_B.weight' is not zero"));
  }
}

TEST(HeadNamesTest, ReferenceAdapterHasZeroB) {
  HYDRANT_NEED_SHARED();
  const auto source = OpenHeadsFolder(SharedDir() + "/golden/medusa/f_k4_l1_peft");
  EXPECT_NO_THROW(RefuseNonZeroLora(*source));
}

}  // namespace
}  // namespace hydrant::checkpoint::head_names_test
