// SPDX-License-Identifier: Apache-2.0
#include <filesystem>
#include <map>
#include <set>
#include <utility>

#include "base/json.h"
#include "base/mapped_file.h"
#include "base/paths.h"
#include "checkpoint/file_source.h"
#include "checkpoint/tensor_source.h"
#include "hydrant/error.h"

namespace hydrant::checkpoint {
namespace {

constexpr size_t kMaxIndexBytes = size_t{64} << 20;
// Storage ids are unique within a shard; the shard's number goes above them.
constexpr int kShardIdShift = 40;

// A shard is a plain file name: an index must not reach out of its folder.
bool IsPlainFileName(const std::string& name) {
  return !name.empty() && name != "." && name != ".." && name.find_first_of("/\\") == std::string::npos &&
         name.find('\0') == std::string::npos;
}

// Tensor name -> shard file name.
std::map<std::string, std::string> ReadWeightMap(const std::string& index_path) {
  const base::Json json = base::ParseJson(base::ReadTextFile(index_path, kMaxIndexBytes), index_path);
  const base::JsonView map = base::JsonView(json, index_path).At("weight_map");
  if (!map.is_object()) map.Fail("an object that maps tensor names to file names");
  std::map<std::string, std::string> shard_of;
  for (const auto& [name, value] : map.raw().items()) {
    if (!value.is_string() || !IsPlainFileName(value.get_ref<const std::string&>())) {
      throw FileError(index_path, "tensor '" + Printable(name) + "' is said to be in " +
                                      Printable(base::DumpJson(value)) +
                                      ", expected the name of a file in this folder");
    }
    shard_of.emplace(name, value.get<std::string>());
  }
  if (shard_of.empty()) map.Fail("at least one tensor");
  return shard_of;
}

std::unique_ptr<TensorSource> OpenShard(const std::string& index_path, const std::string& shard) {
  const std::string path = (std::filesystem::path(index_path).parent_path() / shard).string();
  if (!base::IsThere(path)) {
    throw FileError(index_path, "names the shard '" + Printable(shard) + "', which is not in the folder",
                    "download the missing file");
  }
  return OpenTensorFile(path);
}

}  // namespace

std::unique_ptr<TensorSource> OpenShardedCheckpoint(const std::string& index_path) {
  const std::map<std::string, std::string> shard_of = ReadWeightMap(index_path);
  std::set<std::string> shards;
  for (const auto& [name, shard] : shard_of) shards.insert(shard);

  auto source = std::make_unique<FileSource>(index_path);
  source->AddFile(index_path);
  uint64_t shard_number = 0;
  for (const std::string& shard : shards) {
    const std::unique_ptr<TensorSource> opened = OpenShard(index_path, shard);
    ++shard_number;
    source->AddFile(opened->display_name());
    source->AddBytesCopied(opened->bytes_copied());
    // A tensor that the index does not list is taken all the same: names that a shard's metadata ties to a stored one
    // are not listed, and the tables refuse what does not belong to the model.
    for (const auto& [name, tensor] : opened->tensors()) {
      const auto listed = shard_of.find(name);
      if (listed != shard_of.end() && listed->second != shard) {
        throw FileError(opened->display_name(), "holds tensor '" + name + "', which " + index_path + " says is in '" +
                                                    Printable(listed->second) + "'");
      }
      StoredTensor stored = tensor;
      stored.storage_id |= shard_number << kShardIdShift;
      source->Add(name, std::move(stored));
    }
  }
  for (const auto& [name, shard] : shard_of) {
    if (source->Find(name) == nullptr) {
      throw FileError(index_path,
                      "says that '" + Printable(shard) + "' holds tensor '" + Printable(name) + "', but it does not");
    }
  }
  return source;
}

}  // namespace hydrant::checkpoint
