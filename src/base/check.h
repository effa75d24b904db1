// SPDX-License-Identifier: Apache-2.0
// HYDRANT_CHECK guards our own invariants. Bad input must have been refused before it can reach one.
#pragma once

namespace hydrant::base {

[[noreturn]] void CheckFailed(const char* condition, const char* file, int line);

}  // namespace hydrant::base

#define HYDRANT_CHECK(condition) \
  (static_cast<bool>(condition) ? static_cast<void>(0) : ::hydrant::base::CheckFailed(#condition, __FILE__, __LINE__))
