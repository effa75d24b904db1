// SPDX-License-Identifier: Apache-2.0
// EAGLE heads from files: what is wrong with them is said by name.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <functional>

#include "load/loaded_model.h"
#include "tests/head_folders.h"
#include "tests/lossless_util.h"

namespace hydrant::test::eagle_files_test {
namespace {

using testing::HasSubstr;

void ExpectRefused(bool is_third, const std::string& part, const std::function<void(EagleFolder&)>& spoil) {
  EagleFolder folder(is_third);
  spoil(folder);
  const TempDir dir;
  try {
    load::LoadModel(OptionsOf(folder.Write(dir)));
    FAIL() << "loaded, expected: " << part;
  } catch (const FileError& error) {
    EXPECT_THAT(error.what() + std::string(" ") + error.hint(), HasSubstr(part));
  }
}

TEST(EagleFiles, WhatIsWrongIsNamed) {
  const auto refused = [](const std::string& part, const std::function<void(EagleFolder&)>& spoil) {
    ExpectRefused(/*is_third=*/true, part, spoil);
  };
  refused("'fc.weight' is [64, 128], expected [64, 192] (3 * hidden_size", [](EagleFolder& f) {
    f.shapes["fc.weight"] = {64, 128};
  });
  refused("'midlayer.self_attn.k_proj.weight' is [64, 128], expected [32, 128] (num_key_value_heads * head_dim",
          [](EagleFolder& f) {
            f.shapes["midlayer.self_attn.k_proj.weight"] = {64, 128};
          });
  refused("'norm.weight' is missing", [](EagleFolder& f) { f.shapes.erase("norm.weight"); });
  refused("model.safetensors: tensor 'midlayer.extra' [3] is not expected here: eagle3 heads hold no such tensor",
          [](EagleFolder& f) { f.shapes["midlayer.extra"] = {3}; });
  refused("'lm_head.weight' is [40, 64], expected [39, 64] (rows of the token map",
          [](EagleFolder& f) { f.offsets.pop_back(); });
  refused("'d2t' maps row 39 to token", [](EagleFolder& f) { f.offsets.back() = 473; });
  refused("'d2t' maps row 39 to token", [](EagleFolder& f) { f.offsets.back() = INT64_MAX; });
  refused("'d2t' maps row 39 to token", [](EagleFolder& f) { f.offsets.back() = INT64_MIN; });
  refused("'d2t' maps row 39 to token 380", [](EagleFolder& f) { f.offsets.back() = f.offsets[38] - 1; });
  refused("'hidden_size' is 32, expected the base's 64", [](EagleFolder& f) { f.config["hidden_size"] = 32; });
  refused("'num_hidden_layers' is 2, expected 1", [](EagleFolder& f) { f.config["num_hidden_layers"] = 2; });
  refused("\"inputs\" or \"outputs\"", [](EagleFolder& f) {
    f.config["eagle_config"]["eagle_aux_hidden_state_layer_ids"] = {0, 1, 2};
  });
  refused("[1, 2, 9], but the base", [](EagleFolder& f) {
    f.config["eagle_config"]["eagle_aux_hidden_state_layer_ids"] = {1, 2, 9};
  });
  refused("expected 3 layers", [](EagleFolder& f) { f.config["eagle_aux_hidden_state_layer_ids"] = {1, 2}; });
  refused("fewer than EAGLE-3's own rule needs (7)", [](EagleFolder& f) { f.config.erase("eagle_config"); });
  refused("norm_before_fc", [](EagleFolder& f) { f.config["norm_before_fc"] = true; });
  refused("'fc.weight' is missing", [](EagleFolder& f) { f.shapes.erase("fc.weight"); });
  refused("'midlayer.self_attn.q_proj.weight' is missing",
          [](EagleFolder& f) { f.shapes.erase("midlayer.self_attn.q_proj.weight"); });
  refused("'transformer_layer_config' is {}, expected an object with the layer's config",
          [](EagleFolder& f) { f.config["transformer_layer_config"] = base::Json::object(); });
  ExpectRefused(/*is_third=*/false, "'fusion_bias' is false, expected true, since the file has such a bias",
                [](EagleFolder& f) { f.config["fusion_bias"] = false; });
  ExpectRefused(/*is_third=*/false, "'fusion_bias' is true, expected false", [](EagleFolder& f) {
    f.config["fusion_bias"] = true;
    f.shapes.erase("fc.bias");
  });
  ExpectRefused(/*is_third=*/false, "'fc.bias' is [63], expected [64]",
                [](EagleFolder& f) { f.shapes["fc.bias"] = {63}; });
}

TEST(EagleFiles, AVocabularyThatTheConfigSaysOtherwiseIsNamed) {
  const auto refused = [](bool is_third, const std::string& part, const std::function<void(EagleFolder&)>& spoil) {
    ExpectRefused(is_third, part, spoil);
  };
  refused(true, "config.json: 'draft_vocab_size' is 41, expected 40, the rows of tensor 'd2t' in ",
          [](EagleFolder& f) { f.config["draft_vocab_size"] = 41; });
  refused(true, "config.json: 'draft_vocab_size' is 40, expected 512, the rows of tensor 'lm_head.weight' in ",
          [](EagleFolder& f) {
            f.offsets.clear();
            f.shapes["lm_head.weight"] = {512, 64};
            f.config["draft_vocab_size"] = 40;
          });
  refused(true, "config.json: 'vocab_size' is 500, expected 512, the rows of tensor 'lm_head.weight' in ",
          [](EagleFolder& f) {
            f.offsets.clear();
            f.shapes["lm_head.weight"] = {512, 64};
            f.config["vocab_size"] = 500;
          });
  refused(true, "config.json: 'vocab_size' is 512, expected 500, the rows of tensor 't2d' in ",
          [](EagleFolder& f) { f.shapes["t2d"] = {500}; });
  refused(true, "config.json: 'transformer_layer_config.vocab_size' is 512, expected 500, the rows of tensor 't2d' in ",
          [](EagleFolder& f) {
            f.config = {{"transformer_layer_config", f.config}};
            f.shapes["t2d"] = {500};
          });
  refused(false, "config.json: 'vocab_size' is 512, expected 511, the rows of tensor 'embed_tokens.weight' in ",
          [](EagleFolder& f) {
            f.shapes["embed_tokens.weight"] = {511, 64};
          });
  EagleFolder right(true);
  right.config["draft_vocab_size"] = EagleFolder::kDraftVocab;
  right.shapes["t2d"] = {EagleFolder::kVocab};
  const TempDir dir;
  EXPECT_NO_THROW(load::LoadModel(OptionsOf(right.Write(dir))));
}

// The heads' config says it, not the base's.
TEST(EagleFiles, ASizeIsSaidToBeOfTheFileThatHasIt) {
  EagleFolder folder(true);
  folder.config["intermediate_size"] = 97;
  const TempDir dir;
  try {
    load::LoadModel(OptionsOf(folder.Write(dir)));
    FAIL();
  } catch (const FileError& error) {
    EXPECT_THAT(error.what(), HasSubstr("expected [97, 64] (intermediate_size of " + dir.path() + "/config.json"));
  }
}

TEST(EagleFiles, ACutFileIsNamed) {
  for (const uintmax_t size : {0, 5, 100, 5000}) {
    const TempDir dir;
    EagleFolder(true).Write(dir);
    std::filesystem::resize_file(dir.path() + "/model.safetensors", size);
    try {
      load::LoadModel(OptionsOf(dir.path()));
      FAIL() << size;
    } catch (const FileError& error) {
      EXPECT_THAT(error.what(), HasSubstr("model.safetensors")) << size;
      EXPECT_THAT(error.what(), testing::Not(HasSubstr("which are not run"))) << size;
    }
  }
}

// Few nodes need few levels, so that the widest and deepest tree of them takes no more room than they do.
TEST(EagleFiles, ADynamicTreeIsNoLargerThanItsNodesNeed) {
  const TempDir dir;
  EngineOptions options = OptionsOf(EagleFolder(true).Write(dir));
  const EngineInfo info = Engine(options).info();
  options.kv_memory = info.kv_memory / static_cast<uint64_t>(info.kv_positions / 32) * 4;
  Engine engine(options);
  GenerationRequest request;
  request.prompt_ids = Prompt();
  request.stop = {.max_tokens = 40, .ignore_eos = true, .stop = {}};
  request.tree = "dynamic";
  request.dynamic = {.nodes = 5, .depth = 5, .width = 5};
  const GenerationResult expected = engine.Generate(request);
  request.dynamic = {.nodes = 5, .depth = 64, .width = 64};
  const GenerationResult wide = engine.Generate(request);
  EXPECT_EQ(wide.num_emitted, expected.num_emitted);
  EXPECT_EQ(wide.num_drafted, expected.num_drafted);
  request.dynamic.nodes = 59;
  request.max_nodes = 5;
  EXPECT_EQ(engine.Generate(request).num_emitted, expected.num_emitted);
}

TEST(EagleFiles, WithoutAConfigTheFileIsNamed) {
  const TempDir dir;
  EagleFolder(false).Write(dir);
  std::filesystem::remove(dir.path() + "/config.json");
  try {
    load::LoadModel(OptionsOf(dir.path()));
    FAIL();
  } catch (const FileError& error) {
    EXPECT_THAT(error.what(), HasSubstr("holds EAGLE heads, but there is no config.json"));
  }
}

// The same numbers under both readings, settled by the file.
TEST(EagleFiles, TheReadingOfLayerNumbersCanBeSettled) {
  for (const char* reading : {"inputs", "outputs"}) {
    EagleFolder folder(true);
    folder.config["eagle_config"]["eagle_aux_hidden_state_layer_ids"] = {0, 1, 2};
    folder.config["eagle_aux_hidden_state_layer_ids_are"] = reading;
    const TempDir dir;
    const auto loaded = load::LoadModel(OptionsOf(folder.Write(dir)));
    const std::vector<int32_t> inputs = {0, 1, 2}, outputs = {1, 2, 3};
    EXPECT_EQ(loaded->drafter->WantedLayers(), std::string(reading) == "inputs" ? inputs : outputs);
  }
}

// The speculators library's names of EAGLE-1: other words for the same numbers.
TEST(EagleFiles, TheFirstHeadsAsTheSpeculatorsLibrarySpellsThem) {
  EagleFolder respelled = EagleOfSpeculators();
  const TempDir dir, other;
  EngineOptions options = OptionsOf(EagleFolder(false).Write(dir));
  Engine engine(options);
  options.draft = respelled.Write(other);
  Engine by_speculators(options);
  EXPECT_EQ(by_speculators.info().drafter, "eagle");
  GenerationRequest request;
  request.prompt_ids = Prompt();
  request.stop = {.max_tokens = 60, .ignore_eos = true, .stop = {}};
  request.tree = "dynamic";
  const GenerationResult expected = engine.Generate(request), found = by_speculators.Generate(request);
  EXPECT_EQ(found.num_emitted, expected.num_emitted);
  EXPECT_EQ(found.depth_accepted, expected.depth_accepted);
  respelled.config["layernorms"] = true;
  const TempDir third;
  EXPECT_THROW(load::LoadModel(OptionsOf(respelled.Write(third))), FileError);
}

}  // namespace
}  // namespace hydrant::test::eagle_files_test
