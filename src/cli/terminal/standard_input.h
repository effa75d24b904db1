// SPDX-License-Identifier: Apache-2.0
// Reads stdin, whole or by lines, in ways that Ctrl-C interrupts.
#pragma once

#include <cstdint>
#include <string>

namespace hydrant::cli {

// All of stdin, at most kMaxInputBytes. Throws FileError, or Interruption after a signal that ends the program.
std::string ReadStdin();

enum class LineEnd : uint8_t { kLine, kEndOfInput, kInterrupted };

class LineReader {
 public:
  // One line without its end; the last one may lack it. A terminal ends its input anew with each Ctrl-D, so reading may
  // go on after such a line. Ctrl-C drops what was typed of a line. Throws FileError for a line of more than
  // kMaxInputBytes.
  LineEnd Next(std::string* line);

 private:
  std::string held_;  // read, and not given out yet
};

}  // namespace hydrant::cli
