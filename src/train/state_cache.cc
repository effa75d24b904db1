// SPDX-License-Identifier: Apache-2.0
#include "train/state_cache.h"

#include <fcntl.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdio>
#include <cstring>
#include <filesystem>

#include "base/check.h"
#include "base/paths.h"
#include "base/usual_rights.h"
#include "checkpoint/content_hash.h"
#include "hydrant/error.h"

namespace hydrant::train {
namespace {

constexpr uint64_t kHeaderBytes = 4096;

uint64_t HashOf(std::span<const uint8_t> bytes) {
  // 0 is the mark of a segment that is not there.
  return std::max<uint64_t>(1, checkpoint::XxHash64(bytes));
}

std::span<const uint8_t> AsBytes(const std::string& text) {
  return {reinterpret_cast<const uint8_t*>(text.data()), text.size()};
}

std::string FileName(const std::string& key) {
  char name[32];
  std::snprintf(name, sizeof(name), "states-%016llx.bin",
                static_cast<unsigned long long>(checkpoint::XxHash64(AsBytes(key))));
  return name;
}

[[noreturn]] void Fail(const std::string& path, const char* what, int error) {
  throw FileError(path, std::string(what) + ": " + std::strerror(error),
                  error == ENOSPC ? "hidden states need not be kept: then the base runs in every epoch" : "");
}

}  // namespace

uint64_t StateCache::BytesFor(std::span<const Segment> segments, int64_t numbers) {
  uint64_t tokens = 0;
  for (const Segment& segment : segments) tokens += static_cast<uint64_t>(segment.count);
  return kHeaderBytes + segments.size() * sizeof(uint64_t) + tokens * static_cast<uint64_t>(numbers) * sizeof(uint16_t);
}

StateCache::StateCache(const std::string& folder, const std::string& key, std::span<const Segment> segments,
                       int64_t numbers)
    : path_(folder + "/" + FileName(key)), numbers_(numbers) {
  HYDRANT_CHECK(key.size() < kHeaderBytes && numbers > 0);
  uint64_t offset = kHeaderBytes + segments.size() * sizeof(uint64_t);
  for (const Segment& segment : segments) {
    offsets_.push_back(offset);
    offset += static_cast<uint64_t>(segment.count) * static_cast<uint64_t>(numbers) * sizeof(uint16_t);
  }
  offsets_.push_back(offset);
  bytes_ = offset;
  std::error_code error;
  std::filesystem::create_directories(folder, error);
  if (!base::IsThere(path_)) Make(key);
  mapped_ = base::MappedFile::Open(path_);
  std::string header = key;
  header.resize(kHeaderBytes);
  if (mapped_->bytes().size() != bytes_ || std::memcmp(mapped_->bytes().data(), header.data(), kHeaderBytes) != 0) {
    throw FileError(path_, "holds other hidden states than its name says, or only a part of them", "remove it");
  }
  file_ = open(path_.c_str(), O_WRONLY | O_CLOEXEC);
  if (file_ < 0) Fail(path_, "cannot be opened for writing", errno);
}

StateCache::~StateCache() {
  if (file_ >= 0) close(file_);
}

// Under another name until it has its size: the disk's room is taken at once, so that a full disk shows now.
void StateCache::Make(const std::string& key) {
  std::string name = path_ + ".XXXXXX";
  file_ = mkostemp(name.data(), O_CLOEXEC);
  if (file_ < 0) Fail(path_, "cannot be created", errno);
  std::string header = key;
  header.resize(kHeaderBytes);
  int error = posix_fallocate(file_, 0, static_cast<off_t>(bytes_));
  if (error == 0 && pwrite(file_, header.data(), header.size(), 0) != static_cast<ssize_t>(header.size())) error = EIO;
  if (error == 0 && fchmod(file_, base::UsualRights(0666)) != 0) error = errno;
  if (error == 0 && std::rename(name.c_str(), path_.c_str()) != 0) error = errno;
  close(file_);
  file_ = -1;
  if (error == 0) return;
  unlink(name.c_str());
  Fail(path_, "cannot be given its size", error);
}

std::span<const uint8_t> StateCache::BytesOf(size_t segment) const {
  return mapped_->bytes().subspan(offsets_[segment], offsets_[segment + 1] - offsets_[segment]);
}

uint64_t StateCache::ChecksumOf(size_t segment) const {
  uint64_t checksum = 0;
  std::memcpy(&checksum, mapped_->bytes().data() + kHeaderBytes + segment * sizeof(checksum), sizeof(checksum));
  return checksum;
}

int64_t StateCache::num_kept() const {
  int64_t count = 0;
  for (size_t segment = 0; segment + 1 < offsets_.size(); ++segment) count += ChecksumOf(segment) != 0 ? 1 : 0;
  return count;
}

bool StateCache::Read(size_t segment, std::vector<Matrix>& states, int64_t row) const {
  const uint64_t checksum = ChecksumOf(segment);
  const std::span<const uint8_t> bytes = BytesOf(segment);
  if (checksum == 0 || HashOf(bytes) != checksum) return false;
  const auto* numbers = reinterpret_cast<const uint16_t*>(bytes.data());
  const auto count = static_cast<int64_t>(bytes.size() / sizeof(uint16_t)) / numbers_;
  for (int64_t r = row; r < row + count; ++r) {
    for (Matrix& matrix : states) {
      float* out = matrix.row(r);
      for (int64_t c = 0; c < matrix.cols(); ++c) out[c] = BFloat16ToFloat(*numbers++);
    }
  }
  base::MappedFile::Release(bytes);
  return true;
}

void StateCache::Write(size_t segment, const std::vector<Matrix>& states, int64_t row) {
  const std::span<const uint8_t> bytes = BytesOf(segment);
  const auto count = static_cast<int64_t>(bytes.size() / sizeof(uint16_t)) / numbers_;
  buffer_.clear();
  for (int64_t r = row; r < row + count; ++r) {
    for (const Matrix& matrix : states) {
      for (const float number : matrix.row_span(r)) buffer_.push_back(FloatToBFloat16(number));
    }
  }
  HYDRANT_CHECK(buffer_.size() * sizeof(uint16_t) == bytes.size());
  WriteAt(offsets_[segment], buffer_.data(), bytes.size());
  const uint64_t checksum = HashOf({reinterpret_cast<const uint8_t*>(buffer_.data()), bytes.size()});
  WriteAt(kHeaderBytes + segment * sizeof(checksum), &checksum, sizeof(checksum));
}

void StateCache::WriteAt(uint64_t offset, const void* bytes, size_t size) const {
  const auto* from = static_cast<const uint8_t*>(bytes);
  while (size > 0) {
    const ssize_t written = pwrite(file_, from, size, static_cast<off_t>(offset));
    if (written < 0 && errno == EINTR) continue;
    if (written <= 0) Fail(path_, "cannot be written", written < 0 ? errno : EIO);
    from += written;
    offset += static_cast<uint64_t>(written);
    size -= static_cast<size_t>(written);
  }
}

}  // namespace hydrant::train
