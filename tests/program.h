// SPDX-License-Identifier: Apache-2.0
// The built program, run as a user or a script would.
#pragma once

#include <fcntl.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstdlib>
#include <string>
#include <vector>

#include "base/json.h"
#include "base/mapped_file.h"
#include "tests/test_data.h"

namespace hydrant::test {

using base::Json;

struct Outcome {
  int code = -1;  // exit code; 1000 + signal when a signal ended it
  std::string out, err;
};

inline std::string ReadBack(const std::string& path) { return base::ReadTextFile(path); }

// Runs build/.../hydrant with `args`, stdin from a file with `input`.
inline Outcome Hydrant(const std::vector<std::string>& args, const std::string& input = "") {
  const TempDir dir;
  const std::string in = dir.Write("in", input), out = dir.path() + "/out", err = dir.path() + "/err";
  std::vector<char*> argv;
  std::vector<std::string> words = {HYDRANT_PROGRAM};
  words.insert(words.end(), args.begin(), args.end());
  for (std::string& word : words) argv.push_back(word.data());
  argv.push_back(nullptr);
  const pid_t child = fork();
  if (child == 0) {
    // What a test runs learns from no other run, and leaves nothing behind.
    setenv("XDG_CACHE_HOME", dir.path().c_str(), 1);
    dup2(open(in.c_str(), O_RDONLY), STDIN_FILENO);
    dup2(open(out.c_str(), O_WRONLY | O_CREAT, 0600), STDOUT_FILENO);
    dup2(open(err.c_str(), O_WRONLY | O_CREAT, 0600), STDERR_FILENO);
    execv(argv[0], argv.data());
    _exit(127);
  }
  int status = 0;
  waitpid(child, &status, 0);
  return {WIFEXITED(status) ? WEXITSTATUS(status) : 1000 + WTERMSIG(status), ReadBack(out), ReadBack(err)};
}

inline std::string Model() { return SourceDir() + "/models/tale-14m"; }
inline std::string Heads() { return SourceDir() + "/models/tale-14m-hydra-pp"; }

inline Json JsonOf(const Outcome& outcome) {
  EXPECT_EQ(outcome.code, 0) << outcome.err;
  return base::ParseJson(outcome.out, "stdout");
}

// Exit code 2, nothing on stdout, "error: " first on stderr.
inline void ExpectRefused(const std::vector<std::string>& args, const std::string& part) {
  const Outcome outcome = Hydrant(args);
  EXPECT_EQ(outcome.code, 2) << outcome.err;
  EXPECT_EQ(outcome.out, "");
  EXPECT_THAT(outcome.err, testing::AllOf(testing::StartsWith("error: "), testing::HasSubstr(part)));
}

}  // namespace hydrant::test
