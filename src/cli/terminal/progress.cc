// SPDX-License-Identifier: Apache-2.0
#include "cli/terminal/progress.h"

#include <fmt/core.h>
#include <unistd.h>

#include <algorithm>
#include <utility>

#include "cli/terminal/terminal.h"

namespace hydrant::cli {
namespace {

constexpr std::string_view kClearLine = "\r\x1b[K";

}  // namespace

Progress::Progress(std::string what) : what_(std::move(what)) {}

Progress::~Progress() { Clear(); }

void Progress::Update(double share, std::string_view note) {
  if (isatty(STDERR_FILENO) != 1) return;
  shown_ = true;
  PrintError(fmt::format("{}{} {:3.0f} % {}", kClearLine, what_, 100 * std::clamp(share, 0.0, 1.0), note));
}

void Progress::Clear() {
  if (shown_) PrintError(kClearLine);
  shown_ = false;
}

}  // namespace hydrant::cli
