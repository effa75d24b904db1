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

static_assert(std::endian::native == std::endian::little, "safetensors are little-endian");

int64_t RowsOf(const FloatTensor& tensor) {
  HYDRANT_CHECK(!tensor.shape.empty());
  int64_t rows = 1;
  for (size_t i = 0; i + 1 < tensor.shape.size(); ++i) rows *= tensor.shape[i];
  return rows;
}

size_t RowBytes(const FloatTensor& tensor) { return static_cast<size_t>(tensor.shape.back()) * sizeof(float); }

// The length, then JSON padded with spaces to a multiple of 8, so that the tensors are aligned.
std::string Header(std::span<const FloatTensor> tensors) {
  base::Json header = base::Json::object();
  header["__metadata__"] = {{"format", "pt"}};
  uint64_t offset = 0;
  for (const FloatTensor& tensor : tensors) {
    const uint64_t end = offset + static_cast<uint64_t>(RowsOf(tensor)) * RowBytes(tensor);
    HYDRANT_CHECK(!header.contains(tensor.name));
    header[tensor.name] = {{"dtype", "F32"}, {"shape", tensor.shape}, {"data_offsets", {offset, end}}};
    offset = end;
  }
  std::string json = base::DumpJson(header);
  json.append((8 - json.size() % 8) % 8, ' ');
  const uint64_t length = json.size();
  std::string bytes(sizeof(length), '\0');
  std::memcpy(bytes.data(), &length, sizeof(length));
  return bytes + json;
}

// A file that disappears unless Keep is called.
class TemporaryFile {
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

}  // namespace

void WriteSafetensors(const std::string& path, std::span<const FloatTensor> tensors) {
  struct stat info {};
  if (stat(path.c_str(), &info) == 0 && !S_ISREG(info.st_mode)) throw FileError(path, "is not a regular file");
  const std::string header = Header(tensors);
  TemporaryFile file(path);
  file.Write(header.data(), header.size());
  for (const FloatTensor& tensor : tensors) {
    const int64_t rows = RowsOf(tensor);
    for (int64_t r = 0; r < rows; ++r) file.Write(tensor.data + r * tensor.row_stride, RowBytes(tensor));
  }
  file.Keep();
}

}  // namespace hydrant::checkpoint
