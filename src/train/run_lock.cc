// SPDX-License-Identifier: Apache-2.0
#include "train/run_lock.h"

#include <fcntl.h>
#include <sys/file.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>

#include "hydrant/error.h"

namespace hydrant::train {

RunLock::RunLock(const std::string& folder) {
  const std::string path = folder + "/lock";
  file_ = open(path.c_str(), O_RDWR | O_CREAT | O_CLOEXEC, 0666);
  if (file_ < 0) throw FileError(path, std::string("cannot be opened: ") + std::strerror(errno));
  if (flock(file_, LOCK_EX | LOCK_NB) == 0) return;
  const int error = errno;
  close(file_);
  if (error == EWOULDBLOCK) throw FileError(folder, "is in use by another run", "wait for its end, or stop it");
  throw FileError(path, std::string("cannot be locked: ") + std::strerror(error));
}

RunLock::~RunLock() { close(file_); }

}  // namespace hydrant::train
