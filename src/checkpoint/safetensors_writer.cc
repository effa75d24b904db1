// SPDX-License-Identifier: Apache-2.0
#include "checkpoint/safetensors_writer.h"

#include <bit>
#include <cstring>

#include "base/check.h"
#include "base/json.h"
#include "hydrant/error.h"

namespace hydrant::checkpoint {
namespace {

using Metadata = std::map<std::string, std::string, std::less<>>;

static_assert(std::endian::native == std::endian::little, "safetensors are little-endian");

int64_t RowsOf(const FloatTensor& tensor) {
  HYDRANT_CHECK(!tensor.shape.empty());
  int64_t rows = 1;
  for (size_t i = 0; i + 1 < tensor.shape.size(); ++i) rows *= tensor.shape[i];
  return rows;
}

size_t RowBytes(const FloatTensor& tensor) { return static_cast<size_t>(tensor.shape.back()) * sizeof(float); }

std::string Spelling(DType dtype) {
  std::string name = NameOf(dtype);
  for (char& c : name) c = static_cast<char>(c >= 'a' && c <= 'z' ? c - 'a' + 'A' : c);
  return name;
}

// The length, then JSON padded with spaces so that the data are aligned. `data_bytes`: of all tensors.
std::string Header(std::span<const TensorEntry> entries, const Metadata& metadata, uint64_t alignment,
                   uint64_t* data_bytes) {
  base::Json header = base::Json::object();
  header["__metadata__"] = metadata;
  uint64_t offset = 0;
  for (const TensorEntry& entry : entries) {
    uint64_t end = SizeOf(entry.dtype);
    for (const int64_t extent : entry.shape) end *= static_cast<uint64_t>(extent);
    end += offset;
    HYDRANT_CHECK(!header.contains(entry.name));
    header[entry.name] = {{"dtype", Spelling(entry.dtype)}, {"shape", entry.shape}, {"data_offsets", {offset, end}}};
    offset = end;
  }
  *data_bytes = offset;
  std::string json = base::DumpJson(header);
  uint64_t length = 0;
  json.append((alignment - (json.size() + sizeof(length)) % alignment) % alignment, ' ');
  length = json.size();
  std::string bytes(sizeof(length), '\0');
  std::memcpy(bytes.data(), &length, sizeof(length));
  return bytes + json;
}

}  // namespace

SafetensorsWriter::SafetensorsWriter(const std::string& path, std::span<const TensorEntry> entries,
                                     const Metadata& metadata, uint64_t alignment)
    : file_(path) {
  const std::string header = Header(entries, metadata, alignment, &remaining_);
  file_.Write(header.data(), header.size());
}

void SafetensorsWriter::Write(const void* bytes, size_t size) {
  HYDRANT_CHECK(size <= remaining_);
  remaining_ -= size;
  file_.Write(bytes, size);
}

void SafetensorsWriter::Finish() {
  HYDRANT_CHECK(remaining_ == 0);
  file_.Keep();
}

void WriteSafetensors(const std::string& path, std::span<const FloatTensor> tensors) {
  std::vector<TensorEntry> entries;
  for (const FloatTensor& tensor : tensors) entries.push_back({tensor.name, DType::kF32, tensor.shape});
  SafetensorsWriter writer(path, entries, {{"format", "pt"}});
  for (const FloatTensor& tensor : tensors) {
    const int64_t rows = RowsOf(tensor);
    for (int64_t r = 0; r < rows; ++r) writer.Write(tensor.data + r * tensor.row_stride, RowBytes(tensor));
  }
  writer.Finish();
}

}  // namespace hydrant::checkpoint
