// SPDX-License-Identifier: Apache-2.0
#include "checkpoint/tensor_source.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <random>
#include <set>

#include "base/mapped_file.h"
#include "checkpoint/safetensors.h"
#include "checkpoint/test_archives.h"
#include "checkpoint/torch_zip.h"
#include "hydrant/error.h"
#include "tests/test_data.h"

namespace hydrant::checkpoint::tensor_source_test {
namespace {

using hydrant::test::SharedDir;
using hydrant::test::SourceDir;
using hydrant::test::TempDir;
using ::testing::ElementsAre;
using ::testing::HasSubstr;

std::string Refusal(const std::function<void()>& action) {
  try {
    action();
    return "";
  } catch (const FileError& e) {
    return e.what();
  }
}

std::string Committed(const std::string& name) { return SourceDir() + "/tests/golden/" + name; }
std::string Shared(const std::string& name) { return SharedDir() + "/golden/" + name; }

size_t DistinctStorages(const TensorSource& source) {
  std::set<uint64_t> ids;
  for (const auto& [name, tensor] : source.tensors()) ids.insert(tensor.storage_id);
  return ids.size();
}

TEST(TensorSourceTest, FoldersAreSearchedForFixedNames) {
  const TempDir folder;
  EXPECT_THAT(
      Refusal([&] { OpenModelFolder(folder.path()); }),
      HasSubstr("model.safetensors, model.safetensors.index.json, pytorch_model.bin or pytorch_model.bin.index.json"));
  EXPECT_THAT(Refusal([&] { OpenHeadsFolder(folder.path()); }), HasSubstr("hydra_lm_head.pt"));
  folder.Write("weights.safetensors", test_archives::Safetensors("{}", ""));
  EXPECT_NE(Refusal([&] { OpenModelFolder(folder.path()); }), "");
  folder.Write("model.safetensors", test_archives::Safetensors("{}", ""));
  EXPECT_EQ(OpenModelFolder(folder.path())->display_name(), folder.path() + "/model.safetensors");
  EXPECT_EQ(OpenHeadsFolder(folder.path())->display_name(), folder.path() + "/model.safetensors");
  folder.Write("medusa_lm_head.safetensors", test_archives::Safetensors("{}", ""));
  EXPECT_EQ(OpenHeadsFolder(folder.path())->display_name(), folder.path() + "/medusa_lm_head.safetensors");
}

TEST(TensorSourceTest, PathsOfTheWrongKindAreRefused) {
  const TempDir folder;
  const std::string file = folder.Write("model.safetensors", test_archives::Safetensors("{}", ""));
  EXPECT_THAT(Refusal([&] { OpenModelFolder(file); }), HasSubstr("is a file, expected a folder"));
  EXPECT_THAT(Refusal([&] { OpenModelFolder(folder.path() + "/none"); }), HasSubstr("no such folder"));
  EXPECT_THAT(Refusal([&] { OpenTensorFile(folder.path() + "/none.pt"); }), HasSubstr("none.pt: cannot be opened"));
  std::filesystem::create_directory(folder.path() + "/dir.bin");
  EXPECT_THAT(Refusal([&] { OpenTensorFile(folder.path() + "/dir.bin"); }), HasSubstr("is a folder"));
  EXPECT_THAT(Refusal([&] { OpenTensorFile(folder.Write("w.gguf", "GGUF")); }),
              HasSubstr("w.gguf: is not a weight file"));
  EXPECT_NE(Refusal([&] { OpenTensorFile(folder.Write("empty.safetensors", "")); }), "");
  EXPECT_NE(Refusal([&] { OpenTensorFile(folder.Write("empty.bin", "")); }), "");
}

TEST(TensorSourceTest, ViewsOutliveTheSource) {
  TensorView view;
  {
    const auto source = OpenModelFolder(Committed("base_mha"));
    view = source->Find("model.norm.weight")->view;
  }
  EXPECT_EQ(ToFloats(view).size(), 64U);
}

TEST(TensorSourceTest, ReadsTheCommittedHydraHeads) {
  const auto source = OpenHeadsFolder(Committed("hydra/prefix_mlp_k2_l1"));
  ASSERT_NE(source->Find("hydra_mlp.1.1.linear.weight"), nullptr);
  EXPECT_THAT(source->Find("hydra_mlp.1.1.linear.weight")->view.shape, ElementsAre(64, 192));
  EXPECT_THAT(source->Find("prefix_embeding_layer.norm.weight")->view.shape, ElementsAre(64));
  EXPECT_EQ(source->bytes_copied(), 0U);
}

TEST(TensorSourceTest, StridedViewsOfARealFileAreCopied) {
  const auto source = OpenModelFolder(Committed("hf/llama_bin"));
  EXPECT_GT(source->bytes_copied(), 0U);
  EXPECT_EQ(source->Find("lm_head.weight")->storage_id, source->Find("model.embed_tokens.weight")->storage_id);
  EXPECT_THAT(source->Find("model.layers.0.self_attn.k_proj.weight")->view.shape, ElementsAre(32, 64));
}

TEST(TensorSourceTest, ReadsEveryReferenceHeadsFolder) {
  HYDRANT_NEED_SHARED();
  size_t folders = 0;
  for (const char* kind : {"hydra", "medusa"}) {
    for (const auto& entry : std::filesystem::directory_iterator(Shared(kind))) {
      if (!entry.is_directory()) continue;
      EXPECT_FALSE(OpenHeadsFolder(entry.path().string())->tensors().empty()) << entry.path();
      ++folders;
    }
  }
  EXPECT_GE(folders, 22U);
}

// Tied blocks (docs/formats.md): 61 names, 45 storages, in both containers.
TEST(TensorSourceTest, TiedTensorsAreKnownInBothContainers) {
  HYDRANT_NEED_SHARED();
  const auto zip = OpenHeadsFolder(Shared("hydra/hydra_pp_k4_l4"));
  const auto safetensors = OpenHeadsFolder(Shared("hydra/hydra_pp_safetensors"));
  EXPECT_EQ(zip->tensors().size(), 61U);
  EXPECT_EQ(DistinctStorages(*zip), 45U);
  EXPECT_EQ(zip->Names(), safetensors->Names());
  EXPECT_EQ(DistinctStorages(*safetensors), 45U);
  for (const auto& [name, tensor] : zip->tensors()) {
    EXPECT_EQ(ToFloats(tensor.view), ToFloats(safetensors->Find(name)->view)) << name;
  }
}

TEST(TensorSourceTest, RefusesTheFormatBeforeTorch16ByName) {
  HYDRANT_NEED_SHARED();
  const std::string refusal = Refusal([] { OpenModelFolder(Shared("hf/llama_bin_legacy")); });
  EXPECT_THAT(refusal, HasSubstr("pytorch_model.bin"));
  EXPECT_THAT(refusal, HasSubstr("zip"));
}

std::unique_ptr<TensorSource> ReadBytes(const std::string& name, const std::string& content) {
  return name.ends_with(".safetensors") ? ReadSafetensors(test_archives::InMemory(name, content))
                                        : ReadTorchZip(test_archives::InMemory(name, content));
}

// Real files: near their structures every truncation and flip, elsewhere a sample.
TEST(TensorSourceTest, DamagedRealFilesAreRefusedOrRead) {
  for (const char* name : {"medusa/c_v2_k4_l1/medusa_lm_head.safetensors", "hf/llama_bin/pytorch_model.bin"}) {
    const std::string content = base::ReadTextFile(Committed(name));
    ASSERT_EQ(Refusal([&] { ReadBytes(name, content); }), "");
    std::mt19937 random(3);
    for (size_t step = 1, length = 0; length < content.size(); length += step) {
      step = length < 3000 || content.size() - length < 3000 ? 1 : 997;
      const std::string truncated = content.substr(0, length);
      EXPECT_NE(Refusal([&] { ReadBytes(name, truncated); }), "") << name << " " << length;
    }
    for (int i = 0; i < 3000; ++i) {
      std::string damaged = content;
      const size_t near = i % 2 == 0 ? 6000 : content.size();
      const size_t at = i % 3 == 0 ? content.size() - 1 - random() % near : random() % near;
      damaged[at] = static_cast<char>(damaged[at] ^ (1 << (random() % 8)));
      Refusal([&] { ReadBytes(name, damaged); });
    }
  }
}

}  // namespace
}  // namespace hydrant::checkpoint::tensor_source_test
