// SPDX-License-Identifier: Apache-2.0
#include "convert/convert.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstring>
#include <filesystem>
#include <map>

#include "base/json.h"
#include "base/mapped_file.h"
#include "checkpoint/tensor_source.h"
#include "eval/logits.h"
#include "hydrant/error.h"
#include "kernels/kernels.h"
#include "load/loaded_model.h"
#include "model/weights.h"
#include "tests/test_data.h"

namespace hydrant::convert::convert_test {
namespace {

namespace fs = std::filesystem;
using quant::WeightFormat;
using ::testing::HasSubstr;

std::string Golden(const std::string& name) { return test::SourceDir() + "/tests/golden/" + name; }

eval::EvalLogitsResult Numbers(const std::string& model, const std::string& draft, const std::string& weights,
                               const std::string& head_weights, const std::string& cpu_target = "auto") {
  EngineOptions options;
  options.model = model;
  options.draft = draft;
  options.weights = weights;
  options.head_weights = head_weights;
  options.load_tokenizer = false;
  options.threads = 1;
  options.cpu_target = cpu_target;
  const auto loaded = load::LoadModel(options);
  return eval::EvalLogits(*loaded, {1, 17, 300, 45, 6}, {});
}

void ExpectEqual(const eval::EvalLogitsResult& a, const eval::EvalLogitsResult& b) {
  for (const auto& [x, y] : {std::pair(&a.logits, &b.logits), std::pair(&a.head_logits, &b.head_logits)}) {
    ASSERT_EQ(x->rows(), y->rows());
    for (int64_t r = 0; r < x->rows(); ++r) {
      EXPECT_EQ(std::memcmp(x->row(r), y->row(r), static_cast<size_t>(x->cols()) * sizeof(float)), 0) << "row " << r;
    }
  }
}

std::string Refusal(const ConvertOptions& options) {
  try {
    ConvertFolder(options);
    return "";
  } catch (const UserError& e) {
    return std::string(e.what()) + "\n" + e.hint();
  }
}

class ConvertTest : public ::testing::Test {
 protected:
  std::string Out(const std::string& name) { return dir_.path() + "/" + name; }
  std::string ConvertBase(const std::string& in, WeightFormat format, const std::string& name) {
    ConvertFolder({.in = in, .out = Out(name), .weights = format, .threads = 1});
    return Out(name);
  }
  test::TempDir dir_;
};

// The same bits as packing while loading, for every family and kind of heads that the repository holds.
TEST_F(ConvertTest, AConvertedFolderGivesTheBitsOfConversionAtLoad) {
  for (const char* model : {"base_mha", "hf/qwen2_bias", "hf/llama_bin"}) {
    for (const WeightFormat format : {WeightFormat::kW8A8, WeightFormat::kW4A16}) {
      SCOPED_TRACE(std::string(model) + " " + quant::NameOf(format));
      const std::string out = ConvertBase(Golden(model), format, fs::path(model).filename().string() + NameOf(format));
      ExpectEqual(Numbers(out, "", "auto", "auto"), Numbers(Golden(model), "", quant::NameOf(format), "auto"));
    }
  }
}

TEST_F(ConvertTest, ConvertedHeadsGiveTheBitsOfConversionAtLoad) {
  const std::string base = ConvertBase(Golden("base_mha"), WeightFormat::kW4A8, "base");
  for (const char* heads : {"hydra/prefix_mlp_k2_l1", "medusa/c_v2_k4_l1"}) {
    const std::string out = Out(fs::path(heads).filename().string());
    ConvertFolder({.in = Golden(heads), .out = out, .model = base, .head_weights = WeightFormat::kW4A8, .threads = 1});
    ExpectEqual(Numbers(base, out, "auto", "auto"), Numbers(Golden("base_mha"), Golden(heads), "w4a8", "w4a8"));
    ExpectEqual(Numbers(base, Golden(heads), "auto", "auto"), Numbers(base, Golden(heads), "auto", "w8a8"));
  }
}

// Read as it lies by some targets, copied at load by the others; the first blocks of the heads are several matrices.
TEST_F(ConvertTest, EitherLayoutGivesTheSameBitsOnEveryTarget) {
  for (const WeightFormat format : {WeightFormat::kW8A8, WeightFormat::kW4A8}) {
    std::map<kernels::PackedLayout, std::pair<std::string, std::string>> folders;
    for (const auto layout : {kernels::PackedLayout::kLines, kernels::PackedLayout::kInterleaved}) {
      const std::string number = layout == kernels::PackedLayout::kLines ? "5" : "6";
      const std::string base = Out(std::string("base_") + quant::NameOf(format) + number), heads = base + "_heads";
      const ConvertReport report =
          ConvertFolder({.in = Golden("base_mha"), .out = base, .weights = format, .layout = layout, .threads = 1});
      EXPECT_EQ(report.layout, layout);
      ConvertFolder({.in = Golden("hydra/prefix_mlp_k2_l1"),
                     .out = heads,
                     .model = base,
                     .head_weights = format,
                     .layout = layout,
                     .threads = 1});
      EXPECT_EQ(checkpoint::OpenTensorFile(base + "/model.safetensors")->metadata().at("hydrant.layout"), number);
      EXPECT_EQ(base::ReadJsonFile(base + "/hydrant.json").at("layout"), NameOf(layout));
      folders[layout] = {base, heads};
    }
    const auto& [base, heads] = folders[kernels::PackedLayout::kLines];
    for (const kernels::KernelTable* table : kernels::AvailableKernels()) {
      SCOPED_TRACE(std::string(table->name) + " " + quant::NameOf(format));
      const auto& [other_base, other_heads] = folders[kernels::PackedLayout::kInterleaved];
      ExpectEqual(Numbers(other_base, other_heads, "auto", "auto", table->name),
                  Numbers(base, heads, "auto", "auto", table->name));
    }
  }
}

// What a converted folder is for: nothing is copied where the machine is of the kind that made it.
TEST_F(ConvertTest, WithoutALayoutItIsThatOfThisMachineForTheModel) {
  const std::string out = ConvertBase(Golden("base_mha"), WeightFormat::kW4A8, "base");
  model::ModelWeights weights = model::LoadModelWeights(out);
  const kernels::KernelTable& table = kernels::KernelsForModel("auto", weights.config.hidden_size);
  for (const model::Linear* linear : model::LinearsOf(weights.layers[0])) {
    EXPECT_TRUE(table.Reads(linear->packed->matrix.type)) << linear->name;
  }
}

TEST_F(ConvertTest, EveryKindOfHeads) {
  std::vector<std::string> kinds;
  for (const char* heads :
       {"hydra/mlp_k3_l2", "hydra/mlp_ungrounded_k4_l1", "hydra/prefix_mlp_k2_l1", "medusa/a_k3_l2"}) {
    kinds.push_back(Golden(heads));
  }
  if (const std::string shared = test::SharedDir(); !shared.empty()) {
    for (const char* heads :
         {"hydra/hydra_pp_k4_l4", "hydra/eagle_attn_k1", "hydra/cross_attn_k1", "medusa/d_k4_l1_vllm_token_map"}) {
      kinds.push_back(shared + "/golden/" + heads);
    }
  }
  for (const std::string& heads : kinds) {
    SCOPED_TRACE(heads);
    const std::string out = Out(fs::path(heads).filename().string());
    ConvertFolder({.in = heads, .out = out, .model = Golden("base_mha"), .threads = 1});
    ExpectEqual(Numbers(Golden("base_mha"), out, "w8a8", "auto"), Numbers(Golden("base_mha"), heads, "w8a8", "w8a8"));
  }
}

TEST_F(ConvertTest, TiedBlocksAreStoredOnce) {
  const std::string heads = test::SourceDir() + "/models/tale-14m-hydra-pp";
  const ConvertReport report =
      ConvertFolder({.in = heads, .out = Out("heads"), .model = test::SourceDir() + "/models/tale-14m", .threads = 1});
  const auto source = checkpoint::OpenTensorFile(Out("heads") + "/hydra_lm_head.safetensors");
  EXPECT_EQ(source->Find("hydra_mlp.0.3.linear.weight")->storage_id,
            source->Find("hydra_mlp.0.7.linear.weight")->storage_id);
  EXPECT_LT(report.bytes_after, report.bytes_before * 55 / 100);
  EXPECT_TRUE(fs::exists(Out("heads") + "/trees.json"));
}

TEST_F(ConvertTest, TheFileSaysWhereItIsFromAndPanelsAreAligned) {
  const std::string out = ConvertBase(test::SourceDir() + "/models/tale-14m", WeightFormat::kW4A8, "tale");
  const auto source = checkpoint::OpenTensorFile(out + "/model.safetensors");
  EXPECT_EQ(source->metadata().at("hydrant.source"), "tale-14m");
  EXPECT_THAT(source->metadata().at("hydrant.source_hash"), HasSubstr("xxh64:"));
  int packed = 0;
  for (const auto& [name, tensor] : source->tensors()) {
    if (!tensor.packed) continue;
    ++packed;
    EXPECT_EQ(reinterpret_cast<uintptr_t>(tensor.view.data) % 64, 0U) << name;
    EXPECT_EQ(tensor.packed->format, name == "lm_head.weight" ? "w8a8" : "w4a8") << name;
  }
  EXPECT_EQ(packed, 16 * 7 + 1);
  EXPECT_EQ(source->Find("model.embed_tokens.weight")->view.dtype, DType::kBF16);
  for (const char* file : {"config.json", "tokenizer.model", "tokenizer_config.json", "generation_config.json"}) {
    EXPECT_TRUE(fs::exists(out + "/" + file)) << file;
  }
  EXPECT_EQ(base::ReadJsonFile(out + "/hydrant.json").at("weights"), "w4a8");
}

// A base and its heads in one folder, in a file each: the hash is of both.
TEST_F(ConvertTest, TheHashIsOfTheHeadsFileToo) {
  const std::string both = Out("both");
  fs::copy(Golden("base_mha"), both);
  const std::string heads = Golden("medusa/c_v2_k4_l1"), name = "/medusa_lm_head.safetensors";
  base::Json config = base::ReadJsonFile(heads + "/config.json");
  config.update(base::ReadJsonFile(both + "/config.json"));
  dir_.Write("both/config.json", config.dump());
  std::string content = base::ReadTextFile(heads + name);
  std::vector<std::string> hashes;
  for (const char* out : {"first", "second"}) {
    dir_.Write("both" + name, content);
    hashes.push_back(
        ConvertFolder({.in = both, .out = Out(out), .weights = WeightFormat::kW8A8, .threads = 1}).source_hash);
    content.back() = static_cast<char>(content.back() ^ 1);
  }
  EXPECT_NE(hashes[0], hashes[1]);
}

TEST_F(ConvertTest, ActivationsOfAPackedFolderMayBeChosenButNotItsBits) {
  const std::string out = ConvertBase(Golden("base_mha"), WeightFormat::kW4A8, "base");
  ExpectEqual(Numbers(out, "", "w4a16", "auto"), Numbers(Golden("base_mha"), "", "w4a16", "auto"));
  for (const char* format : {"bf16", "w8a8"}) {
    EXPECT_THROW(Numbers(out, "", format, "auto"), UserError) << format;
  }
  EXPECT_THAT(Refusal({.in = out, .out = Out("again"), .weights = WeightFormat::kW8A8}), HasSubstr("packed already"));
}

TEST_F(ConvertTest, AWorkThatEndsEarlyLeavesNothing) {
  struct Stop {};
  const ConvertOptions options{.in = Golden("base_mha"),
                               .out = Out("base"),
                               .weights = WeightFormat::kW8A8,
                               .threads = 1,
                               .progress = [](double share) {
                                 if (share > 0.5) throw Stop();
                               }};
  EXPECT_THROW(ConvertFolder(options), Stop);
  EXPECT_TRUE(fs::is_empty(dir_.path()));
}

TEST_F(ConvertTest, WhatDoesNotFitTheFolderIsRefused) {
  const std::string base = Golden("base_mha"), heads = Golden("medusa/c_v2_k4_l1");
  EXPECT_THAT(Refusal({.in = base, .out = Out("x")}), HasSubstr("ConvertOptions::weights is missing"));
  EXPECT_THAT(Refusal({.in = heads, .out = Out("x"), .weights = WeightFormat::kW8A8}),
              HasSubstr("use ConvertOptions::head_weights"));
  EXPECT_THAT(Refusal({.in = heads, .out = Out("x")}), HasSubstr("ConvertOptions::model"));
  EXPECT_THAT(Refusal({.in = base, .out = Out("x"), .weights = WeightFormat::kBF16}), HasSubstr("the format is bf16"));
  EXPECT_THAT(Refusal({.in = base, .out = Out("x"), .model = base, .weights = WeightFormat::kW8A8}),
              HasSubstr("ConvertOptions::model is for heads"));
  EXPECT_THAT(
      Refusal({.in = base, .out = Out("x"), .weights = WeightFormat::kW8A8, .head_weights = WeightFormat::kW8A8}),
      HasSubstr("ConvertOptions::head_weights needs heads"));
  EXPECT_THAT(Refusal({.in = dir_.path(), .out = Out("x")}), HasSubstr("is an empty folder"));
  EXPECT_TRUE(fs::is_empty(dir_.path()));
}

}  // namespace
}  // namespace hydrant::convert::convert_test
