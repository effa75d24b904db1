// SPDX-License-Identifier: Apache-2.0
// Paths that hold something else than was asked for: GGUF files, adapters, heads of other kinds, heads in place of a
// base and the other way round. Each is named as what it is, with what to do.
#pragma once

#include <string>
#include <utility>

#include "hydrant/error.h"

namespace hydrant::load {

enum class Role { kBase, kHeads, kEither };

// Throws FileError where the path is, by its names, configs and headers, something that cannot have this role. Whatever
// else is wrong with it is for its reader to say.
void RefuseOtherKind(const std::string& path, Role role);

// What `read` returns. Where it throws, the path's kind explains it better than what was missed first.
template <typename Read>
auto ReadAs(Role role, const std::string& path, Read read) {
  try {
    return read();
  } catch (const FileError&) {
    RefuseOtherKind(path, role);
    throw;
  }
}

}  // namespace hydrant::load
