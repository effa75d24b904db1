// SPDX-License-Identifier: Apache-2.0
// Hydra's heads of one module from files: what is wrong with them is said by name, and whatever they draft, texts are
// plain decoding's.
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
#include "tests/hydra_attention_folder.h"
#include "tests/lossless_util.h"

namespace hydrant::test::hydra_attention_test {
namespace {

using testing::HasSubstr;

constexpr const char* kArchitectures[] = {"eagle-attn", "cross-attn"};

EngineOptions OptionsOf(const std::string& draft) {
  EngineOptions options;
  options.model = Golden("base_mha");
  options.draft = draft;
  options.load_tokenizer = false;
  return options;
}

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
    ExpectRefused(arch, "'extra.weight'", [](HydraAttentionFolder& f) { f.shapes["extra.weight"] = {3}; });
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

// Batches of greedy and sampled requests with several trees, prompts in chunks, on every target.
TEST(HydraAttention, TextsArePlainDecodingsOnEveryTarget) {
  for (const char* arch : kArchitectures) {
    const TempDir dir;
    HydraAttentionFolder(arch).Write(dir);
    for (const std::string& target : TargetsForFloats()) {
      EngineOptions options = OptionsOf(dir.path());
      options.cpu_target = target;
      options.prefill_chunk = 5;
      Engine engine(options);
      std::vector<GenerationRequest> requests;
      for (const Setting& setting : EverySetting()) {
        for (const char* tree : {"dynamic", "mc_sim_7b_63", "[[0],[1],[0,0],[0,1],[0,0,0]]", "auto"}) {
          GenerationRequest request;
          request.prompt_ids = Prompt();
          request.sampling = setting.sampling;
          request.stop = {.max_tokens = 30, .ignore_eos = true, .stop = {}};
          request.tree = tree;
          requests.push_back(request);
        }
      }
      int64_t accepted = 0;
      const std::vector<GenerationResult> together = engine.GenerateBatch(requests);
      for (size_t i = 0; i < requests.size(); ++i) {
        SCOPED_TRACE(std::string(arch) + " " + target + " " + std::to_string(i));
        accepted += together[i].num_accepted();
        const GenerationResult alone = engine.Generate(requests[i]);
        EXPECT_EQ(alone.token_ids, together[i].token_ids);
        if (requests[i].tree != "auto") {
          EXPECT_EQ(alone.num_emitted, together[i].num_emitted);
        }
        requests[i].use_drafter = false;
        EXPECT_EQ(engine.Generate(requests[i]).token_ids, together[i].token_ids);
      }
      EXPECT_GT(accepted, 0);
    }
  }
}

// The drafted trees of every step, one behind the other.
std::vector<int32_t> DraftsOf(Engine& engine, const GenerationRequest& request, int64_t* num_reused = nullptr) {
  std::vector<int32_t> drafts;
  const GenerationResult result = engine.Generate(request, [&](const Emission& emission) {
    if (emission.step != nullptr) {
      drafts.insert(drafts.end(), emission.step->tokens.begin(), emission.step->tokens.end());
    }
    return true;
  });
  if (num_reused != nullptr) *num_reused = result.num_reused;
  EXPECT_GT(drafts.size(), result.token_ids.size());
  return drafts;
}

// What is in shared blocks, and in which chunks a prompt came, changes no draft.
TEST(HydraAttention, SharedBeginningsAndChunksChangeNoDraft) {
  for (const char* arch : kArchitectures) {
    const TempDir dir;
    EngineOptions options = OptionsOf(HydraAttentionFolder(arch).Write(dir));
    Engine engine(options);
    options.prefill_chunk = 3;
    Engine in_chunks(options);
    std::vector<GenerationRequest> requests(4);
    std::vector<std::vector<int32_t>> alone;
    for (size_t i = 0; i < requests.size(); ++i) {
      GenerationRequest& request = requests[i];
      for (size_t t = 0; t < 64; ++t) request.prompt_ids.push_back(Prompt()[t % Prompt().size()]);
      if (i > 0) request.prompt_ids.push_back(static_cast<int32_t>(300 + i));
      request.stop = {.max_tokens = 40, .ignore_eos = true, .stop = {}};
      request.tree = i % 2 == 0 ? "dynamic" : "mc_sim_7b_63";
      request.dynamic = {.nodes = 16, .depth = 4, .width = 4};
      alone.push_back(DraftsOf(engine, request));
      EXPECT_EQ(DraftsOf(in_chunks, request), alone.back()) << arch << " " << i;
      request.cache_scope = "all";
    }
    for (size_t i = 0; i < requests.size(); ++i) {
      SCOPED_TRACE(std::string(arch) + " " + std::to_string(i));
      int64_t num_reused = 0;
      EXPECT_EQ(DraftsOf(engine, requests[i], &num_reused), alone[i]);
      EXPECT_EQ(num_reused > 0, i > 0);
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
