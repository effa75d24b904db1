// SPDX-License-Identifier: Apache-2.0
// Hydra's heads of one module from files: what is wrong with them is said by name.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <functional>
#include <map>
#include <random>
#include <string>
#include <vector>

#include "base/mapped_file.h"
#include "draft/heads/head_tensors.h"
#include "eval/heads.h"
#include "eval/logits.h"
#include "load/loaded_model.h"
#include "tests/head_folders.h"
#include "tests/lossless_util.h"

namespace hydrant::test::hydra_attention_test {
namespace {

using testing::HasSubstr;

constexpr const char* kArchitectures[] = {"eagle-attn", "cross-attn"};

std::string Refusal(const std::string& folder) {
  try {
    load::LoadModel(OptionsOf(folder));
  } catch (const FileError& error) {
    return error.what() + std::string(" ") + error.hint();
  }
  return "loaded";
}

void ExpectRefused(const std::string& arch, const std::string& part,
                   const std::function<void(HydraAttentionFolder&)>& spoil) {
  HydraAttentionFolder folder(arch);
  spoil(folder);
  const TempDir dir;
  EXPECT_THAT(Refusal(folder.Write(dir)), HasSubstr(part)) << arch;
}

TEST(HydraAttention, CountsOtherThanOneAreNamed) {
  for (const char* arch : kArchitectures) {
    for (const char* key : {"hydra_num_heads", "hydra_num_layers"}) {
      for (const int count : {0, 2, 4}) {
        ExpectRefused(
            arch,
            "config.json: '" + std::string(key) + "' is " + std::to_string(count) + ", expected 1 (" + arch + " heads",
            [&](HydraAttentionFolder& f) { f.config[key] = count; });
      }
    }
    ExpectRefused(arch, "config.json: 'grounded_heads' is false, expected true",
                  [](HydraAttentionFolder& f) { f.config["grounded_heads"] = false; });
    ExpectRefused(arch, "'hidden_state_offset' is 5, but the base",
                  [](HydraAttentionFolder& f) { f.config["hidden_state_offset"] = 5; });
    ExpectRefused(arch, "'hydra_ext.root_aware' is true", [](HydraAttentionFolder& f) {
      f.config["hydra_ext"] = {{"root_aware", true}};
    });
    ExpectRefused(arch, "'hydra_ext.num_key_value_heads' is 3, expected a divisor", [](HydraAttentionFolder& f) {
      f.config["hydra_ext"] = {{"num_key_value_heads", 3}};
    });
  }
}

TEST(HydraAttention, WithoutTheirArchitectureTheConfigIsNamed) {
  for (const char* arch : kArchitectures) {
    ExpectRefused(arch, "holds Hydra heads, but there is no config.json with 'hydra_head_arch' beside it",
                  [](HydraAttentionFolder& f) { f.config.erase("hydra_head_arch"); });
    const TempDir dir;
    HydraAttentionFolder(arch).Write(dir);
    std::filesystem::remove(dir.path() + "/config.json");
    EXPECT_THAT(Refusal(dir.path()), HasSubstr("there is no config.json with 'hydra_head_arch' beside it")) << arch;
  }
}

// Each tensor missing, of another shape, and of another rank.
TEST(HydraAttention, EveryTensorIsAskedForByNameAndShape) {
  for (const char* arch : kArchitectures) {
    for (const auto& [name, shape] : HydraAttentionFolder(arch).shapes) {
      ExpectRefused(arch, "tensor '" + name + "' is missing",
                    [&name](HydraAttentionFolder& f) { f.shapes.erase(name); });
      for (size_t axis = 0; axis < shape.size(); ++axis) {
        ExpectRefused(arch, "tensor '" + name + "' is [", [&](HydraAttentionFolder& f) { f.shapes[name][axis] += 16; });
      }
      ExpectRefused(arch, "tensor '" + name + "' is [",
                    [&name](HydraAttentionFolder& f) { f.shapes[name].push_back(1); });
    }
    ExpectRefused(arch, "'extra.weight' [3] is not expected here: hydra-" + std::string(arch) + " heads hold no such",
                  [](HydraAttentionFolder& f) { f.shapes["extra.weight"] = {3}; });
    ExpectRefused(arch, "is missing", [](HydraAttentionFolder& f) { f.shapes = {{"hydra_heads.0.x.weight", {3}}}; });
  }
  ExpectRefused("eagle-attn", "'fc.weight' is [64, 64], expected [64, 128] (2 * hidden_size",
                [](HydraAttentionFolder& f) {
                  f.shapes["fc.weight"] = {64, 64};
                });
}

TEST(HydraAttention, ACutFileIsNamed) {
  for (const char* arch : kArchitectures) {
    const TempDir whole;
    const std::string file = HydraAttentionFolder(arch).Write(whole) + "/hydra_lm_head.safetensors";
    const uintmax_t size = std::filesystem::file_size(file);
    for (const uintmax_t kept : {uintmax_t{0}, uintmax_t{5}, uintmax_t{100}, size / 2, size - 1}) {
      std::filesystem::resize_file(file, kept);
      EXPECT_THAT(Refusal(whole.path()), HasSubstr("hydra_lm_head.safetensors")) << arch << " " << kept;
    }
  }
}

// Bytes of the config and of the tensors' header changed at random: a refusal of the user's file or heads that load,
// but never a failed check of ours.
TEST(HydraAttention, DamagedBytesAreTheFilesFault) {
  for (const char* arch : kArchitectures) {
    const TempDir dir;
    HydraAttentionFolder(arch).Write(dir);
    std::mt19937 random(3);
    for (const char* name : {"config.json", "hydra_lm_head.safetensors"}) {
      const std::string whole = base::ReadTextFile(dir.path() + "/" + name);
      const size_t most = std::min<size_t>(whole.size(), 1200);  // the header's
      for (int round = 0; round < 150; ++round) {
        std::string damaged = whole;
        for (int flip = 0; flip <= round % 3; ++flip) damaged[random() % most] ^= static_cast<char>(1 + random() % 127);
        dir.Write(name, damaged);
        try {
          load::LoadModel(OptionsOf(dir.path()));
        } catch (const UserError& error) {
          EXPECT_FALSE(std::string(error.what()).empty());
        }
      }
      dir.Write(name, whole);
    }
  }
}

// Their copies of the base's tensors are in the released files; a rotary table says by which frequencies it was
// trained.
TEST(HydraAttention, TensorsThatAreNotUsedAreAccepted) {
  for (const std::string arch : kArchitectures) {
    const TempDir dir;
    HydraAttentionFolder folder(arch);
    folder.shapes[arch == "eagle-attn" ? "attn.self_attn.rotary_emb.inv_freq" : "cross_attn.rotary_emb.inv_freq"] = {8};
    folder.shapes["lm_head.weight"] = folder.shapes["input_embed_fn.weight"] = {512, 64};
    const auto loaded = load::LoadModel(OptionsOf(folder.Write(dir)));
    EXPECT_EQ(loaded->drafter->name(), "hydra-" + arch);
    std::string warnings;
    for (const std::string& warning : loaded->info.warnings) warnings += warning + "\n";
    EXPECT_THAT(warnings, HasSubstr("differs from the frequencies of rope base 10000"));
    EXPECT_THAT(warnings, HasSubstr("these heads were trained on another base"));
  }
}

// By the keys of a grouped-query base, and by the config.
TEST(HydraAttention, KeyHeadsAndRopeBaseMayDiffer) {
  for (const std::string arch : kArchitectures) {
    const auto logits_of = [&](const std::function<void(HydraAttentionFolder&)>& change) {
      HydraAttentionFolder folder(arch);
      change(folder);
      const TempDir dir;
      return eval::EvalLogits(*load::LoadModel(OptionsOf(folder.Write(dir))), Prompt(), {5}).head_logits;
    };
    const Matrix plain = logits_of([](HydraAttentionFolder&) {});
    const Matrix other_rope = logits_of([](HydraAttentionFolder& f) {
      f.config["hydra_ext"] = {{"rope_theta", 500.0}};
    });
    const Matrix two_heads = logits_of([](HydraAttentionFolder& f) {
      f.config["hydra_ext"] = {{"num_key_value_heads", 2}};
      for (auto& [name, shape] : f.shapes) {
        if (name.ends_with("k_proj.weight") || name.ends_with("v_proj.weight")) shape = {32, 64};
      }
    });
    for (const Matrix* other : {&other_rope, &two_heads}) {
      EXPECT_FALSE(std::ranges::equal(plain.row_span(1), other->row_span(1))) << arch;
    }
  }
}

// For bench heads: one module drafts every level, each time with all its weights.
TEST(HydraAttention, EveryDepthIsAPartOfTheSameModule) {
  for (const char* arch : kArchitectures) {
    const TempDir dir;
    const HydraAttentionFolder folder(arch);
    const draft::HeadsFile file = draft::OpenHeads(folder.Write(dir));
    const auto loaded = load::LoadModel(OptionsOf(dir.path()));
    eval::HeadsOptions options{.queue = &loaded->queue, .base = &loaded->weights, .drafter = loaded->drafter.get()};
    options.part_weights = eval::PartWeights(file, loaded->weights.config, loaded->weights.config.vocab_size);
    int64_t weights = 0;
    for (const auto& [name, shape] : folder.shapes) weights += shape.size() == 2 ? shape[0] * shape[1] : 0;
    EXPECT_EQ(options.part_weights, (std::vector<int64_t>{0, weights}));
    options.tree = tree::Preset("mc_sim_7b_63");
    options.seconds = 0;
    const eval::HeadsResult result = eval::MeasureHeads(options);
    ASSERT_EQ(result.parts.size(), 5U) << arch;
    for (size_t part = 0; part < 4; ++part) {
      EXPECT_EQ(result.parts[part].name, "level " + std::to_string(part + 1));
      // The module and the base's lm head. The first level of cross-attn reads the matrices of keys and values twice.
      const auto read = static_cast<double>(loaded->drafter->weight_bytes() + loaded->weights.lm_head.bytes());
      const double twice = part == 0 && arch == std::string("cross-attn") ? 0.12 * read : 1024;  // else norms alone
      EXPECT_NEAR(static_cast<double>(result.parts[part].bytes), read, twice);
    }
  }
}

}  // namespace
}  // namespace hydrant::test::hydra_attention_test
