// SPDX-License-Identifier: Apache-2.0
// Names of zip fields after PKWARE's APPNOTE, as in zip_archive.cc. Opcodes are those of pickle protocol 2, and only
// ones that torch's reader for weights alone (torch.load, weights_only) takes.
#include "checkpoint/torch_zip_writer.h"

#include <algorithm>
#include <bit>
#include <cstring>
#include <filesystem>
#include <map>
#include <string_view>
#include <vector>

#include "base/atomic_file.h"
#include "base/check.h"
#include "checkpoint/crc32.h"

namespace hydrant::checkpoint {
namespace {

static_assert(std::endian::native == std::endian::little, "zip fields and storages are little-endian");

constexpr uint64_t kStorageAlignment = 64;  // torch's own: its readers may map storages
constexpr size_t kPart = size_t{8} << 20;   // written at once

std::string Le(uint64_t value, size_t bytes) {
  std::string text(bytes, '\0');
  std::memcpy(text.data(), &value, bytes);
  return text;
}

// --- The pickle ---

const char* StorageClass(DType dtype) {
  switch (dtype) {
    case DType::kF32: return "FloatStorage";
    case DType::kF16: return "HalfStorage";
    case DType::kBF16: return "BFloat16Storage";
    case DType::kI64: return "LongStorage";
    case DType::kI32: return "IntStorage";
    case DType::kU8: return "ByteStorage";
    case DType::kBool: return "BoolStorage";
  }
  return nullptr;
}

std::string Text(std::string_view text) { return "X" + Le(text.size(), 4) + std::string(text); }  // BINUNICODE

// BININT1, BININT2, BININT (signed), LONG1.
std::string Number(int64_t value) {
  HYDRANT_CHECK(value >= 0);
  const auto bits = static_cast<uint64_t>(value);
  if (value < 1 << 8) return "K" + Le(bits, 1);
  if (value < 1 << 16) return "M" + Le(bits, 2);
  if (value <= INT32_MAX) return "J" + Le(bits, 4);
  return "\x8a\x08" + Le(bits, 8);
}

std::string Tuple(const std::vector<int64_t>& values) {
  std::string text = "(";
  for (const int64_t value : values) text += Number(value);
  return text + "t";
}

std::string Global(std::string_view module, std::string_view name) {
  return "c" + std::string(module) + "\n" + std::string(name) + "\n";
}

std::vector<int64_t> StridesOf(const std::vector<int64_t>& shape) {
  std::vector<int64_t> strides(shape.size(), 1);
  for (size_t i = shape.size(); i-- > 1;) strides[i - 1] = strides[i] * shape[i];
  return strides;
}

// _rebuild_tensor_v2(storage, offset 0, shape, strides, requires_grad False, OrderedDict())
std::string Tensor(const TensorView& view, size_t key) {
  return Global("torch._utils", "_rebuild_tensor_v2") + "((" + Text("storage") +
         Global("torch", StorageClass(view.dtype)) + Text(std::to_string(key)) + Text("cpu") +
         Number(view.num_elements()) + "tQ" + Number(0) + Tuple(view.shape) + Tuple(StridesOf(view.shape)) + "\x89" +
         Global("collections", "OrderedDict") + ")RtR";
}

// Which views are stored, and where each tensor's is among them.
struct WrittenStorages {
  std::vector<const TensorView*> stored;
  std::vector<size_t> of_tensor;

  explicit WrittenStorages(std::span<const TorchTensor> tensors) {
    std::map<std::pair<const uint8_t*, std::pair<DType, std::vector<int64_t>>>, size_t> known;
    for (const TorchTensor& tensor : tensors) {
      const TensorView& view = tensor.view;
      const auto [at, is_new] = known.try_emplace({view.data, {view.dtype, view.shape}}, stored.size());
      if (is_new) stored.push_back(&view);
      of_tensor.push_back(at->second);
    }
  }
};

std::string StateDict(std::span<const TorchTensor> tensors, const WrittenStorages& storages) {
  std::string pickle = "\x80\x02" + Global("collections", "OrderedDict") + ")R(";
  for (size_t i = 0; i < tensors.size(); ++i) {
    pickle += Text(tensors[i].name) + Tensor(tensors[i].view, storages.of_tensor[i]);
  }
  return pickle + "u.";
}

// --- The archive ---

class ZipWriter {
 public:
  ZipWriter(const std::string& path, const TorchZipOptions& options) : file_(path), options_(options) {}

  void Add(const std::string& name, std::string_view content) {
    const uint32_t crc = Checksum(content);
    const bool is_large = content.size() >= options_.zip64_from, is_far = offset_ >= options_.zip64_from;
    const auto in32 = [](uint64_t value, bool in64) { return Le(in64 ? 0xFFFFFFFF : value, 4); };
    // Version 45 reads zip64; no flags, stored, and the first day that a zip file can name (1 January 1980).
    const std::string common = Le(is_large || is_far ? 45 : 20, 2) + Le(0, 2) + Le(0, 2) + Le(0, 2) + Le(0x21, 2) +
                               Le(crc, 4) + in32(content.size(), is_large) + in32(content.size(), is_large) +
                               Le(name.size(), 2);
    const std::string sizes = is_large ? Le(content.size(), 8) + Le(content.size(), 8) : "";
    const std::string places = sizes + (is_far ? Le(offset_, 8) : "");
    const std::string extra = places.empty() ? "" : Le(1, 2) + Le(places.size(), 2) + places;
    directory_ += "PK\x01\x02" + Le(45, 2) + common + Le(extra.size(), 2) + Le(0, 2) + Le(0, 2) + Le(0, 2) + Le(0, 4) +
                  in32(offset_, is_far) + name + extra;
    ++entries_;
    const std::string local = sizes.empty() ? "" : Le(1, 2) + Le(sizes.size(), 2) + sizes;
    const std::string padding = Padding(30 + name.size() + local.size());
    Write("PK\x03\x04" + common + Le(local.size() + padding.size(), 2) + name + local + padding);
    Write(content);
  }

  void Finish() {
    const uint64_t begin = offset_, size = directory_.size();
    Write(directory_);
    const bool in64 = begin >= options_.zip64_from || size >= options_.zip64_from || entries_ >= 0xFFFF;
    if (in64) {
      const uint64_t record = offset_;
      Write("PK\x06\x06" + Le(44, 8) + Le(45, 2) + Le(45, 2) + Le(0, 4) + Le(0, 4) + Le(entries_, 8) + Le(entries_, 8) +
            Le(size, 8) + Le(begin, 8));
      Write("PK\x06\x07" + Le(0, 4) + Le(record, 8) + Le(1, 4));
    }
    const std::string count = Le(in64 ? 0xFFFF : entries_, 2);
    Write("PK\x05\x06" + Le(0, 2) + Le(0, 2) + count + count + Le(in64 ? 0xFFFFFFFF : size, 4) +
          Le(in64 ? 0xFFFFFFFF : begin, 4) + Le(0, 2));
    file_.Keep();
  }

 private:
  void Look() const {
    if (options_.look) options_.look();
  }
  // Before the data, since the local header has it: each storage is read twice.
  uint32_t Checksum(std::string_view content) const {
    Look();
    return Crc32(content);
  }
  // An extra field that brings the data to a multiple of the alignment, with the id that torch gives it.
  std::string Padding(uint64_t header_bytes) const {
    constexpr uint64_t kFieldBytes = 4;
    const uint64_t data = offset_ + header_bytes + kFieldBytes;
    const uint64_t missing = (kStorageAlignment - data % kStorageAlignment) % kStorageAlignment;
    return "FB" + Le(missing, 2) + std::string(missing, 'Z');
  }
  void Write(std::string_view bytes) {
    for (size_t at = 0; at < bytes.size(); at += kPart) {
      Look();
      const std::string_view part = bytes.substr(at, kPart);
      file_.Write(part.data(), part.size());
    }
    offset_ += bytes.size();
  }

  base::AtomicFile file_;
  const TorchZipOptions& options_;
  std::string directory_;
  uint64_t offset_ = 0, entries_ = 0;
};

std::string_view BytesOf(const TensorView& view) {
  return {reinterpret_cast<const char*>(view.data), view.num_bytes()};
}

}  // namespace

void WriteTorchZip(const std::string& path, std::span<const TorchTensor> tensors, const TorchZipOptions& options) {
  const WrittenStorages storages(tensors);
  const std::string folder = std::filesystem::path(path).stem().string() + "/";
  ZipWriter zip(path, options);
  zip.Add(folder + "data.pkl", StateDict(tensors, storages));
  zip.Add(folder + "byteorder", "little");
  for (size_t key = 0; key < storages.stored.size(); ++key) {
    zip.Add(folder + "data/" + std::to_string(key), BytesOf(*storages.stored[key]));
  }
  zip.Add(folder + "version", "3\n");
  zip.Finish();
}

}  // namespace hydrant::checkpoint
