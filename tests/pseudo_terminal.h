// SPDX-License-Identifier: Apache-2.0
// The built program in a terminal, with somebody who types.
#pragma once

#include <gtest/gtest.h>
#include <poll.h>
#include <pty.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstdlib>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace hydrant::test {

class PseudoTerminal {
 public:
  // Environment variables as "NAME=VALUE" are added.
  PseudoTerminal(std::vector<std::string> args, std::vector<std::string> environment) {
    struct winsize size {};
    size.ws_row = 40;
    size.ws_col = 200;
    child_ = forkpty(&terminal_, nullptr, nullptr, &size);
    if (child_ != 0) return;
    for (std::string& variable : environment) putenv(variable.data());
    std::vector<char*> argv;
    args.insert(args.begin(), HYDRANT_PROGRAM);
    for (std::string& word : args) argv.push_back(word.data());
    argv.push_back(nullptr);
    execv(argv[0], argv.data());
    _exit(127);
  }
  ~PseudoTerminal() {
    if (child_ > 0 && !ended_) kill(child_, SIGKILL), Wait();
    close(terminal_);
  }
  PseudoTerminal(const PseudoTerminal&) = delete;
  PseudoTerminal& operator=(const PseudoTerminal&) = delete;

  void Type(std::string_view keys) { ASSERT_EQ(write(terminal_, keys.data(), keys.size()), ssize_t(keys.size())); }

  // What has been shown since the last call, up to the first `part`; all there is where that never comes.
  std::string Until(std::string_view part) {
    constexpr int kPatienceMs = 60000;  // only a program that hangs takes so long
    while (shown_.find(part) == std::string::npos) {
      struct pollfd ready = {.fd = terminal_, .events = POLLIN, .revents = 0};
      char bytes[4096];
      const ssize_t got = poll(&ready, 1, kPatienceMs) > 0 ? read(terminal_, bytes, sizeof bytes) : -1;
      if (got <= 0) {
        ADD_FAILURE() << "never shown: " << part << "\nshown: " << shown_;
        return std::exchange(shown_, "");
      }
      shown_.append(bytes, static_cast<size_t>(got));
    }
    const size_t end = shown_.find(part) + part.size();
    const std::string before = shown_.substr(0, end);
    shown_.erase(0, end);
    return before;
  }

  void Send(int signal) const { kill(child_, signal); }
  // The terminal's window is closed; the exit code.
  int HangUp() {
    close(std::exchange(terminal_, -1));
    return Wait();
  }
  // What has been shown and is still to come.
  std::string Rest() {
    char bytes[4096];
    for (ssize_t got = 0; (got = read(terminal_, bytes, sizeof bytes)) > 0;)
      shown_.append(bytes, static_cast<size_t>(got));
    return std::exchange(shown_, "");
  }

  // The exit code, once the program has ended; 1000 + signal when a signal ended it.
  int Wait() {
    char bytes[4096];
    while (read(terminal_, bytes, sizeof bytes) > 0) continue;  // until the other side closes
    int status = 0;
    waitpid(child_, &status, 0);
    ended_ = true;
    return WIFEXITED(status) ? WEXITSTATUS(status) : 1000 + WTERMSIG(status);
  }

 private:
  int terminal_ = -1;
  pid_t child_ = -1;
  bool ended_ = false;
  std::string shown_;
};

}  // namespace hydrant::test
