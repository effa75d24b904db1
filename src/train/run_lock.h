// SPDX-License-Identifier: Apache-2.0
// One run at a time in a folder: two would overwrite each other's checkpoints.
#pragma once

#include <string>

namespace hydrant::train {

class RunLock {
 public:
  // Throws FileError where another process holds the lock of the folder, or it cannot be taken. It ends with this
  // object, or with the process.
  explicit RunLock(const std::string& folder);
  ~RunLock();
  RunLock(const RunLock&) = delete;
  RunLock& operator=(const RunLock&) = delete;

 private:
  int file_ = -1;
};

}  // namespace hydrant::train
