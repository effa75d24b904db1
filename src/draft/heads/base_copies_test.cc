// SPDX-License-Identifier: Apache-2.0
#include "draft/heads/base_copies.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstring>
#include <filesystem>

#include "base/json.h"
#include "checkpoint/safetensors_writer.h"
#include "draft/heads/head_kind.h"
#include "hydrant/error.h"
#include "tests/test_data.h"

namespace hydrant::draft::base_copies_test {
namespace {

namespace fs = std::filesystem;
using hydrant::test::TempDir;
using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;

std::string Golden(const std::string& name) { return test::SourceDir() + "/tests/golden/" + name; }

struct Added {
  std::string name;
  std::vector<float> values;  // stored in `dtype`
  std::vector<int64_t> shape;
  DType dtype = DType::kF32;
};

std::string Bytes(const Added& added) {
  std::string bytes;
  for (const float value : added.values) {
    uint32_t bits = 0;
    std::memcpy(&bits, &value, 4);
    if (added.dtype == DType::kBF16) bits = FloatToBFloat16(value);
    bytes.append(reinterpret_cast<const char*>(&bits), SizeOf(added.dtype));
  }
  return bytes;
}

// The committed heads `name` with more tensors, as safetensors.
class HeadsWith {
 public:
  HeadsWith(const std::string& name, const std::string& stem, const Added& added) {
    fs::copy_file(Golden(name) + "/config.json", folder_.path() + "/config.json");
    const auto source = checkpoint::OpenHeadsFolder(Golden(name));
    std::vector<checkpoint::TensorEntry> entries;
    for (const auto& [key, tensor] : source->tensors()) {
      if (key != added.name) entries.push_back({key, tensor.view.dtype, tensor.view.shape});
    }
    entries.push_back({added.name, added.dtype, added.shape});
    checkpoint::SafetensorsWriter writer(folder_.path() + "/" + stem + ".safetensors", entries, {}, 64);
    for (const auto& [key, tensor] : source->tensors()) {
      if (key != added.name) writer.Write(tensor.view.data, tensor.view.num_bytes());
    }
    const std::string bytes = Bytes(added);
    writer.Write(bytes.data(), bytes.size());
    writer.Finish();
  }
  const std::string& path() const { return folder_.path(); }
  std::vector<std::string> Warnings(const model::ModelWeights& base) const {
    HeadsFile file = OpenHeads(path());
    CheckBaseOf(file, base);
    return file.info.warnings;
  }

 private:
  TempDir folder_;
};

HeadsWith Hydra(const Added& added) { return {"hydra/prefix_mlp_k2_l1", "hydra_lm_head", added}; }
HeadsWith Medusa(const Added& added) { return {"medusa/c_v2_k4_l1", "medusa_lm_head", added}; }

class BaseCopiesTest : public testing::Test {
 protected:
  model::ModelWeights base_ = model::LoadModelWeights(Golden("base_mha"));
  std::vector<float> embedding_ = ToFloats(base_.embedding);
};

TEST_F(BaseCopiesTest, PublishedHeadsAgreeWithTheirBase) {
  for (const char* name : {"hydra/prefix_mlp_k2_l1", "medusa/c_v2_k4_l1"}) {
    HeadsFile file = OpenHeads(Golden(name));
    CheckBaseOf(file, base_);
    EXPECT_THAT(file.info.warnings, IsEmpty()) << name;
  }
}

TEST_F(BaseCopiesTest, AnEmbeddingThatIsNotTheBasesIsNamed) {
  EXPECT_THAT(Hydra({"input_embed_fn.weight", embedding_, base_.embedding.shape}).Warnings(base_), IsEmpty());
  EXPECT_THAT(Hydra({"input_embed_fn.weight", embedding_, base_.embedding.shape, DType::kBF16}).Warnings(base_),
              IsEmpty());  // heads trained in bf16
  std::vector<float> other = embedding_;
  other.back() += 1;
  EXPECT_THAT(Hydra({"input_embed_fn.weight", other, base_.embedding.shape}).Warnings(base_),
              ElementsAre(HasSubstr("'input_embed_fn.weight' differs from that of " + base_.file)));
  EXPECT_THAT(Hydra({"input_embed_fn.weight", {1, 2}, {1, 2}}).Warnings(base_), ElementsAre(HasSubstr("differs")));
  EXPECT_THAT(Medusa({"embed_tokens.weight", other, base_.embedding.shape}).Warnings(base_),
              ElementsAre(HasSubstr("'embed_tokens.weight' differs")));
}

TEST_F(BaseCopiesTest, TensorsOfAnotherBaseBesideHeadsAreNamed) {
  const int64_t hidden = base_.config.hidden_size;
  std::vector<float> norm = base_.final_norm;
  EXPECT_THAT(Medusa({"model.norm.weight", norm, {hidden}}).Warnings(base_), IsEmpty());
  norm[0] += 0.5F;
  EXPECT_THAT(Medusa({"model.norm.weight", norm, {hidden}}).Warnings(base_),
              ElementsAre(HasSubstr("'model.norm.weight'")));
  std::vector<float> lm_head = ToFloats(base_.lm_head.weight);
  EXPECT_THAT(Medusa({"lm_head.weight", lm_head, base_.lm_head.weight.shape}).Warnings(base_), IsEmpty());
  lm_head[7] += 1;
  EXPECT_THAT(Medusa({"lm_head.weight", lm_head, base_.lm_head.weight.shape}).Warnings(base_),
              ElementsAre(HasSubstr("'lm_head.weight' differs")));
  std::vector<float> up = ToFloats(base_.layers[1].up.weight);
  up.back() += 1;
  EXPECT_THAT(Medusa({"model.layers.1.mlp.up_proj.weight", up, base_.layers[1].up.weight.shape}).Warnings(base_),
              ElementsAre(HasSubstr("'model.layers.1.mlp.up_proj.weight' differs")));
}

TEST_F(BaseCopiesTest, APrefixLayersTableOfAnotherRopeBaseIsNamed) {
  const std::string name = "prefix_embeding_layer.layers.0.self_attn.rotary_emb.inv_freq";
  const int64_t half = base_.config.head_dim / 2;
  const auto table = [&](double theta) { return model::InverseFrequencies({.theta = theta}, base_.config.head_dim); };
  EXPECT_THAT(Hydra({name, table(10000), {half}}).Warnings(base_), IsEmpty());
  EXPECT_THAT(Hydra({name, table(500000), {half}}).Warnings(base_),
              ElementsAre(HasSubstr("'" + name + "' differs from the frequencies of rope base 10000")));
}

TEST_F(BaseCopiesTest, WhatNeitherHeadsNorABaseHaveIsRefused) {
  const HeadsWith medusa = Medusa({"4.0.norm.weight", {1}, {1}}), hydra = Hydra({"hydra_more.weight", {1}, {1}});
  EXPECT_THROW(LoadHeads(OpenHeads(medusa.path()), base_), FileError);
  EXPECT_THROW(LoadHeads(OpenHeads(hydra.path()), base_), FileError);
  EXPECT_NO_THROW(LoadHeads(OpenHeads(Golden("medusa/c_v2_k4_l1")), base_));
}

TEST_F(BaseCopiesTest, AnotherBaseByNameIsNamed) {
  const HeadsWith heads = Medusa({"model.norm.weight", base_.final_norm, {base_.config.hidden_size}});
  base::Json config = base::ReadJsonFile(heads.path() + "/config.json");
  config["base_model_name_or_path"] = "lmsys/vicuna-7b-v1.3";
  std::ofstream(heads.path() + "/config.json") << config.dump();
  EXPECT_THAT(heads.Warnings(base_), IsEmpty());  // base_mha says nothing
  base_.config.name_or_path = "lmsys/vicuna-7b-v1.5";
  EXPECT_THAT(heads.Warnings(base_),
              ElementsAre(testing::AllOf(HasSubstr("\"lmsys/vicuna-7b-v1.3\""), HasSubstr("is lmsys/vicuna-7b-v1.5"))));
}

}  // namespace
}  // namespace hydrant::draft::base_copies_test
