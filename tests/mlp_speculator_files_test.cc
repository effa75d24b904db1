// SPDX-License-Identifier: Apache-2.0
// MLP speculators from files: both spellings, tied and untied; what is wrong with them is said by name.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <functional>
#include <iterator>
#include <random>

#include "load/loaded_model.h"
#include "tests/head_folders.h"
#include "tests/lossless_util.h"

namespace hydrant::test::mlp_speculator_files_test {
namespace {

using testing::HasSubstr;

// The drafted tokens of every tree of a text.
std::vector<int32_t> DraftsOf(const EngineOptions& options) {
  Engine engine(options);
  GenerationRequest request;
  request.prompt_ids = Prompt();
  request.stop = {.max_tokens = 40, .ignore_eos = true, .stop = {}};
  request.tree = "[[0],[1],[0,0],[0,1],[0,0,0]]";
  std::vector<int32_t> tokens;
  engine.Generate(request, [&tokens](const Emission& emission) {
    if (emission.step == nullptr) return true;
    tokens.insert(tokens.end(), emission.step->tokens.begin() + 1, emission.step->tokens.end());
    return true;
  });
  return tokens;
}

void ExpectRefused(bool is_tied, const std::string& part, const std::function<void(MlpSpeculatorFolder&)>& spoil) {
  MlpSpeculatorFolder folder(is_tied);
  spoil(folder);
  const TempDir dir;
  try {
    load::LoadModel(OptionsOf(folder.Write(dir)));
    FAIL() << "loaded, expected: " << part;
  } catch (const FileError& error) {
    const std::string text = error.what() + std::string(" ") + error.hint();
    EXPECT_THAT(text, HasSubstr(part));
    EXPECT_THAT(text, HasSubstr(dir.path()));
  }
}

TEST(MlpSpeculatorFiles, WhatIsWrongIsNamed) {
  const auto refused = [](const std::string& part, const std::function<void(MlpSpeculatorFolder&)>& spoil) {
    ExpectRefused(/*is_tied=*/false, part, spoil);
  };
  const auto config = [&refused](const std::string& part, const char* key, const base::Json& value) {
    refused(part, [&](MlpSpeculatorFolder& f) { f.config[key] = value; });
  };
  refused("'speculator.emb.1.weight' is [511, 48], expected [512, 48] (vocab_size of ", [](MlpSpeculatorFolder& f) {
    f.Add("emb.1.weight", {511, 48});
  });
  refused("'speculator.proj.0.weight' is [48, 48], expected [48, 64] (hidden_size of ", [](MlpSpeculatorFolder& f) {
    f.Add("proj.0.weight", {48, 48});
  });
  refused("'speculator.proj.1.weight' is [48, 64], expected [48, 48] (inner_dim of ", [](MlpSpeculatorFolder& f) {
    f.Add("proj.1.weight", {48, 64});
  });
  refused("'speculator.head.2.weight' is [48, 512], expected [512, 48] (vocab_size of ", [](MlpSpeculatorFolder& f) {
    f.Add("head.2.weight", {48, 512});
  });
  refused("'speculator.ln.2.weight' is [47], expected [48] (inner_dim of ",
          [](MlpSpeculatorFolder& f) { f.Add("ln.2.weight", {47}); });
  refused("'speculator.ln.0.bias' is [48, 1], expected [48] (inner_dim of ", [](MlpSpeculatorFolder& f) {
    f.Add("ln.0.bias", {48, 1});
  });
  for (const char* name : {"emb.0.weight", "proj.2.weight", "head.1.weight", "ln.1.weight", "ln.2.bias"}) {
    refused("'speculator." + std::string(name) + "' is missing",
            [&](MlpSpeculatorFolder& f) { f.tensors.erase(name); });
  }
  refused("tensor 'speculator.forget_emb.0.weight' [3] is not expected",
          [](MlpSpeculatorFolder& f) { f.Add("forget_emb.0.weight", {3}); });
  refused("'speculator.proj.0.bias' [48] is not expected", [](MlpSpeculatorFolder& f) { f.Add("proj.0.bias", {48}); });
  refused("'speculator.proj.0.weight' is missing", [](MlpSpeculatorFolder& f) {
    f.tensors.clear();  // known by the config alone
    f.Add("proj.2.weight", {48, 48});
  });
  config("'emb_dim' is 32, expected the base's hidden_size 64", "emb_dim", 32);
  config("'vocab_size' is 500, expected the base's vocab_size 512", "vocab_size", 500);
  config("is [48, 64], expected [40, 64] (inner_dim of ", "inner_dim", 40);
  config("is [48, 64], expected [64, 64] (inner_dim of ", "inner_dim", 0);
  config("'inner_dim' is -1", "inner_dim", -1);
  config("'n_predict' is 2, expected 3, the stages that ", "n_predict", 2);
  config("stages that share their weights need \"tie_weights\": true", "n_predict", 4);
  config("'n_predict' is 0", "n_predict", 0);
  config("'n_predict' is 65", "n_predict", 65);
  config("'n_predict'", "n_predict", nullptr);
  config("'scale_input' is 3, expected", "scale_input", 3);
  config("differs from 'speculator.emb.0.weight', expected the same numbers", "tie_weights", true);
}

TEST(MlpSpeculatorFiles, WhatIsWrongWithTiedStagesIsNamed) {
  const auto refused = [](const std::string& part, const std::function<void(MlpSpeculatorFolder&)>& spoil) {
    ExpectRefused(/*is_tied=*/true, part, spoil);
  };
  for (const char* name : {"emb.2.weight", "proj.2.weight", "head.1.weight", "ln.1.weight", "ln.2.bias"}) {
    refused("'speculator." + std::string(name) + "' differs from",
            [&](MlpSpeculatorFolder& f) { f.tensors.at(name).values.back() += 1; });
  }
  refused("'speculator.proj.1.weight' is missing", [](MlpSpeculatorFolder& f) {
    f.DropRepeats();
    f.tensors.erase("proj.1.weight");
  });
  refused("'speculator.head.0.weight' is missing", [](MlpSpeculatorFolder& f) {
    f.DropRepeats();
    f.tensors.erase("head.0.weight");
  });
  refused("'n_predict' is 2, expected 3", [](MlpSpeculatorFolder& f) { f.config["n_predict"] = 2; });
  refused("a single stage has nothing to be tied to", [](MlpSpeculatorFolder& f) {
    f.DropRepeats();
    f.config["n_predict"] = 1;
  });
  refused("need \"tie_weights\": true", [](MlpSpeculatorFolder& f) {
    f.DropRepeats();
    f.config["tie_weights"] = false;
  });
}

TEST(MlpSpeculatorFiles, WithoutAConfigTheFileIsNamed) {
  const TempDir dir;
  MlpSpeculatorFolder().Write(dir);
  std::filesystem::remove(dir.path() + "/config.json");
  try {
    load::LoadModel(OptionsOf(dir.path()));
    FAIL();
  } catch (const FileError& error) {
    EXPECT_THAT(error.what(), HasSubstr("holds an MLP speculator, but there is no config.json"));
  }
}

TEST(MlpSpeculatorFiles, ACutFileIsNamed) {
  for (const uintmax_t size : {0, 5, 100, 5000}) {
    const TempDir dir;
    MlpSpeculatorFolder().Write(dir);
    std::filesystem::resize_file(dir.path() + "/model.safetensors", size);
    try {
      load::LoadModel(OptionsOf(dir.path()));
      FAIL() << size;
    } catch (const FileError& error) {
      EXPECT_THAT(error.what(), HasSubstr("model.safetensors")) << size;
    }
  }
}

// Bytes of config and header that are others: either it loads, or a typed error says what is wrong.
TEST(MlpSpeculatorFiles, DamagedFilesLoadOrAreRefused) {
  std::mt19937 random(3);
  int refused = 0;
  for (int round = 0; round < 300; ++round) {
    const TempDir dir;
    MlpSpeculatorFolder(round % 2 == 0, 2, 4).Write(dir);
    const std::string path = dir.path() + (round % 3 == 0 ? "/config.json" : "/model.safetensors");
    std::ifstream in(path, std::ios::binary);
    std::string bytes{std::istreambuf_iterator<char>(in), std::istreambuf_iterator<char>()};
    constexpr size_t kHeader = 900;
    const auto is_digit = [](char c) { return c >= '0' && c <= '9'; };
    for (int i = 0; i < 1 + round % 4; ++i) {
      size_t place = random() % std::min(bytes.size(), kHeader);
      if (i % 2 == 1) {
        bytes[place] = static_cast<char>(random() % 256);
        continue;
      }
      while (!is_digit(bytes[place])) place = random() % std::min(bytes.size(), kHeader);
      bytes[place] = static_cast<char>('0' + random() % 10);  // another size
    }
    std::ofstream(path, std::ios::binary) << bytes;
    try {
      load::LoadModel(OptionsOf(dir.path()));
    } catch (const UserError&) {
      ++refused;
    }
  }
  EXPECT_GT(refused, 100);
}

// One speculator as every tool writes it.
TEST(MlpSpeculatorFiles, EverySpellingDraftsTheSame) {
  const TempDir dir;
  const std::vector<int32_t> expected = DraftsOf(OptionsOf(MlpSpeculatorFolder(/*is_tied=*/true).Write(dir)));
  EXPECT_GT(expected.size(), 100U);
  for (const char* prefix : {"speculator.", ""}) {
    for (const bool drops : {false, true}) {
      for (const char* key : {"model_type", "architectures", ""}) {
        SCOPED_TRACE(std::string(prefix) + key + (drops ? " once" : " all names"));
        MlpSpeculatorFolder folder(/*is_tied=*/true);
        folder.prefix = prefix;
        folder.config.erase(key);
        if (drops) folder.DropRepeats();
        const TempDir own;
        EXPECT_EQ(DraftsOf(OptionsOf(folder.Write(own))), expected);
      }
    }
  }
  MlpSpeculatorFolder untied(/*is_tied=*/true);
  untied.config.erase("scale_input");  // older files have neither of these keys
  untied.config.erase("tie_weights");
  const TempDir own;
  EXPECT_EQ(DraftsOf(OptionsOf(untied.Write(own))), expected);
}

TEST(MlpSpeculatorFiles, AnInnerSizeOfZeroIsTheHiddenSize) {
  MlpSpeculatorFolder folder(false, 3, 64);
  const TempDir dir, other;
  const std::vector<int32_t> expected = DraftsOf(OptionsOf(folder.Write(dir)));
  folder.config["inner_dim"] = 0;
  EXPECT_EQ(DraftsOf(OptionsOf(folder.Write(other))), expected);
}

// Tied stages are kept once, and only single rows of the tables are read.
TEST(MlpSpeculatorFiles, BytesAreThoseOfDistinctTensors) {
  constexpr uint64_t kTable = 512 * 48, kFirst = 48 * 64, kNext = 48 * 48, kNorms = 2 * 48;
  for (const bool is_tied : {false, true}) {
    const TempDir dir;
    const auto loaded = load::LoadModel(OptionsOf(MlpSpeculatorFolder(is_tied, 4).Write(dir)));
    const uint64_t stages = is_tied ? 1 : 4, nexts = is_tied ? 1 : 3;
    EXPECT_EQ(loaded->drafter->weight_bytes(), 4 * (stages * (2 * kTable + kNorms) + kFirst + nexts * kNext));
    EXPECT_EQ(loaded->drafter->table_bytes(), 4 * stages * kTable);
    EXPECT_EQ(loaded->drafter->bytes_read(), 0U);
    Matrix logits;
    const std::vector<float> hidden(64, 0.5F);
    const auto state = loaded->drafter->NewState({});
    kv::BlockPool pool({.layers = loaded->kv_shape.layers, .dtype = DType::kF32}, 2);
    kv::BlockTable table(&pool);
    ASSERT_TRUE(table.Reserve(1));
    table.Append(1);
    const kernels::ConstRows rows[] = {{hidden.data(), 1, 64, 64}};
    const std::vector<int32_t> token = {5};
    const draft::CommitInput commit{.state = state.get(), .kv = {.table = &table}, .tokens = token, .hidden = rows};
    loaded->drafter->Commit(std::span(&commit, 1));
    const std::vector<int32_t> path = {5, 1, 2, 3};
    draft::AlongInput along{.state = state.get(), .kv = {.table = &table}, .tokens = path, .logits = &logits};
    loaded->drafter->LogitsAlong(std::span(&along, 1));
    EXPECT_EQ(logits.rows(), 4);
    EXPECT_EQ(loaded->drafter->bytes_read(), 4 * (kFirst + 3 * kNext + 4 * kTable));
  }
}

// A smaller vocabulary cuts the lm heads, not the tables: any token may be the one before.
TEST(MlpSpeculatorFiles, DraftVocabulariesCutTheLmHeads) {
  for (const bool is_tied : {false, true}) {
    const TempDir dir;
    EngineOptions options = OptionsOf(MlpSpeculatorFolder(is_tied, 4).Write(dir));
    std::string list;
    for (int t = 100; t < 300; ++t) list += (list.empty() ? "[" : ",") + std::to_string(t);
    options.draft_vocab = dir.Write("tokens.json", list + "]");
    const auto loaded = load::LoadModel(options);
    EXPECT_EQ(loaded->info.num_draft_vocab, 200);
    EXPECT_EQ(loaded->drafter->table_bytes(), 4U * 512 * 48 * (is_tied ? 1 : 4));
    const std::vector<int32_t> drafts = DraftsOf(options);
    EXPECT_FALSE(drafts.empty());
    for (const int32_t token : drafts) EXPECT_TRUE(token >= 100 && token < 300) << token;
  }
}

}  // namespace
}  // namespace hydrant::test::mlp_speculator_files_test
