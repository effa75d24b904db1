// SPDX-License-Identifier: Apache-2.0
// Named tensors from untrusted files: safetensors, PyTorch zip files, sharded or not.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "tensor/tensor.h"

namespace hydrant::checkpoint {

// A matrix that a converted folder holds in the packed layout of kernels/packed.h: what its metadata say of it
// (docs/formats.md). Its tensor holds the panels, [slices, panels, bytes of a panel].
struct PackedTensor {
  std::string format;          // "w8a8", ...
  std::vector<int64_t> shape;  // [O, I]
  int64_t slices = 1;          // the I inputs lie in so many matrices of I / slices each
  bool interleaved = false;    // panels as quads and octets, not as lines
  TensorView scales;           // f32 [slices, padded O]
  TensorView dictionary;       // u8 [256, 16]; empty where the file has none
};

struct StoredTensor {
  TensorView view;   // contiguous; points into the mapping, or into an owned copy where the file holds a strided view
  std::string file;  // path of the file that holds it, for errors
  // Equal for tensors that are the same bytes of the same storage (tied tensors in .pt, aliases named in safetensors
  // metadata).
  uint64_t storage_id = 0;
  std::shared_ptr<const PackedTensor> packed = {};  // null: the tensor is what it seems

  const std::vector<int64_t>& shape() const { return packed ? packed->shape : view.shape; }
  uint64_t bytes() const { return view.num_bytes() + (packed ? packed->scales.num_bytes() : 0); }
};

// All tensors of one checkpoint. Immutable after opening; views stay valid while any of them lives.
class TensorSource {
 public:
  virtual ~TensorSource() = default;
  TensorSource(const TensorSource&) = delete;
  TensorSource& operator=(const TensorSource&) = delete;

  const StoredTensor* Find(std::string_view name) const;  // null when absent
  std::vector<std::string> Names() const;                 // sorted
  const std::map<std::string, StoredTensor, std::less<>>& tensors() const { return tensors_; }
  // The file or index that the user would look at: "…/model.safetensors", "…/pytorch_model.bin.index.json".
  const std::string& display_name() const { return display_name_; }
  // Files that make up the checkpoint, and bytes that loading copied out of mappings (strided views).
  const std::vector<std::string>& files() const { return files_; }
  uint64_t bytes_copied() const { return bytes_copied_; }
  // `__metadata__` of a safetensors file; of a sharded checkpoint and of PyTorch files empty.
  const std::map<std::string, std::string, std::less<>>& metadata() const { return metadata_; }

 protected:
  TensorSource() = default;
  std::string display_name_;
  std::vector<std::string> files_;
  std::map<std::string, StoredTensor, std::less<>> tensors_;
  std::map<std::string, std::string, std::less<>> metadata_;
  uint64_t bytes_copied_ = 0;
};

// By extension and content: .safetensors, .pt, .bin (PyTorch zip). Throws FileError.
std::unique_ptr<TensorSource> OpenTensorFile(const std::string& path);
// A sharded checkpoint by its index JSON. Throws FileError for shards outside the folder, missing shards,
// tensors listed but absent, or present but listed elsewhere.
std::unique_ptr<TensorSource> OpenShardedCheckpoint(const std::string& index_path);

// The weights of a base model folder: model.safetensors, model.safetensors.index.json, pytorch_model.bin or
// pytorch_model.bin.index.json, the first that exists. Never globs. Throws FileError listing the names looked for.
std::unique_ptr<TensorSource> OpenModelFolder(const std::string& folder);

// The files in a folder that OpenModelFolder may open, by their names.
std::vector<std::string> ModelFilesIn(const std::string& folder);
// Those that OpenHeadsFolder may open, its first choice first.
std::vector<std::string> HeadFilesIn(const std::string& folder);

// The weights of a heads folder: hydra_lm_head.{pt,safetensors}, medusa_lm_head.{pt,safetensors},
// adapter_model.{safetensors,bin}, rank0.safetensors, else as OpenModelFolder (layout d, or a whole model with heads).
// Of several ranks it is the first, whose names are those of all: draft::OpenHeads joins them (rank_files.h).
std::unique_ptr<TensorSource> OpenHeadsFolder(const std::string& folder);

}  // namespace hydrant::checkpoint
