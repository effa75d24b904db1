// SPDX-License-Identifier: Apache-2.0
// `convert --layout safetensors` for heads that no tool spells anew: the same names and bits beside the same config.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstring>
#include <filesystem>
#include <fstream>
#include <functional>
#include <iterator>
#include <map>
#include <string>
#include <vector>

#include "checkpoint/torch_zip_writer.h"
#include "convert/convert.h"
#include "convert/respell.h"
#include "draft/heads/head_kind.h"
#include "tests/head_folders.h"
#include "tests/lossless_util.h"

namespace hydrant::convert::respell_kept_names_test {
namespace {

namespace fs = std::filesystem;
using test::Golden;
using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

// EAGLE heads as the speculators library nests their config, with the tensors that exports keep and nobody reads.
test::EagleFolder Third(bool nested) {
  test::EagleFolder folder(true);
  folder.shapes["t2d"] = {test::EagleFolder::kVocab};
  folder.shapes["embed_tokens.weight"] = {test::EagleFolder::kVocab, test::EagleFolder::kHidden};
  if (nested)
    folder.config = {{"transformer_layer_config", folder.config}, {"eagle_aux_hidden_state_layer_ids", {1, 2, 3}}};
  return folder;
}

test::MlpSpeculatorFolder Tied() {
  test::MlpSpeculatorFolder folder(/*is_tied=*/true);
  folder.config.erase("emb_dim");
  folder.config.erase("vocab_size");
  return folder;
}

using WriteHeads = std::function<std::string(const test::TempDir&)>;

std::map<std::string, WriteHeads> EveryHeads() {
  const auto write = [](const auto& folder) { return [=](const test::TempDir& dir) { return folder.Write(dir); }; };
  return {{"eagle", write(test::EagleFolder(false))},
          {"eagle of speculators", write(test::EagleOfSpeculators())},
          {"eagle3", write(Third(false))},
          {"eagle3 of speculators", write(Third(true))},
          {"redrafter", write(test::RedrafterFolder(true))},
          {"redrafter of sums", write(test::RedrafterFolder(false, 96))},
          {"mlp speculator", write(test::MlpSpeculatorFolder())},
          {"tied mlp speculator", write(Tied())}};
}

std::string BytesOf(const std::string& file) {
  std::ifstream stream(file, std::ios::binary);
  return {std::istreambuf_iterator<char>(stream), {}};
}

void ExpectSameTensors(const std::string& found_in, const std::string& expected_in) {
  const draft::HeadsFile found = draft::OpenHeads(found_in), expected = draft::OpenHeads(expected_in);
  EXPECT_EQ(found.tensors->Names(), expected.tensors->Names());
  for (const auto& [name, stored] : found.tensors->tensors()) {
    const TensorView& view = stored.view;
    const TensorView& other = expected.tensors->Find(name)->view;
    EXPECT_EQ(view.dtype, other.dtype) << name;
    ASSERT_EQ(view.shape, other.shape) << name;
    EXPECT_EQ(std::memcmp(view.data, other.data, view.num_bytes()), 0) << name;
  }
}

// As their authors publish many: pytorch_model.bin in place of the safetensors file.
std::string AsTorch(const std::string& heads, const test::TempDir& dir) {
  const draft::HeadsFile file = draft::OpenHeads(heads);
  std::vector<checkpoint::TorchTensor> tensors;
  for (const auto& [name, stored] : file.tensors->tensors()) tensors.push_back({name, stored.view});
  checkpoint::WriteTorchZip(dir.path() + "/pytorch_model.bin", tensors);
  fs::copy(heads + "/config.json", dir.path() + "/config.json");
  dir.Write("LICENSE", "free");
  return dir.path();
}

GenerationResult Drafted(const std::string& heads) {
  EngineOptions options;
  options.model = Golden("base_mha");
  options.draft = heads;
  options.load_tokenizer = false;
  GenerationRequest request;
  request.prompt_ids = test::Prompt();
  request.stop = {.max_tokens = 40, .ignore_eos = true, .stop = {}};
  request.tree = "beam";
  return Engine(options).Generate(request);
}

TEST(RespellKeptNamesTest, ATorchFileBecomesSafetensorsWithEveryBit) {
  for (const auto& [kind, write] : EveryHeads()) {
    SCOPED_TRACE(kind);
    const test::TempDir as_written, as_torch, made;
    const std::string torch = AsTorch(write(as_written), as_torch);
    const std::string out = made.path() + "/out", again = made.path() + "/again";
    const RespellReport report = RespellHeads({.in = torch, .out = out, .layout = "safetensors"});
    EXPECT_EQ(report.weights_files, std::vector<std::string>{"model.safetensors"});
    EXPECT_THAT(report.left_out, IsEmpty());
    EXPECT_THAT(report.warnings, IsEmpty());
    ExpectSameTensors(out, torch);
    EXPECT_EQ(BytesOf(out + "/config.json"), BytesOf(torch + "/config.json"));
    EXPECT_EQ(BytesOf(out + "/LICENSE"), "free");
    RespellHeads({.in = out, .out = again, .layout = "safetensors", .model = Golden("base_mha")});
    EXPECT_EQ(BytesOf(again + "/model.safetensors"), BytesOf(out + "/model.safetensors"));
    const GenerationResult expected = Drafted(torch), found = Drafted(out);
    EXPECT_EQ(found.token_ids, expected.token_ids);
    EXPECT_EQ(found.num_emitted, expected.num_emitted) << "the same drafts are accepted";
  }
}

TEST(RespellKeptNamesTest, FilesOfOtherToolsKeepEveryBit) {
  HYDRANT_NEED_SHARED();
  const std::string golden = test::SharedDir() + "/golden/";
  for (const char* name : {"eagle/eagle1", "eagle/eagle3", "redrafter/head", "redrafter/head_lm_heads",
                           "redrafter/head_seq0", "redrafter/proj_head"}) {
    SCOPED_TRACE(name);
    const test::TempDir torch, made;
    const std::string out = made.path() + "/out";
    std::string in = golden + name;
    if (fs::exists(in + "/pytorch_model.bin")) {
      fs::copy(in + "/pytorch_model.bin", torch.path() + "/pytorch_model.bin");
      fs::copy(in + "/config.json", torch.path() + "/config.json");
      in = torch.path();
    }
    RespellHeads({.in = in, .out = out, .layout = "safetensors"});
    ExpectSameTensors(out, golden + name);
  }
}

TEST(RespellKeptNamesTest, OtherLayoutsAreRefusedWithTheOneThatThereIs) {
  for (const auto& [kind, write] : EveryHeads()) {
    const test::TempDir heads, made;
    write(heads);
    for (const std::string_view layout : HeadLayoutNames()) {
      if (layout == "safetensors") continue;
      try {
        RespellHeads({.in = heads.path(),
                      .out = made.path() + "/out",
                      .layout = std::string(layout),
                      .model = layout == "medusa-b" ? Golden("base_mha") : ""});
        FAIL() << kind << " in " << layout;
      } catch (const FileError& error) {
        EXPECT_THAT(error.what() + std::string("\n") + error.hint(),
                    AllOf(HasSubstr(" heads, which layout " + std::string(layout) + " cannot hold"),
                          HasSubstr("the layout of such heads: safetensors")))
            << kind;
      }
    }
    EXPECT_TRUE(fs::is_empty(made.path()));
  }
}

TEST(RespellKeptNamesTest, WhatCannotBeWrittenIsNamed) {
  const auto refusal = [](const std::string& in, const std::string& model = {}) {
    const test::TempDir made;
    try {
      RespellHeads({.in = in, .out = made.path() + "/out", .layout = "safetensors", .model = model});
    } catch (const FileError& error) {
      return error.what() + std::string("\n") + error.hint();
    }
    return std::string("written");
  };
  const test::TempDir redrafter, eagle, mlp, made;
  test::RedrafterFolder(false).Write(redrafter);
  fs::remove(redrafter.path() + "/config.json");
  EXPECT_THAT(refusal(redrafter.path()), HasSubstr("put the config.json that was published with the heads"));
  test::MlpSpeculatorFolder wrong;
  wrong.config["vocab_size"] = 511;
  EXPECT_THAT(refusal(wrong.Write(mlp)), HasSubstr("is [512, 48], expected [511, 48] (vocab_size of "));
  test::EagleFolder(true).Write(eagle);
  ConvertFolder({.in = eagle.path(), .out = made.path() + "/packed", .model = Golden("base_mha"), .threads = 1});
  EXPECT_THAT(refusal(made.path() + "/packed"),
              AllOf(HasSubstr("is packed in w8a8, expected floats"), HasSubstr("that it was converted from")));
}

}  // namespace
}  // namespace hydrant::convert::respell_kept_names_test
