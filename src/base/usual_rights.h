// SPDX-License-Identifier: Apache-2.0
// Temporary files are made readable by their owner alone. What is kept of them gets the rights that open and mkdir
// give.
#pragma once

#include <sys/stat.h>

namespace hydrant::base {

// `rights` (0666 of files, 0777 of folders) without what the process's umask takes away. For a moment all files of the
// process would be made without a umask, so no other thread may make any.
inline mode_t UsualRights(mode_t rights) {
  const mode_t mask = umask(0);
  umask(mask);
  return rights & ~mask;
}

}  // namespace hydrant::base
