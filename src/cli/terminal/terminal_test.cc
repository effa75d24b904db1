// SPDX-License-Identifier: Apache-2.0
#include "cli/terminal/terminal.h"

#include <fcntl.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <csignal>
#include <cstdint>
#include <filesystem>
#include <string>

#include "base/mapped_file.h"
#include "cli/terminal/standard_input.h"
#include "tests/test_data.h"

namespace hydrant::cli::terminal_test {
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

// Reading past a file's new end raises a signal.
TEST(TerminalTest, AMappedFileThatShrinksIsAUserError) {
  const test::TempDir dir;
  const std::string path = dir.Write("weights", std::string(size_t{1} << 16, 'a')), err = dir.path() + "/err";
  EXPECT_EQ(ExitOf([&] {
              dup2(open(err.c_str(), O_WRONLY | O_CREAT, 0600), STDERR_FILENO);
              const auto file = base::MappedFile::Open(path);
              std::filesystem::resize_file(path, 100);
              const volatile uint8_t* bytes = file->bytes().data();
              return static_cast<int>(bytes[50000]);
            }),
            2);
  EXPECT_THAT(base::ReadTextFile(err), testing::HasSubstr("error: " + path + ": became shorter while it was read"));
}

TEST(TerminalTest, AReadOfStdinEndsWithASignal) {
  EXPECT_EQ(ExitOf([] {
              int ends[2];
              if (pipe(ends) != 0) return 1;
              dup2(ends[0], STDIN_FILENO);
              const pid_t reader = getpid();
              if (fork() == 0) {
                for (int i = 0; i < 100; ++i) {  // until the read waits
                  usleep(10000);
                  kill(reader, SIGTERM);
                }
                _exit(0);
              }
              close(ends[1]);
              try {
                ReadStdin();
              } catch (const Interruption&) {
                return InterruptedExit();
              }
              return 2;
            }),
            143);
}

TEST(TerminalTest, ALastLineWithoutAnEndIsALine) {
  EXPECT_EQ(ExitOf([] {
              int ends[2];
              if (pipe(ends) != 0 || write(ends[1], "one\n\ntwo", 8) != 8) return 1;
              close(ends[1]);
              dup2(ends[0], STDIN_FILENO);
              LineReader reader;
              std::string line, all;
              while (reader.Next(&line) == LineEnd::kLine) all += "[" + line + "]";
              return all == "[one][][two]" && line.empty() ? 7 : 2;
            }),
            7);
}

TEST(TerminalTest, WhatWasToBeIgnoredStaysIgnored) {
  const auto before = std::signal(SIGHUP, SIG_IGN);  // as nohup does
  EXPECT_EQ(AfterOne(SIGHUP), 2);
  std::signal(SIGHUP, before);
}

}  // namespace
}  // namespace hydrant::cli::terminal_test
