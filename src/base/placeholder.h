// SPDX-License-Identifier: Apache-2.0
// Files and names that stand for something that is not here yet.
#pragma once

#include <string>
#include <string_view>

namespace hydrant::base {

// Throws FileError where the content is a Git LFS pointer, or a web page that was saved in the file's place.
void RefusePlaceholder(std::string_view content, const std::string& path);

// What to do where nothing lies at `path`: how to fetch it where it is a name of the Hugging Face hub ("org/name", or
// its address), else which name beside it may be meant. Empty: neither.
std::string MissingPathHint(const std::string& path);

// "hf download org/name --local-dir name".
std::string DownloadCommand(const std::string& hub_id);

}  // namespace hydrant::base
