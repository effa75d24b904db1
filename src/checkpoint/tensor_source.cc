// SPDX-License-Identifier: Apache-2.0
#include "checkpoint/tensor_source.h"

#include <algorithm>
#include <array>
#include <filesystem>

#include "base/mapped_file.h"
#include "base/paths.h"
#include "base/placeholder.h"
#include "checkpoint/file_source.h"
#include "checkpoint/safetensors.h"
#include "checkpoint/torch_zip.h"
#include "hydrant/error.h"

namespace hydrant::checkpoint {
namespace {

namespace fs = std::filesystem;

constexpr std::array<const char*, 4> kModelFiles = {"model.safetensors", "model.safetensors.index.json",
                                                    "pytorch_model.bin", "pytorch_model.bin.index.json"};
constexpr std::array<const char*, 7> kHeadFiles = {
    "hydra_lm_head.pt",          "hydra_lm_head.safetensors", "medusa_lm_head.pt", "medusa_lm_head.safetensors",
    "adapter_model.safetensors", "adapter_model.bin",         "rank0.safetensors"};

void CheckFolder(const std::string& folder) {
  std::error_code ignored;
  if (fs::is_directory(folder, ignored)) return;
  if (fs::exists(folder, ignored)) {
    throw FileError(folder, "is a file, expected a folder", "name the folder that holds the file");
  }
  throw FileError(folder, "no such folder", base::MissingPathHint(folder));
}

bool Holds(const std::string& folder, const std::string& name) { return base::IsThere(fs::path(folder) / name); }

std::unique_ptr<TensorSource> OpenByName(const std::string& folder, const std::string& name) {
  const std::string path = (fs::path(folder) / name).string();
  return name.ends_with(".json") ? OpenShardedCheckpoint(path) : OpenTensorFile(path);
}

template <typename Names>
std::vector<std::string> ThereAre(const std::string& folder, const Names& names) {
  std::vector<std::string> found;
  for (const char* name : names) {
    if (Holds(folder, name)) found.emplace_back(name);
  }
  return found;
}

// "a, b or c".
template <typename Names>
std::string Listed(const Names& names) {
  std::string text;
  for (size_t i = 0; i < names.size(); ++i)
    text += (i == 0 ? "" : i + 1 == names.size() ? " or " : ", ") + std::string(names[i]);
  return text;
}

}  // namespace

const StoredTensor* TensorSource::Find(std::string_view name) const {
  const auto it = tensors_.find(name);
  return it == tensors_.end() ? nullptr : &it->second;
}

std::vector<std::string> TensorSource::Names() const {
  std::vector<std::string> names;
  names.reserve(tensors_.size());
  for (const auto& [name, tensor] : tensors_) names.push_back(name);
  return names;
}

std::unique_ptr<TensorSource> OpenTensorFile(const std::string& path) {
  const std::shared_ptr<const base::MappedFile> mapped = base::MappedFile::Open(path);
  const FileBytes file{path, mapped->bytes(), mapped};
  base::RefusePlaceholder({reinterpret_cast<const char*>(file.bytes.data()), std::min<size_t>(file.bytes.size(), 256)},
                          path);
  const std::string extension = fs::path(path).extension().string();
  if (extension == ".safetensors") return ReadSafetensors(file);
  if (extension == ".pt" || extension == ".bin" || extension == ".pth") return ReadTorchZip(file);
  throw FileError(path, "is not a weight file by its name, expected .safetensors, .pt or .bin");
}

std::vector<std::string> ModelFilesIn(const std::string& folder) { return ThereAre(folder, kModelFiles); }

std::vector<std::string> HeadFilesIn(const std::string& folder) {
  std::vector<std::string> files = ThereAre(folder, kHeadFiles);
  const std::vector<std::string> whole = ModelFilesIn(folder);
  files.insert(files.end(), whole.begin(), whole.end());
  return files;
}

std::unique_ptr<TensorSource> OpenModelFolder(const std::string& folder) {
  CheckFolder(folder);
  const std::vector<std::string> files = ModelFilesIn(folder);
  if (!files.empty()) return OpenByName(folder, files.front());
  throw FileError(folder, "holds no weights, expected " + Listed(kModelFiles));
}

std::unique_ptr<TensorSource> OpenHeadsFolder(const std::string& folder) {
  CheckFolder(folder);
  const std::vector<std::string> files = HeadFilesIn(folder);
  if (!files.empty()) return OpenByName(folder, files.front());
  throw FileError(folder, "holds no draft heads, expected " + Listed(kHeadFiles) + ", or a whole model with heads (" +
                              Listed(kModelFiles) + ")");
}

}  // namespace hydrant::checkpoint
