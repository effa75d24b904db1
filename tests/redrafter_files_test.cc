// SPDX-License-Identifier: Apache-2.0
// ReDrafter heads from files: what is wrong with them is said by name, and beams keep to their bounds.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <functional>

#include "load/loaded_model.h"
#include "tests/head_folders.h"
#include "tests/lossless_util.h"

namespace hydrant::test::redrafter_files_test {
namespace {

using testing::HasSubstr;

void ExpectRefused(const RedrafterFolder& folder, const std::string& part) {
  const TempDir dir;
  try {
    load::LoadModel(OptionsOf(folder.Write(dir)));
    FAIL() << "loaded, expected: " << part;
  } catch (const FileError& error) {
    EXPECT_THAT(error.what() + std::string(" ") + error.hint(), HasSubstr(part));
    EXPECT_THAT(error.what(), HasSubstr(dir.path()));
  }
}

TEST(RedrafterFiles, WhatIsWrongIsNamed) {
  const auto refused = [](const std::string& part, const std::function<void(RedrafterFolder&)>& spoil) {
    RedrafterFolder folder(/*is_recurrent=*/true);
    spoil(folder);
    ExpectRefused(folder, part);
  };
  refused("'rnn_u.weight' is [64, 65], expected [64, 64] (hidden_size", [](RedrafterFolder& f) {
    f.shapes["rnn_u.weight"] = {64, 65};
  });
  refused("'rnn_w.weight' is missing", [](RedrafterFolder& f) { f.shapes.erase("rnn_w.weight"); });
  refused("'rnn_u.bias' is missing", [](RedrafterFolder& f) { f.shapes.erase("rnn_u.bias"); });
  refused("'lm_head.1.linear.bias' is missing", [](RedrafterFolder& f) { f.shapes.erase("lm_head.1.linear.bias"); });
  refused("'lm_head.0.linear.weight' is missing",
          [](RedrafterFolder& f) { f.shapes.erase("lm_head.0.linear.weight"); });
  refused("'lm_head.2.weight' is missing", [](RedrafterFolder& f) { f.shapes.erase("lm_head.2.weight"); });
  refused("'lm_head.1.linear.weight' is [128, 64], expected [128, 128] (exit_dim", [](RedrafterFolder& f) {
    f.shapes["lm_head.1.linear.weight"] = {128, 64};
  });
  refused("'lm_head.2.weight' is [511, 128], expected [512, 128] (vocab_size", [](RedrafterFolder& f) {
    f.shapes["lm_head.2.weight"] = {511, 128};
  });
  refused("'lm_head.3.weight'", [](RedrafterFolder& f) { f.shapes["lm_head.3.weight"] = {512, 128}; });
  refused("'rnn_v.weight'", [](RedrafterFolder& f) { f.shapes["rnn_v.weight"] = {64, 64}; });
  refused("'input_proj.weight'", [](RedrafterFolder& f) { f.shapes["input_proj.weight"] = {128, 128}; });
  refused("'input_proj.weight' is missing", [](RedrafterFolder& f) { f.config["exit_dim"] = 96; });
  refused("'rnn_u.bias'", [](RedrafterFolder& f) { f.config["rnn"] = false; });
  refused("'hidden_size' is 32, expected the base's 64", [](RedrafterFolder& f) { f.config["hidden_size"] = 32; });
  refused("'vocab_size' is 500, expected the base's 512", [](RedrafterFolder& f) { f.config["vocab_size"] = 500; });
  refused("'num_draft_layers' is 1, expected 2", [](RedrafterFolder& f) { f.config["num_draft_layers"] = 1; });
  refused("'num_draft_layers' is 65", [](RedrafterFolder& f) { f.config["num_draft_layers"] = 65; });
  refused("'exit_dim' is 0", [](RedrafterFolder& f) { f.config["exit_dim"] = 0; });
  refused("'rnn' is 3, expected true or false", [](RedrafterFolder& f) { f.config["rnn"] = 3; });
  refused("'exit_dim'", [](RedrafterFolder& f) { f.config.erase("exit_dim"); });
  RedrafterFolder projected(/*is_recurrent=*/false, 96);
  projected.shapes["input_proj.weight"] = {96, 127};
  ExpectRefused(projected, "'input_proj.weight' is [96, 127], expected [96, 128] (2 * hidden_size");
}

TEST(RedrafterFiles, ACutFileIsNamed) {
  for (const uintmax_t size : {0, 5, 100, 5000}) {
    const TempDir dir;
    RedrafterFolder(true).Write(dir);
    std::filesystem::resize_file(dir.path() + "/model.safetensors", size);
    try {
      load::LoadModel(OptionsOf(dir.path()));
      FAIL() << size;
    } catch (const FileError& error) {
      EXPECT_THAT(error.what(), HasSubstr("model.safetensors")) << size;
    }
  }
}

TEST(RedrafterFiles, WithoutAConfigTheFileIsNamed) {
  const TempDir dir;
  RedrafterFolder(true).Write(dir);
  std::filesystem::remove(dir.path() + "/config.json");
  try {
    load::LoadModel(OptionsOf(dir.path()));
    FAIL();
  } catch (const FileError& error) {
    EXPECT_THAT(error.what(), HasSubstr("holds ReDrafter heads, but there is no config.json"));
  }
}

// The port to MLX saves it.
TEST(RedrafterFiles, AnUnusedNormMayBeThere) {
  RedrafterFolder folder(true);
  folder.shapes["emb_norm.weight"] = {64};
  const TempDir dir;
  EXPECT_EQ(load::LoadModel(OptionsOf(folder.Write(dir)))->drafter->name(), std::string("redrafter"));
}

TEST(RedrafterFiles, BeamsOutOfRangeAreRefused) {
  const TempDir dir;
  Engine engine(OptionsOf(RedrafterFolder(true).Write(dir)));
  const auto refused = [&](const BeamOptions& beam, const std::string& part) {
    GenerationRequest request;
    request.prompt_ids = Prompt();
    request.tree = "beam";
    request.beam = beam;
    try {
      engine.Generate(request);
      ADD_FAILURE() << "accepted, expected: " << part;
    } catch (const UserError& error) {
      EXPECT_THAT(error.what(), HasSubstr(part));
    }
  };
  refused({.width = 0, .length = 4}, "BeamOptions::width");
  refused({.width = 51, .length = 4}, "BeamOptions::width");
  refused({.width = 5, .length = 1}, "BeamOptions::length");
  refused({.width = 1, .length = 66}, "BeamOptions::length");
  refused({.width = 50, .length = 12}, "50 beams of 12 tokens may be 550 drafted tokens, expected at most 511");
}

// The widest and the deepest search, and a bound on the nodes of a step.
TEST(RedrafterFiles, TreesOfBeamsKeepToTheirBounds) {
  const TempDir dir;
  Engine engine(OptionsOf(RedrafterFolder(true).Write(dir)));
  GenerationRequest request;
  request.prompt_ids = Prompt();
  request.stop = {.max_tokens = 40, .ignore_eos = true, .stop = {}};
  request.use_drafter = false;
  const std::vector<int32_t> plain = engine.Generate(request).token_ids;
  request.use_drafter = true;
  request.tree = "beam";
  for (const auto& [beam, max_nodes] : std::vector<std::pair<BeamOptions, int32_t>>{
           {{.width = 50, .length = 11}, 0}, {{.width = 7, .length = 65}, 0}, {{.width = 10, .length = 4}, 5}}) {
    request.beam = beam;
    request.max_nodes = max_nodes;
    const size_t most = 1 + static_cast<size_t>(max_nodes > 0 ? max_nodes : draft::NodesOf(beam));
    size_t largest = 0;
    const GenerationResult result = engine.Generate(request, [&](const Emission& emission) {
      if (emission.step != nullptr) largest = std::max(largest, emission.step->tokens.size());
      return true;
    });
    EXPECT_EQ(result.token_ids, plain);
    EXPECT_LE(largest, most);
    EXPECT_GT(largest, static_cast<size_t>(max_nodes > 0 ? max_nodes : beam.width));
  }
}

}  // namespace
}  // namespace hydrant::test::redrafter_files_test
