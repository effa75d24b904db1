// SPDX-License-Identifier: Apache-2.0
#include "checkpoint/safetensors_writer.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <bit>
#include <cerrno>
#include <cstdio>
#include <cstring>
#include <utility>

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

// A file that disappears unless Keep is called.
class SafetensorsWriter::TemporaryFile {
 public:
  explicit TemporaryFile(std::string path) : target_(std::move(path)), name_(target_ + ".XXXXXX") {
    const int fd = mkostemp(name_.data(), O_CLOEXEC);
    if (fd < 0) Fail("cannot be created");
    file_ = fdopen(fd, "wb");
    if (file_ == nullptr) {
      close(fd);
      unlink(name_.c_str());
      Fail("cannot be created");
    }
  }
  ~TemporaryFile() {
    if (file_ == nullptr) return;
    std::fclose(file_);
    unlink(name_.c_str());
  }
  TemporaryFile(const TemporaryFile&) = delete;
  TemporaryFile& operator=(const TemporaryFile&) = delete;

  void Write(const void* bytes, size_t size) {
    if (std::fwrite(bytes, 1, size, file_) != size) Fail("cannot be written");
  }

  void Keep() {
    const mode_t mask = umask(0);
    umask(mask);
    const mode_t usual_rights = 0666;  // mkostemp gives 0600
    if (std::fflush(file_) != 0 || fchmod(fileno(file_), usual_rights & ~mask) != 0) Fail("cannot be written");
    if (std::rename(name_.c_str(), target_.c_str()) != 0) Fail("cannot be replaced");
    std::fclose(std::exchange(file_, nullptr));
  }

 private:
  [[noreturn]] void Fail(const char* what) const {
    throw FileError(target_, std::string(what) + ": " + std::strerror(errno));
  }

  std::string target_;
  std::string name_;
  std::FILE* file_ = nullptr;
};

SafetensorsWriter::SafetensorsWriter(const std::string& path, std::span<const TensorEntry> entries,
                                     const Metadata& metadata, uint64_t alignment) {
  struct stat info {};
  if (stat(path.c_str(), &info) == 0 && !S_ISREG(info.st_mode)) throw FileError(path, "is not a regular file");
  const std::string header = Header(entries, metadata, alignment, &remaining_);
  file_ = std::make_unique<TemporaryFile>(path);
  file_->Write(header.data(), header.size());
}

SafetensorsWriter::~SafetensorsWriter() = default;

void SafetensorsWriter::Write(const void* bytes, size_t size) {
  HYDRANT_CHECK(size <= remaining_);
  remaining_ -= size;
  file_->Write(bytes, size);
}

void SafetensorsWriter::Finish() {
  HYDRANT_CHECK(remaining_ == 0);
  file_->Keep();
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
