// SPDX-License-Identifier: Apache-2.0
// What a conversion takes over beside the weights.
#pragma once

#include <span>
#include <string>

namespace hydrant::convert {

// Of a model: config, tokenizer, chat template, trees, licence. Of heads: the trees and the licence.
std::span<const char* const> ModelFiles();
std::span<const char* const> HeadFiles();

// Those that are there. Throws FileError where one cannot be copied.
void CopyFiles(std::span<const char* const> names, const std::string& from, const std::string& to);

// The last part of a folder's path.
std::string LastName(const std::string& folder);

}  // namespace hydrant::convert
