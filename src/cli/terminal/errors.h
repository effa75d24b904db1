// SPDX-License-Identifier: Apache-2.0
// How errors look and which exit code they have.
#pragma once

#include <string>

namespace hydrant::cli {

inline constexpr int kExitOk = 0;
inline constexpr int kExitOurs = 1;                              // a broken invariant
inline constexpr int kExitHangUp = 129, kExitInterrupted = 130;  // 128 and the signal, as shells have it
inline constexpr int kExitUser = 2;                              // a flag, a file, a request, too little memory

// "error: MESSAGE\nhint:  HINT\n", options of the library by their flags; further lines are indented to the text.
std::string ErrorText(const std::string& message, const std::string& hint);

// Reports the exception being handled on stderr and returns its exit code. Call inside a catch block.
int ReportException();

}  // namespace hydrant::cli
