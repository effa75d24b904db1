// SPDX-License-Identifier: Apache-2.0
// Files that people give in place of text: read as text they would be learned or asked as it.
#pragma once

#include <string>
#include <string_view>

namespace hydrant::base {

// Throws FileError with the file's `name` for text in UTF-16, Parquet, and files packed by gzip, zip, zstd, xz or
// bzip2: told by the first bytes.
void CheckIsText(std::string_view content, const std::string& name);

}  // namespace hydrant::base
