// SPDX-License-Identifier: Apache-2.0
// What lies at a path, without exceptions: those of std::filesystem would pass for our own mistakes.
#pragma once

#include <filesystem>
#include <system_error>

namespace hydrant::base {

// Also a link that leads nowhere, and where that cannot be found out (no permission, a loop of links): whoever then
// reads it says why. A file that may be missing is not missing then.
inline bool IsThere(const std::filesystem::path& path) {
  std::error_code error;
  return std::filesystem::symlink_status(path, error).type() != std::filesystem::file_type::not_found;
}

// false where that cannot be found out.
inline bool IsFolder(const std::filesystem::path& path) {
  std::error_code error;
  return std::filesystem::is_directory(path, error);
}

}  // namespace hydrant::base
