// SPDX-License-Identifier: Apache-2.0
#include "base/atomic_file.h"

#include <fcntl.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <filesystem>
#include <system_error>
#include <utility>

#include "base/usual_rights.h"
#include "hydrant/error.h"

namespace hydrant::base {

namespace {

// Where a link leads, be it /dev/stdout: the link itself is never replaced.
std::string BehindLinks(const std::string& path) {
  std::error_code error;
  if (!std::filesystem::is_symlink(path, error)) return path;
  const std::filesystem::path real = std::filesystem::canonical(path, error);
  if (error) throw FileError(path, "is a link that leads nowhere: " + error.message());
  return real.string();
}

}  // namespace

AtomicFile::AtomicFile(const std::string& path) {
  struct stat info {};
  if (stat(path.c_str(), &info) == 0 && !S_ISREG(info.st_mode)) throw FileError(path, "is not a regular file");
  target_ = BehindLinks(path);
  name_ = target_ + ".XXXXXX";
  const int fd = mkostemp(name_.data(), O_CLOEXEC);
  if (fd < 0) Fail("cannot be created");
  file_ = fdopen(fd, "wb");
  if (file_ == nullptr) {
    close(fd);
    unlink(name_.c_str());
    Fail("cannot be created");
  }
}

AtomicFile::~AtomicFile() {
  if (file_ == nullptr) return;
  std::fclose(file_);
  unlink(name_.c_str());
}

void AtomicFile::Write(const void* bytes, size_t size) {
  if (size == 0) return;  // of nothing there may be no address
  if (std::fwrite(bytes, 1, size, file_) != size) Fail("cannot be written");
}

void AtomicFile::Keep() {
  if (std::fflush(file_) != 0 || fchmod(fileno(file_), UsualRights(0666)) != 0) Fail("cannot be written");
  if (std::rename(name_.c_str(), target_.c_str()) != 0) Fail("cannot be replaced");
  std::fclose(std::exchange(file_, nullptr));
}

void AtomicFile::Fail(const char* what) const {
  throw FileError(target_, std::string(what) + ": " + std::strerror(errno));
}

}  // namespace hydrant::base
