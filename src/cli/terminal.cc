// SPDX-License-Identifier: Apache-2.0
#include "cli/terminal.h"

#include <fmt/core.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <cerrno>
#include <csignal>
#include <cstring>

#include "hydrant/error.h"

namespace hydrant::cli {
namespace {

std::atomic<bool> g_interrupted = false;
static_assert(std::atomic<bool>::is_always_lock_free, "set from a signal handler");

void OnInterrupt(int number) {
  if (g_interrupted.exchange(true)) {
    std::signal(number, SIG_DFL);
    std::raise(number);
  }
}

// Pale green, cyan, pink, yellow, violet, orange of the 256-colour palette; deeper drafts repeat the last.
constexpr std::array<int, 6> kBackgrounds = {157, 159, 225, 229, 189, 223};

bool WriteAll(int fd, std::string_view text) {
  while (!text.empty()) {
    const ssize_t written = write(fd, text.data(), text.size());
    if (written < 0 && errno == EINTR) continue;
    if (written < 0) return false;
    text.remove_prefix(static_cast<size_t>(written));
  }
  return true;
}

}  // namespace

void Print(std::string_view text) {
  if (WriteAll(STDOUT_FILENO, text)) return;
  if (errno == EPIPE) throw OutputClosed();
  throw UserError(std::string("standard output: cannot be written: ") + std::strerror(errno));
}

void PrintError(std::string_view text) { WriteAll(STDERR_FILENO, text); }

bool StdinIsTerminal() { return isatty(STDIN_FILENO) == 1; }
bool StdoutIsTerminal() { return isatty(STDOUT_FILENO) == 1; }

void InstallSignalHandlers() {
  struct sigaction action {};
  action.sa_handler = OnInterrupt;  // without SA_RESTART: a read of the terminal returns
  sigemptyset(&action.sa_mask);
  sigaction(SIGINT, &action, nullptr);
  std::signal(SIGPIPE, SIG_IGN);
}

bool Interrupted() { return g_interrupted.load(); }
void ClearInterrupt() { g_interrupted.store(false); }

std::string ColoredByDepth(std::string_view text, int32_t depth) {
  if (depth <= 0 || text.empty()) return std::string(text);
  const size_t color = std::min(static_cast<size_t>(depth), kBackgrounds.size()) - 1;
  const std::string on = fmt::format("\x1b[38;5;16;48;5;{}m", kBackgrounds[color]);
  std::string colored;
  while (!text.empty()) {
    const size_t line_end = text.find_first_of("\r\n");
    const std::string_view piece = text.substr(0, line_end);
    if (!piece.empty()) colored.append(on).append(piece).append("\x1b[0m");
    if (line_end == std::string_view::npos) break;
    colored.push_back(text[line_end]);
    text.remove_prefix(line_end + 1);
  }
  return colored;
}

std::string ColorLegend(int32_t max_depth) {
  std::string legend = "accepted at depth";
  for (int32_t depth = 1; depth <= max_depth; ++depth)
    legend.append(" ").append(ColoredByDepth(fmt::format(" {} ", depth), depth));
  return legend + "; uncoloured: the base model's own";
}

}  // namespace hydrant::cli
