// SPDX-License-Identifier: Apache-2.0
#include "cli/terminal/terminal.h"

#include <fmt/core.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <cerrno>
#include <csignal>
#include <cstring>
#include <ctime>

#include "base/mapped_file.h"
#include "cli/terminal/errors.h"
#include "cli/terminal/escape.h"
#include "cli/terminal/option_names.h"
#include "hydrant/error.h"

namespace hydrant::cli {
namespace {

std::atomic<int> g_signal = 0;            // that asked to end; 0: none
std::atomic<int64_t> g_asked_second = 0;  // when it first did
std::atomic<bool> g_stop = false;         // g_signal is not 0
static_assert(std::atomic<int>::is_always_lock_free && std::atomic<bool>::is_always_lock_free &&
                  std::atomic<int64_t>::is_always_lock_free,
              "set from a signal handler");

int64_t Second() {
  struct timespec now {};
  clock_gettime(CLOCK_MONOTONIC, &now);
  return now.tv_sec;
}

void OnSignal(int number) {
  constexpr int64_t kPatience = 2;  // seconds for work to end and to remove what it has made
  if (g_signal.exchange(number) == 0) {
    g_asked_second = Second();
    g_stop = true;
  } else if (Second() - g_asked_second >= kPatience) {
    std::signal(number, SIG_DFL);
    std::raise(number);
  }
}

constexpr std::array<int, 3> kCaught = {SIGINT, SIGTERM, SIGHUP};

void MaskSignals(int how) {
  sigset_t signals;
  sigemptyset(&signals);
  for (const int number : kCaught) sigaddset(&signals, number);
  pthread_sigmask(how, &signals, nullptr);
}

// Unless whoever started us wants it to be ignored, as nohup does.
void Catch(int number) {
  struct sigaction action {};
  if (sigaction(number, nullptr, &action) == 0 && action.sa_handler == SIG_IGN) return;
  action = {};
  action.sa_handler = OnSignal;  // without SA_RESTART: a read of the terminal returns
  sigemptyset(&action.sa_mask);
  sigaction(number, &action, nullptr);
}

bool WriteAll(int fd, std::string_view text) {
  while (!text.empty()) {
    const ssize_t written = write(fd, text.data(), text.size());
    if (written < 0 && errno == EINTR) continue;
    if (written < 0) return false;
    text.remove_prefix(static_cast<size_t>(written));
  }
  return true;
}

// A mapped file that has become shorter, or whose disk fails, shows as a signal when its bytes are read. Ends with a
// sentence, by calls that a handler may make.
void OnBadPage(int number, siginfo_t* info, void* /*context*/) {
  const char* const path = base::MappedFile::PathAt(info->si_addr);
  if (path == nullptr) {
    std::signal(number, SIG_DFL);  // the access is tried again
    return;
  }
  WriteAll(STDERR_FILENO, "\nerror: ");
  for (const char* c = path; *c != '\0'; ++c) {  // EscapedName takes memory
    const bool control = static_cast<unsigned char>(*c) < 0x20 || *c == 0x7F;
    WriteAll(STDERR_FILENO, control ? std::string_view("?") : std::string_view(c, 1));
  }
  WriteAll(STDERR_FILENO, ": became shorter while it was read, or its disk fails\n");
  _exit(kExitUser);
}

// Pale green, cyan, pink, yellow, violet, orange of the 256-colour palette; deeper drafts repeat the last.
constexpr std::array<int, 6> kBackgrounds = {157, 159, 225, 229, 189, 223};

}  // namespace

void Print(std::string_view text) {
  if (WriteAll(STDOUT_FILENO, text)) return;
  if (errno == EPIPE) throw OutputClosed();
  throw UserError(std::string("standard output: cannot be written: ") + std::strerror(errno));
}

void PrintError(std::string_view text) { WriteAll(STDERR_FILENO, text); }
void PrintWarnings(const std::vector<std::string>& warnings) {
  for (const std::string& warning : warnings) PrintError("warning: " + EscapedName(WithFlags(warning)) + "\n");
}

bool StdinIsTerminal() { return isatty(STDIN_FILENO) == 1; }
bool StderrIsTerminal() { return isatty(STDERR_FILENO) == 1; }
bool StdoutIsTerminal() { return isatty(STDOUT_FILENO) == 1; }

void InstallSignalHandlers() {
  for (const int number : kCaught) Catch(number);
  std::signal(SIGPIPE, SIG_IGN);
  std::signal(SIGXFSZ, SIG_IGN);
  struct sigaction action {};
  action.sa_sigaction = OnBadPage;
  action.sa_flags = SA_SIGINFO;
  sigemptyset(&action.sa_mask);
  sigaction(SIGBUS, &action, nullptr);
}

void HoldSignals() { MaskSignals(SIG_BLOCK); }
void ReleaseSignals() { MaskSignals(SIG_UNBLOCK); }

bool Interrupted() { return g_signal.load() != 0; }
const std::atomic<bool>* StopFlag() { return &g_stop; }
int InterruptedExit() {
  constexpr int kOfShells = 128;
  return kOfShells + g_signal.load();
}
void ClearInterrupt() {
  int interrupt = SIGINT;
  if (g_signal.compare_exchange_strong(interrupt, 0)) g_stop = false;
}

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
