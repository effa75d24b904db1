// SPDX-License-Identifier: Apache-2.0
// Heads in the spelling of one project, written in that of another and back.
#include "convert/respell.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cstring>
#include <filesystem>
#include <map>

#include "base/json.h"
#include "checkpoint/rank_files.h"
#include "checkpoint/safetensors_writer.h"
#include "checkpoint/tensor_source.h"
#include "convert/convert.h"
#include "draft/heads/head_kind.h"
#include "eval/logits.h"
#include "hydrant/error.h"
#include "load/loaded_model.h"
#include "tests/test_data.h"

namespace hydrant::convert::respell_test {
namespace {

namespace fs = std::filesystem;
using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

std::string Golden(const std::string& name) { return test::SourceDir() + "/tests/golden/" + name; }
std::string Shared(const std::string& name) { return test::SharedDir() + "/golden/" + name; }
bool IsHydra(const std::string& heads) { return heads.find("/hydra/") != std::string::npos; }

// Every tensor of heads that is used, by its name.
std::map<std::string, TensorView> TensorsOf(const std::string& folder) {
  std::map<std::string, TensorView> views;
  const draft::HeadsFile heads = draft::OpenHeads(folder);
  for (const auto& [name, tensor] : heads.tensors->tensors()) views[name] = tensor.view;
  return views;
}

// The same names as in `folder`, where it has them, with the same types, shapes and bits.
void ExpectSameTensors(const std::string& found_in, const std::string& folder,
                       const std::vector<std::string>& left_out) {
  const std::map<std::string, TensorView> expected = TensorsOf(folder), found = TensorsOf(found_in);
  EXPECT_EQ(found.size() + left_out.size(), expected.size());
  for (const auto& [name, view] : found) {
    const auto at = expected.find(name);
    ASSERT_NE(at, expected.end()) << name;
    EXPECT_EQ(view.dtype, at->second.dtype) << name;
    ASSERT_EQ(view.shape, at->second.shape) << name;
    EXPECT_EQ(std::memcmp(view.data, at->second.data, view.num_bytes()), 0) << name;
  }
}

Matrix HeadLogits(const std::string& heads, const std::string& model = Golden("base_mha")) {
  EngineOptions options;
  options.model = model;
  options.draft = heads;
  options.load_tokenizer = false;
  options.threads = 1;
  return eval::EvalLogits(*load::LoadModel(options), {1, 17, 300, 45, 6}, {5, 7}).head_logits;
}

void ExpectEqual(const Matrix& a, const Matrix& b) {
  ASSERT_EQ(a.rows(), b.rows());
  for (int64_t r = 0; r < a.rows(); ++r) EXPECT_TRUE(std::ranges::equal(a.row_span(r), b.row_span(r))) << "row " << r;
}

class RespellTest : public ::testing::Test {
 protected:
  std::string Out(const std::string& name) const { return dir_.path() + "/" + name; }
  // A folder of its own name each time.
  RespellReport Respell(const std::string& in, const std::string& layout, std::string* out, int64_t tp = 1,
                        const std::string& model = {}) {
    *out = Out("out" + std::to_string(number_++));
    return RespellHeads({.in = in, .out = *out, .layout = layout, .model = model, .tp = tp});
  }
  std::string Refusal(const RespellOptions& options) const {
    try {
      RespellHeads(options);
      return "";
    } catch (const UserError& e) {
      return std::string(e.what()) + "\n" + e.hint();
    }
  }
  // Medusa heads of hidden size 4 and 7 tokens, 2 heads of 2 layers that differ, in layout a or with other names.
  std::string Small(const std::string& name, DType dtype, bool has_bias = true) const {
    std::vector<checkpoint::TensorEntry> entries;
    std::string data;
    const auto add = [&](const std::string& tensor, const std::vector<int64_t>& shape) {
      entries.push_back({tensor, dtype, shape});
      TensorView view;
      view.dtype = dtype;
      view.shape = shape;
      for (size_t i = 0; i < view.num_bytes(); ++i) data += static_cast<char>(data.size() % 61);
    };
    for (const std::string head : {"0", "1"}) {
      for (const std::string layer : {"0", "1"}) {
        const std::string block = has_bias ? head + "." + layer + ".linear" : "blocks." + head + ".layers." + layer;
        add(block + ".weight", {4, 4});
        if (has_bias) add(block + ".bias", {4});
      }
      add(has_bias ? head + ".2.weight" : "lm_heads." + head + ".weight", {7, 4});
    }
    fs::create_directory(Out(name));
    dir_.Write(name + "/config.json", R"({"vocab_size": 7, "medusa_num_heads": 2, "medusa_num_layers": 2})");
    checkpoint::SafetensorsWriter writer(Out(name) + "/medusa_lm_head.safetensors", entries, {{"format", "pt"}});
    writer.Write(data.data(), data.size());
    writer.Finish();
    return Out(name);
  }

  test::TempDir dir_;
  int number_ = 0;
};

// The heads of these tests, of one kind or both.
std::vector<std::string> MedusaFolders() {
  std::vector<std::string> folders = {Golden("medusa/a_k3_l2")};
  if (test::SharedDir().empty()) return folders;
  for (const char* name : {"a_k4_l1", "b_k4_l1_full", "b_k3_l2_full_bin", "b_k3_l2_full_deduped", "d_k4_l1_vllm",
                           "d_k4_l1_vllm_prefixed", "e_k4_l1_trtllm", "f_k4_l1_peft"}) {
    folders.push_back(Shared(std::string("medusa/") + name));
  }
  return folders;
}
std::vector<std::string> HydraFolders() {
  std::vector<std::string> folders = {Golden("hydra/mlp_k3_l2"), Golden("hydra/mlp_ungrounded_k4_l1"),
                                      Golden("hydra/prefix_mlp_k2_l1")};
  if (test::SharedDir().empty()) return folders;
  for (const char* name :
       {"hydra_pp_k4_l4", "hydra_pp_safetensors", "mlp_offset1_k4_l1", "eagle_attn_k1", "cross_attn_k1"}) {
    folders.push_back(Shared(std::string("hydra/") + name));
  }
  return folders;
}

struct Step {
  const char* layout;
  int64_t tp = 1;
};

// From layout to layout and back to the authors' spelling: no bit changes, and drafts are the same in each.
TEST_F(RespellTest, EveryLayoutKeepsEveryBit) {
  std::vector<std::string> folders = MedusaFolders();
  for (const std::string& hydra : HydraFolders()) folders.push_back(hydra);
  for (const std::string& heads : folders) {
    const char* own = IsHydra(heads) ? "hydra" : "medusa-a";
    std::vector<Step> steps = {{"safetensors"}, {own}};
    const bool has_ranks = heads.find("_attn_") == std::string::npos;  // no other project runs those
    if (has_ranks) steps.insert(steps.begin(), {{"tensorrt-llm", 1}, {"tensorrt-llm", 2}, {"tensorrt-llm", 4}});
    if (!IsHydra(heads)) steps.push_back({"vllm"});
    std::string first;
    Respell(heads, own, &first);
    const Matrix expected = HeadLogits(heads);
    ExpectEqual(HeadLogits(first), expected);
    std::string last = first;
    std::vector<std::string> lost;
    for (const Step& step : steps) {
      SCOPED_TRACE(heads + " in " + step.layout + " " + std::to_string(step.tp));
      std::string there, back;
      const RespellReport report = Respell(last, step.layout, &there, step.tp);
      lost.insert(lost.end(), report.left_out.begin(), report.left_out.end());
      ExpectEqual(HeadLogits(there), expected);
      EXPECT_THAT(Respell(there, own, &back).warnings, IsEmpty());
      ExpectSameTensors(back, first, lost);
      last = there;
    }
  }
}

TEST_F(RespellTest, TypesAreKept) {
  for (const DType dtype : {DType::kF32, DType::kF16, DType::kBF16}) {
    const std::string heads = Small(std::string("small_") + NameOf(dtype), dtype);
    for (const Step& step : {Step{"vllm"}, Step{"tensorrt-llm", 2}, Step{"tensorrt-llm", 4}, Step{"medusa-a"}}) {
      SCOPED_TRACE(std::string(step.layout) + " " + NameOf(dtype));
      std::string there, back;
      Respell(heads, step.layout, &there, step.tp);
      Respell(there, "safetensors", &back);
      ExpectSameTensors(back, heads, {});
    }
  }
}

// 7 tokens: 8 rows in 2 ranks and in 4.
TEST_F(RespellTest, AVocabularyIsPaddedInRanksAndCutWhenTheyAreJoined) {
  const std::string heads = Small("small", DType::kF32);
  std::string ranks, others, back;
  const RespellReport report = Respell(heads, "tensorrt-llm", &ranks, 4);
  EXPECT_THAT(report.weights_files,
              ElementsAre("rank0.safetensors", "rank1.safetensors", "rank2.safetensors", "rank3.safetensors"));
  const auto last = checkpoint::OpenTensorFile(ranks + "/rank3.safetensors");
  const TensorView rows = last->Find("medusa_heads.1.lm_head.weight")->view;
  EXPECT_THAT(rows.shape, ElementsAre(2, 4));
  EXPECT_THAT(std::vector<uint8_t>(rows.data + 16, rows.data + 32), ::testing::Each(0));
  EXPECT_THAT(last->Find("medusa_heads.1.medusa_layers.1.linear.weight")->shape(), ElementsAre(1, 4));
  EXPECT_THAT(last->Find("medusa_heads.1.medusa_layers.1.linear.bias")->shape(), ElementsAre(1));
  Respell(ranks, "tensorrt-llm", &others, 2);
  Respell(others, "safetensors", &back);
  ExpectSameTensors(back, heads, {});
}

// Where another tool's folder of the same heads is at hand, ours holds what that one does.
TEST_F(RespellTest, FoldersAreThoseOfTheProjects) {
  HYDRANT_NEED_SHARED();
  const std::vector<std::pair<const char*, const char*>> folders = {
      {"medusa-a", "a_k4_l1"}, {"vllm", "d_k4_l1_vllm"}, {"tensorrt-llm", "e_k4_l1_trtllm"}};
  for (const auto& [from_layout, from] : folders) {
    for (const auto& [layout, folder] : folders) {
      SCOPED_TRACE(std::string(from) + " as " + layout);
      std::string out;
      Respell(Shared(std::string("medusa/") + from), layout, &out, 1, Shared("base_mha"));
      ExpectSameTensors(out, Shared(std::string("medusa/") + folder), {});
      const base::Json ours = base::ReadJsonFile(out + "/config.json");
      const base::Json theirs = base::ReadJsonFile(Shared(std::string("medusa/") + folder) + "/config.json");
      for (const auto& [key, value] : theirs.items()) {
        if (key == "transformers_version") continue;
        EXPECT_EQ(ours.value(key, base::Json()), value) << key;
      }
    }
  }
}

TEST_F(RespellTest, AWholeModelHoldsTheBaseAndTheHeads) {
  std::string whole, back;
  Respell(Golden("medusa/a_k3_l2"), "medusa-b", &whole, 1, Golden("base_mha"));
  const base::Json config = base::ReadJsonFile(whole + "/config.json");
  EXPECT_EQ(config["medusa_num_heads"], 3);
  EXPECT_EQ(config["architectures"], base::Json({"MedusaModelLlama"}));
  EXPECT_EQ(config["num_hidden_layers"], 4);
  ExpectEqual(HeadLogits(whole, whole), HeadLogits(Golden("medusa/a_k3_l2")));
  Respell(whole, "medusa-a", &back);
  ExpectSameTensors(back, Golden("medusa/a_k3_l2"), {});
}

// One storage for tied blocks where the reader knows it, every name where it does not.
TEST_F(RespellTest, TiedBlocksAreStoredAsTheReaderExpects) {
  const auto copies = [](const std::string& file, const std::string& a, const std::string& b) {
    const auto source = checkpoint::OpenTensorFile(file);
    return source->Find(a)->storage_id != source->Find(b)->storage_id;
  };
  std::string vllm, ranks, own, torch;
  Respell(Golden("medusa/a_k3_l2"), "vllm", &vllm);
  EXPECT_TRUE(copies(vllm + "/model.safetensors", "blocks.1.layers.0.weight", "blocks.1.layers.1.weight"));
  Respell(vllm, "tensorrt-llm", &ranks, 2);
  Respell(ranks, "safetensors", &own);
  EXPECT_FALSE(copies(own + "/medusa_lm_head.safetensors", "1.0.linear.weight", "1.1.linear.weight"));
  EXPECT_EQ(checkpoint::OpenTensorFile(own + "/medusa_lm_head.safetensors")->metadata().at("1.1.linear.bias"),
            "1.0.linear.bias");
  Respell(ranks, "medusa-a", &torch);
  EXPECT_FALSE(copies(torch + "/medusa_lm_head.pt", "1.0.linear.weight", "1.1.linear.weight"));
}

// Tied blocks of which transformers has dropped the names.
TEST_F(RespellTest, NamesThatAFileLeavesOutAreWritten) {
  HYDRANT_NEED_SHARED();
  std::string out;
  Respell(Shared("medusa/b_k3_l2_full_deduped"), "vllm", &out);
  EXPECT_TRUE(TensorsOf(out).contains("blocks.2.layers.1.bias"));
  std::string back;
  Respell(out, "medusa-a", &back);
  ExpectSameTensors(back, Golden("medusa/a_k3_l2"), {});
}

TEST_F(RespellTest, HeadsWithoutLmHeadsTakeTheBasesWhereTheLayoutNeedsOne) {
  const std::string heads = Golden("medusa/c_v2_k4_l1");
  std::string own, vllm, ranks;
  Respell(heads, "medusa-a", &own);
  EXPECT_EQ(base::ReadJsonFile(own + "/config.json")["version"], "2");
  ExpectSameTensors(own, heads, {});
  EXPECT_THAT(Refusal({.in = heads, .out = Out("x"), .layout = "vllm"}),
              AllOf(HasSubstr("holds no lm heads (logits go through the base's), expected some for layout vllm"),
                    HasSubstr("RespellOptions::model")));
  Respell(heads, "vllm", &vllm, 1, Golden("base_mha"));
  EXPECT_EQ(base::ReadJsonFile(vllm + "/config.json")["original_lm_head"], true);
  EXPECT_TRUE(TensorsOf(vllm).contains("lm_head.weight"));
  Respell(vllm, "tensorrt-llm", &ranks, 2);
  EXPECT_TRUE(TensorsOf(ranks).contains("medusa_heads.3.lm_head.weight"));
  const Matrix expected = HeadLogits(heads);
  for (const std::string& folder : {own, vllm, ranks}) ExpectEqual(HeadLogits(folder), expected);
}

TEST_F(RespellTest, BlocksWithoutBiasesGetZerosWhereTheLayoutCallsForSome) {
  const std::string heads = Small("no_bias", DType::kF16, false);
  std::string out, vllm;
  const RespellReport report = Respell(heads, "medusa-a", &out);
  EXPECT_THAT(report.warnings, ElementsAre(HasSubstr("the blocks have no biases, and layout medusa-a calls for some")));
  const TensorView bias = TensorsOf(out).at("1.1.linear.bias");
  EXPECT_EQ(bias.dtype, DType::kF16);
  EXPECT_THAT(std::vector<uint8_t>(bias.data, bias.data + bias.num_bytes()), ::testing::Each(0));
  EXPECT_THAT(Respell(heads, "vllm", &vllm).warnings, IsEmpty());
  EXPECT_EQ(base::ReadJsonFile(vllm + "/config.json")["medusa_fc_bias"], false);
  EXPECT_FALSE(TensorsOf(vllm).contains("blocks.0.layers.0.bias"));
}

TEST_F(RespellTest, ATokenMapStaysWhereTheLayoutHasAPlaceForIt) {
  HYDRANT_NEED_SHARED();
  const std::string heads = Shared("medusa/d_k4_l1_vllm_token_map");
  std::string out;
  Respell(heads, "vllm", &out);
  ExpectSameTensors(out, heads, {});
  ExpectEqual(HeadLogits(out), HeadLogits(heads));
  for (const char* layout : {"medusa-a", "tensorrt-llm", "safetensors"}) {
    EXPECT_THAT(Refusal({.in = heads, .out = Out("x"), .layout = layout}),
                AllOf(HasSubstr("model.safetensors: holds 'token_map'"),
                      HasSubstr(std::string("layout ") + layout + " has no place"), HasSubstr("layout vllm has one")));
  }
}

// What the heads' files hold and nobody reads: kept in the authors' spelling, named where it is left out.
TEST_F(RespellTest, WhatNothingReadsIsKeptOrNamed) {
  const std::string heads = Golden("hydra/prefix_mlp_k2_l1");
  std::string own, ranks;
  EXPECT_THAT(Respell(heads, "safetensors", &own).left_out, IsEmpty());
  ExpectSameTensors(own, heads, {});
  EXPECT_THAT(Respell(heads, "tensorrt-llm", &ranks, 2).left_out,
              ElementsAre("input_embed_fn.weight", "prefix_embeding_layer.embed_tokens.weight",
                          "prefix_embeding_layer.layers.0.self_attn.rotary_emb.inv_freq"));
}

// What no tensor says and the heads need.
TEST_F(RespellTest, SettingsOfHydraHeadsGoWithThem) {
  const std::string in = Out("heads");
  fs::copy(Golden("hydra/prefix_mlp_k2_l1"), in);
  base::Json config = base::ReadJsonFile(in + "/config.json");
  config["hydra_ext"] = {{"rope_theta", 500000.0}, {"num_key_value_heads", 4}};
  config["hidden_state_offset"] = 1;
  fs::remove(in + "/config.json");
  dir_.Write("heads/config.json", config.dump());
  dir_.Write("heads/trees.json", R"({"trees": []})");
  std::string ranks, back;
  Respell(in, "tensorrt-llm", &ranks, 2);
  const base::Json there = base::ReadJsonFile(ranks + "/config.json");
  EXPECT_EQ(there["architecture"], "HydraForCausalLM");
  EXPECT_EQ(there["num_hydra_heads"], 2);
  EXPECT_EQ(there["mapping"]["tp_size"], 2);
  Respell(ranks, "hydra", &back);
  base::Json again = base::ReadJsonFile(back + "/config.json");
  config.erase("transformers_version");
  EXPECT_EQ(again, config);
  EXPECT_TRUE(fs::exists(back + "/trees.json"));
}

TEST_F(RespellTest, PackedHeadsAreRefused) {
  const std::string packed = Out("packed");
  ConvertFolder({.in = Golden("hydra/prefix_mlp_k2_l1"), .out = packed, .model = Golden("base_mha"), .threads = 1});
  EXPECT_THAT(Refusal({.in = packed, .out = Out("x"), .layout = "hydra"}),
              AllOf(HasSubstr("is packed in w8a8, expected floats for layout hydra"),
                    HasSubstr("name the folder that it was converted from")));
}

TEST_F(RespellTest, WhatALayoutCannotHoldIsRefused) {
  const std::string medusa = Golden("medusa/a_k3_l2"), hydra = Golden("hydra/mlp_k3_l2"), x = Out("x");
  for (const char* layout : {"medusa-a", "vllm"}) {
    EXPECT_THAT(
        Refusal({.in = hydra, .out = x, .layout = layout}),
        AllOf(HasSubstr("hydra_lm_head.pt: holds hydra heads, which layout " + std::string(layout) + " cannot hold"),
              HasSubstr("layouts of such heads: tensorrt-llm, hydra, safetensors")));
  }
  EXPECT_THAT(Refusal({.in = medusa, .out = x, .layout = "hydra"}),
              AllOf(HasSubstr("holds medusa heads"), HasSubstr("medusa-a, medusa-b, vllm, tensorrt-llm, safetensors")));
  EXPECT_THAT(
      Refusal({.in = medusa, .out = x, .layout = "tensorrt-llm", .tp = 3}),
      AllOf(HasSubstr("tensor 'medusa_heads.0.medusa_layers.0.linear.weight' is [64, 64], expected rows that 3 ranks"),
            HasSubstr("RespellOptions::tp")));
  EXPECT_THAT(Refusal({.in = medusa, .out = x, .layout = "vllm", .tp = 2}),
              HasSubstr("RespellOptions::tp is for layout"));
  EXPECT_THAT(Refusal({.in = medusa, .out = x, .layout = "tensorrt-llm", .tp = 65}), HasSubstr("expected 1 to 64"));
  EXPECT_THAT(Refusal({.in = medusa, .out = x, .layout = "medusa-b"}), HasSubstr("RespellOptions::model"));
  EXPECT_THAT(Refusal({.in = medusa, .out = x, .layout = "medusa"}), HasSubstr("RespellOptions::layout is 'medusa'"));
  EXPECT_THAT(Refusal({.in = Golden("base_mha"), .out = x, .layout = "vllm"}), HasSubstr("base model"));
  EXPECT_THAT(Refusal({.in = Small("small", DType::kF32), .out = x, .layout = "vllm", .model = Golden("base_mha")}),
              HasSubstr("expected [64, 64]"));
  EXPECT_FALSE(fs::exists(x));
}

}  // namespace
}  // namespace hydrant::convert::respell_test
