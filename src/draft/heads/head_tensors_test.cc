// SPDX-License-Identifier: Apache-2.0
// What a heads folder is taken for, and what is refused, by name. (Drafting itself: tests/golden_heads_test,
// lossless_test.)
#include "draft/heads/head_tensors.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <array>
#include <filesystem>
#include <functional>
#include <string>
#include <vector>

#include "base/json.h"
#include "base/thread_pool.h"
#include "checkpoint/safetensors_writer.h"
#include "draft/drafter.h"
#include "hydrant/error.h"
#include "kernels/kernels.h"
#include "model/weights.h"
#include "tests/test_data.h"

namespace hydrant::draft::head_tensors_test {
namespace {

using testing::HasSubstr;
using testing::IsEmpty;

std::string Golden(const std::string& name) { return test::SourceDir() + "/tests/golden/" + name; }

// A copy of the committed Hydra++ heads with a changed config.
class HydraCopy {
 public:
  explicit HydraCopy(const std::function<void(base::Json&)>& change) {
    const std::string source = Golden("hydra/prefix_mlp_k2_l1");
    std::filesystem::copy_file(source + "/hydra_lm_head.pt", folder_.path() + "/hydra_lm_head.pt");
    base::Json config = base::ReadJsonFile(source + "/config.json");
    change(config);
    folder_.Write("config.json", config.dump());
  }
  const std::string& path() const { return folder_.path(); }

 private:
  test::TempDir folder_;
};

// Message and hint of the refusal.
std::string Refusal(const std::function<void()>& action) {
  try {
    action();
  } catch (const UserError& e) {
    return std::string(e.what()) + "\n" + e.hint();
  }
  return "accepted";
}

std::string MakeRefusal(const std::string& heads, const std::string& base) {
  return Refusal([&] {
    base::ThreadPool pool(1, false);
    kernels::Queue queue{.pool = &pool, .table = &kernels::PortableKernels()};
    const model::ModelWeights weights = model::LoadModelWeights(base);
    std::vector<std::string> warnings;
    model::LinearPacker packer(&pool, {});
    model::WeightArranger arranger(queue.table, &pool);
    HeadPacking packing{.choice = {}, .packer = &packer, .arranger = &arranger};
    MakeDrafter(heads, weights, &queue, packing, &warnings);
  });
}

// The base's lm head would have more rows than the map, and each of its own token.
TEST(HeadTensorsTest, ATokenMapNeedsAnLmHead) {
  const test::TempDir dir;
  const std::vector<checkpoint::TensorEntry> entries = {{"blocks.0.layers.0.weight", DType::kF32, {64, 64}},
                                                        {"token_map", DType::kI64, {3}}};
  checkpoint::SafetensorsWriter writer(dir.path() + "/model.safetensors", entries, {});
  const std::vector<float> weights(64 * 64);
  writer.Write(weights.data(), weights.size() * sizeof(float));
  const std::array<int64_t, 3> map = {5, 7, 9};
  writer.Write(map.data(), sizeof map);
  writer.Finish();
  EXPECT_THAT(MakeRefusal(dir.path(), Golden("base_mha")),
              HasSubstr("model.safetensors: holds 'token_map', but no lm head: expected one"));
}

TEST(HeadTensorsTest, CountsComeFromTheKeysAndADifferingConfigIsAWarning) {
  const HydraCopy copy([](base::Json& config) {
    config["hydra_num_heads"] = 7;
    config["hydra_num_layers"] = 3;
  });
  const HeadsInfo info = OpenHeads(copy.path()).info;
  EXPECT_EQ(info.num_heads, 2);
  EXPECT_EQ(info.num_layers, 1);
  ASSERT_EQ(info.warnings.size(), 2U);
  EXPECT_THAT(info.warnings[0] + info.warnings[1], HasSubstr("'hydra_num_heads' is 7"));
  EXPECT_THAT(OpenHeads(Golden("hydra/prefix_mlp_k2_l1")).info.warnings, IsEmpty());
}

TEST(HeadTensorsTest, ArchitecturesThatAreNotRunAreRefusedByName) {
  for (const std::string arch : {"prefix-slots", "mlpp"}) {
    const HydraCopy copy([&](base::Json& config) { config["hydra_head_arch"] = arch; });
    EXPECT_THAT(Refusal([&] { OpenHeads(copy.path()); }), HasSubstr("'hydra_head_arch' is \"" + arch + "\""));
  }
}

TEST(HeadTensorsTest, UngroundedPrefixHeadsAreRefused) {
  const HydraCopy copy([](base::Json& config) { config["grounded_heads"] = false; });
  EXPECT_THAT(Refusal([&] { OpenHeads(copy.path()); }), HasSubstr("'grounded_heads' is false"));
}

TEST(HeadTensorsTest, ExtensionsThatChangeTheMathematicsAreRefusedByName) {
  const HydraCopy good([](base::Json& config) { config["hydra_ext"] = {{"version", 1}, {"rope_theta", 500000.0}}; });
  EXPECT_EQ(OpenHeads(good.path()).info.rope_theta, 500000.0);
  const HydraCopy bad([](base::Json& config) { config["hydra_ext"] = {{"root_aware", true}}; });
  EXPECT_THAT(Refusal([&] { OpenHeads(bad.path()); }), HasSubstr("'hydra_ext.root_aware' is true"));
}

TEST(HeadTensorsTest, HeadsOfAnotherBaseNameBothFiles) {
  const std::string refusal = MakeRefusal(Golden("hydra/prefix_mlp_k2_l1"), Golden("hf/llama_tied"));
  EXPECT_THAT(refusal, HasSubstr("hydra_lm_head.pt: tensor '"));
  EXPECT_THAT(refusal, HasSubstr("llama_tied/config.json"));
}

TEST(HeadTensorsTest, AnOffsetBeyondTheBaseIsRefused) {
  const HydraCopy copy([](base::Json& config) { config["hidden_state_offset"] = 5; });
  EXPECT_THAT(MakeRefusal(copy.path(), Golden("base_mha")), HasSubstr("'hidden_state_offset' is 5"));
}

TEST(HeadTensorsTest, WithoutAConfigHydraHeadsAreRefusedAndMedusaHeadsAreNot) {
  const test::TempDir hydra, medusa;
  std::filesystem::copy_file(Golden("hydra/prefix_mlp_k2_l1/hydra_lm_head.pt"), hydra.path() + "/hydra_lm_head.pt");
  EXPECT_THAT(Refusal([&] { OpenHeads(hydra.path()); }), HasSubstr("no config.json with 'hydra_head_arch'"));
  std::filesystem::copy_file(Golden("medusa/c_v2_k4_l1/medusa_lm_head.safetensors"),
                             medusa.path() + "/medusa_lm_head.safetensors");
  const HeadsInfo info = OpenHeads(medusa.path()).info;
  EXPECT_EQ(info.layout, "c");
  EXPECT_EQ(info.num_heads, 4);
  EXPECT_FALSE(info.own_lm_heads);
}

TEST(HeadTensorsTest, ABaseModelHasNoHeads) {
  EXPECT_THAT(Refusal([] { OpenHeads(Golden("base_mha")); }),
              HasSubstr("holds no Medusa, Hydra, EAGLE or ReDrafter heads"));
  EXPECT_FALSE(HoldsHeads(Golden("base_mha")));
  EXPECT_TRUE(HoldsHeads(Golden("medusa/c_v2_k4_l1")));
}

}  // namespace
}  // namespace hydrant::draft::head_tensors_test
