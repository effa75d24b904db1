// SPDX-License-Identifier: Apache-2.0
#include "cli/terminal/standard_input.h"

#include <unistd.h>

#include <array>
#include <cerrno>
#include <cstring>
#include <utility>
#include <vector>

#include "cli/flags/values.h"
#include "cli/terminal/terminal.h"
#include "hydrant/error.h"

namespace hydrant::cli {

std::string ReadStdin() {
  std::string text;
  std::vector<char> chunk(size_t{1} << 16);
  while (true) {
    const ssize_t got = read(STDIN_FILENO, chunk.data(), chunk.size());
    if (got < 0 && errno == EINTR) {
      if (Interrupted()) throw Interruption();
      continue;
    }
    if (got < 0) throw FileError("standard input", std::string("cannot be read: ") + std::strerror(errno));
    if (got == 0) return text;
    text.append(chunk.data(), static_cast<size_t>(got));
    if (text.size() > kMaxInputBytes) throw FileError("standard input", "is longer than 64 MB");
  }
}

LineEnd LineReader::Next(std::string* line) {
  while (true) {
    const size_t end = held_.find('\n');
    if (end != std::string::npos) {
      *line = held_.substr(0, end);
      held_.erase(0, end + 1);
      return LineEnd::kLine;
    }
    std::array<char, 4096> chunk;
    const ssize_t got = read(STDIN_FILENO, chunk.data(), chunk.size());
    if (got < 0 && errno == EINTR) {
      held_.clear();
      return LineEnd::kInterrupted;
    }
    if (got <= 0) {
      *line = std::exchange(held_, "");
      return line->empty() ? LineEnd::kEndOfInput : LineEnd::kLine;
    }
    held_.append(chunk.data(), static_cast<size_t>(got));
    if (held_.size() > kMaxInputBytes) throw FileError("standard input", "a line is longer than 64 MB");
  }
}

}  // namespace hydrant::cli
