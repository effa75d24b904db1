// SPDX-License-Identifier: Apache-2.0
// The files of the page at "/" (page/), as they are in the program.
#pragma once

#include <span>
#include <string_view>

namespace hydrant::server {

struct PageFile {
  std::string_view name, text;
};

std::span<const PageFile> PageFiles();

}  // namespace hydrant::server
