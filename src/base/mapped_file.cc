// SPDX-License-Identifier: Apache-2.0
#include "base/mapped_file.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <map>
#include <mutex>
#include <utility>

#include "base/free_memory.h"
#include "hydrant/error.h"

namespace hydrant::base {
namespace {

class FileDescriptor {
 public:
  explicit FileDescriptor(int fd) : fd_(fd) {}
  ~FileDescriptor() {
    if (fd_ >= 0) close(fd_);
  }
  FileDescriptor(const FileDescriptor&) = delete;
  FileDescriptor& operator=(const FileDescriptor&) = delete;
  int get() const { return fd_; }

 private:
  int fd_;
};

// O_NONBLOCK: opening a named pipe must be refused below, not waited on.
int OpenForReading(const std::string& path) {
  if (path.find('\0') != std::string::npos) throw UserError("a file name contains a NUL byte");
  const int fd = open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK);
  if (fd < 0) throw FileError(path, std::string("cannot be opened: ") + std::strerror(errno));
  return fd;
}

size_t RegularFileSize(const std::string& path, int fd) {
  struct stat info {};
  if (fstat(fd, &info) != 0) throw FileError(path, std::string("cannot be examined: ") + std::strerror(errno));
  if (S_ISDIR(info.st_mode)) throw FileError(path, "is a folder, expected a file");
  if (!S_ISREG(info.st_mode)) {
    throw FileError(path, "is a pipe, socket or device, expected a file", "write it to a file first");
  }
  return static_cast<size_t>(info.st_size);
}

// Where our mappings lie, by their begin.
struct Mappings {
  struct Mapping {
    uintptr_t end;
    const std::string* path;
  };
  std::mutex mutex;
  std::map<uintptr_t, Mapping> by_begin;

  // The one that holds bytes begin .. end - 1; null: none.
  const Mapping* Find(uintptr_t begin, uintptr_t end) const {
    auto after = by_begin.upper_bound(begin);
    return after == by_begin.begin() || (--after)->second.end < end ? nullptr : &after->second;
  }
};

// Never destroyed: a program may keep a mapping in a global, which ends later than what is made when it is first used.
Mappings& AllMappings() {
  static Mappings& mappings = *new Mappings;
  return mappings;
}

}  // namespace

MappedFile::MappedFile(std::string path, const uint8_t* data, size_t size)
    : path_(std::move(path)), data_(data), size_(size) {
  if (data == nullptr) return;
  const std::lock_guard lock(AllMappings().mutex);
  AllMappings().by_begin[reinterpret_cast<uintptr_t>(data)] = {reinterpret_cast<uintptr_t>(data) + size, &path_};
}

MappedFile::~MappedFile() {
  if (data_ == nullptr) return;
  const std::lock_guard lock(AllMappings().mutex);
  AllMappings().by_begin.erase(reinterpret_cast<uintptr_t>(data_));
  munmap(const_cast<uint8_t*>(data_), size_);
}

void MappedFile::Release(std::span<const uint8_t> bytes) {
  const auto page = static_cast<uintptr_t>(sysconf(_SC_PAGESIZE));
  const auto first = reinterpret_cast<uintptr_t>(bytes.data());
  const uintptr_t begin = (first + page - 1) / page * page;
  const uintptr_t end = (first + bytes.size()) / page * page;
  if (begin >= end) return;
  const std::lock_guard lock(AllMappings().mutex);
  if (AllMappings().Find(begin, end) == nullptr) return;  // another's memory would be lost
  madvise(const_cast<uint8_t*>(bytes.data()) + (begin - first), end - begin, MADV_DONTNEED);
}

const char* MappedFile::PathAt(const void* address) {
  const std::unique_lock lock(AllMappings().mutex, std::try_to_lock);
  if (!lock) return nullptr;
  const auto at = reinterpret_cast<uintptr_t>(address);
  const Mappings::Mapping* mapping = AllMappings().Find(at, at + 1);
  return mapping == nullptr ? nullptr : mapping->path->c_str();
}

std::shared_ptr<const MappedFile> MappedFile::Open(const std::string& path) {
  const FileDescriptor fd(OpenForReading(path));
  const size_t size = RegularFileSize(path, fd.get());
  const uint8_t* data = nullptr;
  if (size > 0) {
    void* mapped = mmap(nullptr, size, PROT_READ, MAP_PRIVATE, fd.get(), 0);
    if (mapped == MAP_FAILED && errno == ENOMEM) {
      throw FileError(
          path, "is " + MemoryText(size) + " long and must be mapped as a whole, and " + FreeText(FreeNow()),
          "raise the limit, or convert it where there is room: 'hydrant convert ConvertOptions::weights w4a8'");
    }
    if (mapped == MAP_FAILED) throw FileError(path, std::string("cannot be mapped: ") + std::strerror(errno));
    data = static_cast<const uint8_t*>(mapped);
  }
  return std::shared_ptr<const MappedFile>(new MappedFile(path, data, size));
}

std::string ReadTextFile(const std::string& path, size_t max_bytes) {
  const FileDescriptor fd(OpenForReading(path));
  const size_t size = RegularFileSize(path, fd.get());
  const auto check = [&](size_t bytes, const char* what) {
    if (bytes <= max_bytes) return;
    throw FileError(
        path, what + std::to_string(bytes) + " bytes, at most " + std::to_string(max_bytes) + " are accepted here");
  };
  check(size, "is ");
  // The size is a guess: files that the kernel makes (/proc, /sys) say 0, and others may grow meanwhile.
  std::string text(size + 1, '\0');
  size_t done = 0;
  while (true) {
    const ssize_t got = read(fd.get(), text.data() + done, text.size() - done);
    if (got < 0 && errno == EINTR) continue;
    if (got < 0) throw FileError(path, std::string("cannot be read: ") + std::strerror(errno));
    if (got == 0) break;
    done += static_cast<size_t>(got);
    check(done, "has more than ");
    if (done == text.size()) text.resize(done + (size_t{64} << 10));
  }
  text.resize(done);
  return text;
}

}  // namespace hydrant::base
