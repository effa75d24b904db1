// SPDX-License-Identifier: Apache-2.0
#include "model/model_config.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <random>

#include "base/json.h"
#include "base/mapped_file.h"
#include "hydrant/error.h"
#include "tests/test_data.h"

namespace hydrant::model::model_config_test {
namespace {

using base::Json;
using hydrant::test::SharedDir;
using hydrant::test::SourceDir;
using hydrant::test::TempDir;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

Json Llama() {
  return {{"model_type", "llama"},    {"vocab_size", 320},      {"hidden_size", 64},
          {"intermediate_size", 112}, {"num_hidden_layers", 2}, {"num_attention_heads", 4},
          {"num_key_value_heads", 2}, {"rms_norm_eps", 1e-5},   {"max_position_embeddings", 512},
          {"bos_token_id", 1},        {"eos_token_id", 2}};
}

Json With(Json config, const std::string& key, const Json& value) {
  config[key] = value;
  return config;
}

Json Of(const char* family) {
  Json config = With(Llama(), "model_type", family);
  if (family == std::string("qwen3")) config["head_dim"] = 32;
  return config;
}

ModelConfig Read(const Json& config, const std::string& generation = "") {
  const TempDir folder;
  folder.Write("config.json", config.dump());
  if (!generation.empty()) folder.Write("generation_config.json", generation);
  return ReadModelConfig(folder.path());
}

std::string Refusal(const Json& config, const std::string& generation = "") {
  try {
    Read(config, generation);
    return "";
  } catch (const FileError& e) {
    return e.what();
  }
}

TEST(ModelConfigTest, ReadsTheSizes) {
  const ModelConfig config = Read(Llama());
  EXPECT_EQ(config.family, Family::kLlama);
  EXPECT_EQ(config.vocab_size, 320);
  EXPECT_EQ(config.hidden_size, 64);
  EXPECT_EQ(config.intermediate_size, 112);
  EXPECT_EQ(config.num_layers, 2);
  EXPECT_EQ(config.num_heads, 4);
  EXPECT_EQ(config.num_kv_heads, 2);
  EXPECT_EQ(config.head_dim, 16);
  EXPECT_EQ(config.max_positions, 512);
  EXPECT_FLOAT_EQ(config.rms_norm_eps, 1e-5F);
  EXPECT_EQ(config.bos_token_id, 1);
  EXPECT_THAT(config.config_eos_token_ids, ElementsAre(2));
  EXPECT_FALSE(config.tied_embeddings);
}

TEST(ModelConfigTest, KeysOfOldReleasesMayBeAbsent) {
  Json config = Llama();
  config.erase("num_key_value_heads");
  config["head_dim"] = nullptr;
  config["rope_scaling"] = nullptr;
  EXPECT_EQ(Read(config).num_kv_heads, 4);
  config["model_type"] = "mistral";
  EXPECT_THAT(Refusal(config), HasSubstr("'num_key_value_heads' is missing"));
}

TEST(ModelConfigTest, HeadDimMayDifferFromTheQuotient) {
  EXPECT_EQ(Read(With(Llama(), "head_dim", 24)).head_dim, 24);
  Json qwen3 = Of("qwen3");
  EXPECT_EQ(Read(qwen3).head_dim, 32);
  qwen3.erase("head_dim");
  EXPECT_THAT(Refusal(qwen3), HasSubstr("'head_dim' is missing"));
}

TEST(ModelConfigTest, FamiliesDifferInBiasesAndNorms) {
  const ModelConfig llama = Read(With(With(Llama(), "attention_bias", true), "mlp_bias", true));
  EXPECT_TRUE(llama.qkv_bias && llama.o_bias && llama.mlp_bias);
  const ModelConfig qwen2 = Read(Of("qwen2"));
  EXPECT_TRUE(qwen2.qkv_bias);
  EXPECT_FALSE(qwen2.o_bias || qwen2.mlp_bias || qwen2.qk_norm);
  const ModelConfig qwen3 = Read(Of("qwen3"));
  EXPECT_TRUE(qwen3.qk_norm);
  EXPECT_FALSE(qwen3.qkv_bias);
  EXPECT_TRUE(Read(With(Of("qwen3"), "attention_bias", true)).o_bias);
}

// The defaults of transformers' configuration classes.
TEST(ModelConfigTest, WithoutAContextLengthItsFamilysDefaultStands) {
  const auto without = [](const char* family) {
    Json config = Of(family);
    config.erase("max_position_embeddings");
    return Read(config).max_positions;
  };
  EXPECT_EQ(without("llama"), 2048);
  EXPECT_EQ(without("mistral"), 131072);
  EXPECT_EQ(without("qwen2"), 32768);
  EXPECT_EQ(without("qwen3"), 32768);
}

TEST(ModelConfigTest, RefusesBadSizes) {
  for (const char* key : {"vocab_size", "hidden_size", "intermediate_size", "num_hidden_layers", "num_attention_heads",
                          "max_position_embeddings"}) {
    for (const Json& value : {Json(0), Json(-1), Json(1e300), Json("64"), Json(64.5), Json(int64_t{1} << 62),
                              Json(~uint64_t{0}), Json(nullptr), Json(Json::array())}) {
      EXPECT_THAT(Refusal(With(Llama(), key, value)), HasSubstr(key)) << value;
    }
    if (key == std::string("max_position_embeddings")) continue;  // has a default
    Json missing = Llama();
    missing.erase(key);
    EXPECT_THAT(Refusal(missing), HasSubstr(std::string("'") + key + "' is missing"));
  }
  EXPECT_THAT(Refusal(With(Llama(), "num_key_value_heads", 3)), HasSubstr("a divisor of num_attention_heads 4"));
  EXPECT_THAT(Refusal(With(Llama(), "hidden_size", 66)), HasSubstr("a divisor of hidden_size 66"));
  EXPECT_THAT(Refusal(With(Llama(), "hidden_size", 60)), HasSubstr("even head_dim"));
  EXPECT_THAT(Refusal(With(Llama(), "head_dim", 1 << 23)), HasSubstr("num_attention_heads * head_dim"));
  EXPECT_THAT(Refusal(With(Llama(), "rms_norm_eps", 0)), HasSubstr("'rms_norm_eps' is 0"));
}

TEST(ModelConfigTest, RefusesWhatIsNotImplementedByName) {
  EXPECT_THAT(Refusal(With(Llama(), "model_type", "gemma2")),
              HasSubstr("'model_type' is \"gemma2\", expected \"llama\""));
  EXPECT_THAT(Refusal(With(Llama(), "hidden_act", "gelu")), HasSubstr("'hidden_act' is \"gelu\", expected \"silu\""));
  EXPECT_THAT(Refusal(With(Llama(), "quantization_config", {{"quant_method", "awq"}})),
              HasSubstr("'quantization_config.quant_method' is \"awq\""));
  EXPECT_THAT(Refusal(With(Llama(), "partial_rotary_factor", 0.5)), HasSubstr("'partial_rotary_factor' is 0.5"));
  for (const char* type : {"dynamic", "yarn", "longrope", "su", "mrope"}) {
    const std::string expected = std::string(" is \"") + type + "\", expected \"default\", \"linear\" or \"llama3\"";
    EXPECT_THAT(Refusal(With(Llama(), "rope_scaling", {{"type", type}, {"factor", 2}})),
                HasSubstr("config.json: 'rope_scaling.type'" + expected));
    EXPECT_THAT(Refusal(With(Llama(), "rope_parameters", {{"rope_type", type}, {"rope_theta", 1e4}})),
                HasSubstr("'rope_parameters.rope_type'" + expected));
  }
}

TEST(ModelConfigTest, ReadsBothSpellingsOfRope) {
  EXPECT_EQ(Read(Llama()).rope.theta, 10000.0);
  EXPECT_EQ(Read(With(Llama(), "rope_theta", 500000)).rope.theta, 500000.0);
  const ModelConfig next = Read(With(Llama(), "rope_parameters", {{"rope_theta", 5e5}, {"rope_type", "default"}}));
  EXPECT_EQ(next.rope.theta, 500000.0);
  EXPECT_EQ(next.rope.type, RopeType::kDefault);
  for (const char* key : {"type", "rope_type"}) {
    const ModelConfig linear = Read(With(Llama(), "rope_scaling", {{key, "linear"}, {"factor", 4}}));
    EXPECT_EQ(linear.rope.type, RopeType::kLinear);
    EXPECT_EQ(linear.rope.factor, 4.0);
  }
  const Json llama3 = {{"rope_type", "llama3"}, {"rope_theta", 5e5},     {"factor", 8},
                       {"low_freq_factor", 1},  {"high_freq_factor", 4}, {"original_max_position_embeddings", 256}};
  const ModelConfig config = Read(With(Llama(), "rope_parameters", llama3));
  EXPECT_EQ(config.rope.type, RopeType::kLlama3);
  EXPECT_EQ(config.rope.original_max_positions, 256);
}

TEST(ModelConfigTest, RefusesBadRope) {
  EXPECT_THAT(Refusal(With(Llama(), "rope_theta", 0)), HasSubstr("'rope_theta' is 0"));
  EXPECT_THAT(Refusal(With(Llama(), "rope_scaling", {{"type", "linear"}})),
              HasSubstr("'rope_scaling.factor' is missing"));
  EXPECT_THAT(Refusal(With(Llama(), "rope_scaling", {{"type", "linear"}, {"factor", -1}})),
              HasSubstr("'rope_scaling.factor' is -1"));
  EXPECT_THAT(Refusal(With(Llama(), "rope_scaling", {{"factor", 2}})), HasSubstr("'rope_type'"));
  EXPECT_THAT(Refusal(With(Llama(), "rope_scaling", "linear")), HasSubstr("expected an object or null"));
  EXPECT_THAT(Refusal(With(Llama(), "rope_scaling", {{"type", "linear"}, {"rope_type", "llama3"}, {"factor", 2}})),
              HasSubstr("the same as rope_type"));
  const Json both = With(Llama(), "rope_parameters", {{"rope_theta", 1e4}});
  EXPECT_THAT(Refusal(With(both, "rope_scaling", {{"type", "linear"}, {"factor", 2}})), HasSubstr("'rope_parameters'"));
  EXPECT_THAT(Refusal(With(Llama(), "rope_parameters", {{"full_attention", {{"rope_type", "default"}}}})),
              HasSubstr("'rope_type'"));
}

TEST(ModelConfigTest, SlidingWindows) {
  EXPECT_EQ(Read(With(Llama(), "sliding_window", 8)).sliding_window, 0);
  EXPECT_EQ(Read(With(Of("mistral"), "sliding_window", 12)).sliding_window, 12);
  EXPECT_EQ(Read(With(Of("mistral"), "sliding_window", nullptr)).sliding_window, 0);
  EXPECT_EQ(Read(Of("mistral")).sliding_window, 4096);  // transformers' default
  const Json qwen = With(Of("qwen2"), "sliding_window", 8);
  EXPECT_EQ(Read(qwen).sliding_window, 0);
  EXPECT_EQ(Read(With(qwen, "use_sliding_window", false)).sliding_window, 0);
  const Json used = With(qwen, "use_sliding_window", true);
  EXPECT_EQ(Read(used).sliding_window, 0);  // max_window_layers is 28: no layer slides
  EXPECT_EQ(Read(With(used, "max_window_layers", 0)).sliding_window, 8);
  EXPECT_THAT(Refusal(With(used, "max_window_layers", 1)), HasSubstr("'use_sliding_window' is true"));
  EXPECT_THAT(Refusal(With(used, "layer_types", {"full_attention", "sliding_attention"})), HasSubstr("'layer_types'"));
  EXPECT_EQ(Read(With(used, "layer_types", {"sliding_attention", "sliding_attention"})).sliding_window, 8);
  EXPECT_THAT(Refusal(With(used, "layer_types", {"sliding_attention"})), HasSubstr("num_hidden_layers"));
  EXPECT_THAT(Refusal(With(Of("mistral"), "sliding_window", 0)), HasSubstr("'sliding_window' is 0"));
}

TEST(ModelConfigTest, KeepsTheTokenIdsOfBothFiles) {
  const ModelConfig both = Read(With(Llama(), "eos_token_id", {3, 6}), R"({"eos_token_id":[3,290]})");
  EXPECT_THAT(both.generation_eos_token_ids, ElementsAre(3, 290));
  EXPECT_THAT(both.config_eos_token_ids, ElementsAre(3, 6));
  EXPECT_THAT(Read(Llama(), R"({"eos_token_id":null})").generation_eos_token_ids, IsEmpty());
  EXPECT_THAT(Read(With(Llama(), "eos_token_id", nullptr)).config_eos_token_ids, IsEmpty());
  EXPECT_THAT(Read(With(Llama(), "eos_token_id", -1)).config_eos_token_ids, IsEmpty());
  EXPECT_EQ(Read(With(Llama(), "bos_token_id", nullptr)).bos_token_id, -1);
  EXPECT_THAT(Refusal(With(Llama(), "eos_token_id", 320)), HasSubstr("config.json: 'eos_token_id' is 320"));
  EXPECT_THAT(Refusal(Llama(), R"({"eos_token_id":[2,320]})"),
              HasSubstr("generation_config.json: 'eos_token_id[1]' is 320"));
  EXPECT_THAT(Refusal(Llama(), "[]"), HasSubstr("generation_config.json"));
}

TEST(ModelConfigTest, RefusesWhatIsNoModelFolder) {
  const TempDir folder;
  const auto refusal = [](const std::string& path) -> std::string {
    try {
      ReadModelConfig(path);
      return "";
    } catch (const FileError& e) {
      return e.what();
    }
  };
  EXPECT_THAT(refusal(folder.path()), HasSubstr("config.json: cannot be opened"));
  EXPECT_THAT(refusal(folder.path() + "/none"), HasSubstr("no such folder"));
  EXPECT_THAT(refusal(folder.Write("config.json", "{")), HasSubstr("is a file"));
  EXPECT_THAT(refusal(folder.path()), HasSubstr("not valid JSON"));
  folder.Write("config.json", "[]");
  EXPECT_THAT(refusal(folder.path()), HasSubstr("expected an object"));
}

TEST(ModelConfigTest, DamagedConfigsNeverCrash) {
  const std::string content = base::ReadTextFile(SourceDir() + "/tests/golden/hf/qwen2_bias/config.json");
  const TempDir folder;
  std::mt19937 random(5);
  for (int i = 0; i < 300; ++i) {
    std::string damaged = content.substr(0, i % 4 == 0 ? random() % content.size() : content.size());
    for (int flips = 0; flips < 1 + i % 3 && !damaged.empty(); ++flips) {
      char& c = damaged[random() % damaged.size()];
      c = static_cast<char>(c ^ (1 << (random() % 8)));
    }
    folder.Write("config.json", damaged);
    try {
      ReadModelConfig(folder.path());
    } catch (const FileError&) {
    }
  }
}

TEST(InverseFrequenciesTest, Default) {
  const std::vector<float> frequencies = InverseFrequencies({}, 4);
  EXPECT_THAT(frequencies, ElementsAre(1.0F, 0.01F));
}

TEST(InverseFrequenciesTest, LinearDividesAll) {
  EXPECT_THAT(InverseFrequencies({.type = RopeType::kLinear, .factor = 4}, 4), ElementsAre(0.25F, 0.0025F));
}

// Wavelengths 6.3 .. 512 to 2048: below 64 kept, above 256 divided by 8, blended between.
TEST(InverseFrequenciesTest, Llama3HasThreeBands) {
  const RopeConfig rope = {.type = RopeType::kLlama3,
                           .theta = 500000,
                           .factor = 8,
                           .low_freq_factor = 1,
                           .high_freq_factor = 4,
                           .original_max_positions = 256};
  const std::vector<float> scaled = InverseFrequencies(rope, 16);
  const std::vector<float> plain = InverseFrequencies({.theta = 500000}, 16);
  ASSERT_EQ(scaled.size(), 8U);
  EXPECT_EQ(scaled[0], plain[0]);
  EXPECT_EQ(scaled[1], plain[1]);
  // 500000^(-2/8) = 0.0376060; wavelength 167.08; smooth = (256/167.08 - 1) / 3 = 0.177403; blended 0.010538233.
  EXPECT_NEAR(scaled[2], 0.010538233, 1e-8);
  for (size_t i = 3; i < 8; ++i) EXPECT_FLOAT_EQ(scaled[i], plain[i] / 8) << i;
}

TEST(ModelConfigTest, ReadsEveryReferenceFolder) {
  HYDRANT_NEED_SHARED();
  size_t folders = 0;
  for (const auto& entry : std::filesystem::directory_iterator(SharedDir() + "/golden/hf")) {
    if (!entry.is_directory()) continue;
    ++folders;
    const std::string path = entry.path().string();
    const Json expected = base::ReadJsonFile(path + "/case.json");
    std::string refusal;
    try {
      const ModelConfig config = ReadModelConfig(path);
      EXPECT_EQ(NameOf(config.family), expected.at("family").get<std::string>()) << path;
    } catch (const FileError& e) {
      refusal = e.what();
    }
    const bool bad_config = path.find("dynamic") != std::string::npos;
    EXPECT_EQ(!refusal.empty(), bad_config) << path << refusal;
    if (!bad_config) continue;
    for (const Json& word : expected.at("error_should_name")) EXPECT_THAT(refusal, HasSubstr(word.get<std::string>()));
  }
  EXPECT_EQ(folders, 24U);
}

}  // namespace
}  // namespace hydrant::model::model_config_test
