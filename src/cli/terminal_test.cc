// SPDX-License-Identifier: Apache-2.0
#include "cli/terminal.h"

#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <csignal>

namespace hydrant::cli {
namespace {

// What a process that does `work` with our handlers exits with; 1000 + signal when a signal ended it.
template <typename Work>
int ExitOf(const Work& work) {
  const pid_t child = fork();
  if (child == 0) {
    InstallSignalHandlers();
    _exit(work());
  }
  int status = 0;
  waitpid(child, &status, 0);
  return WIFEXITED(status) ? WEXITSTATUS(status) : 1000 + WTERMSIG(status);
}

int AfterOne(int number) {
  return ExitOf([number] {
    if (Interrupted()) return 1;
    std::raise(number);
    return Interrupted() ? InterruptedExit() : 2;
  });
}

TEST(TerminalTest, SignalsThatEndWorkSetAFlag) {
  EXPECT_EQ(AfterOne(SIGINT), 130);
  EXPECT_EQ(AfterOne(SIGTERM), 143);
  EXPECT_EQ(AfterOne(SIGHUP), 129);
}

TEST(TerminalTest, WorkThatIsEndingHasTimeToCleanUp) {
  EXPECT_EQ(ExitOf([] {
              std::raise(SIGINT);
              std::raise(SIGINT);
              return 7;
            }),
            7);
}

TEST(TerminalTest, OnlyCtrlCIsForgotten) {
  const auto cleared = [](int number) {
    return ExitOf([number] {
      std::raise(number);
      ClearInterrupt();
      return Interrupted() ? 1 : 0;
    });
  };
  EXPECT_EQ(cleared(SIGINT), 0);
  EXPECT_EQ(cleared(SIGTERM), 1);
}

TEST(TerminalTest, WhatWasToBeIgnoredStaysIgnored) {
  const auto before = std::signal(SIGHUP, SIG_IGN);  // as nohup does
  EXPECT_EQ(AfterOne(SIGHUP), 2);
  std::signal(SIGHUP, before);
}

}  // namespace
}  // namespace hydrant::cli
