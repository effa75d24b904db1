// SPDX-License-Identifier: Apache-2.0
// The program under limits of memory.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdint>
#include <cstdlib>
#include <string>

#include "tests/program.h"

namespace hydrant::test::memory_commands_test {
namespace {

using testing::AllOf;
using testing::HasSubstr;
using testing::StartsWith;

// A sanitizer maps terabytes for itself.
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
#define HYDRANT_NEED_ULIMIT() GTEST_SKIP() << "skipped: sanitizers do not run under ulimit -v"
#else
#define HYDRANT_NEED_ULIMIT() static_cast<void>(0)
#endif

// As under `ulimit -v`, set in a shell so that this program keeps its memory.
Outcome Under(uint64_t kilobytes, const std::string& arguments) {
  const TempDir dir;
  const std::string out = dir.path() + "/out", err = dir.path() + "/err";
  const std::string command = "ulimit -v " + std::to_string(kilobytes) + " && exec " + HYDRANT_PROGRAM + " " +
                              arguments + " >" + out + " 2>" + err;
  const int status = system(command.c_str());
  return {WIFEXITED(status) ? WEXITSTATUS(status) : 1000 + WTERMSIG(status), ReadBack(out), ReadBack(err)};
}

TEST(MemoryCommandsTest, UnderEveryLimitARunEndsWellOrSaysThatThereIsTooLittleMemory) {
  HYDRANT_NEED_ULIMIT();
  const std::string run = "run --model " + Model() + " --draft " + Heads() +
                          " --prompt-ids 1,334,3476 --max-tokens 400 --threads 2 --weights f32 --head-weights f32";
  int refused = 0, ended = 0;
  for (uint64_t megabytes = 40; megabytes <= 1000; megabytes += megabytes < 300 ? 12 : 100) {
    const Outcome outcome = Under(megabytes << 10, run);
    if (outcome.code == 0) {
      ++ended;
      continue;
    }
    ++refused;
    EXPECT_EQ(outcome.code, 2) << megabytes << " MB: " << outcome.err;
    EXPECT_THAT(outcome.err, StartsWith("error: ")) << megabytes << " MB";
    EXPECT_THAT(outcome.err, testing::AnyOf(HasSubstr("free"), HasSubstr("threads could be started")))
        << megabytes << " MB";
  }
  EXPECT_GT(refused, 3);
  EXPECT_GT(ended, 0);
}

TEST(MemoryCommandsTest, PackingThatDoesNotFitNamesConvert) {
  HYDRANT_NEED_ULIMIT();
  // 60 MB of f32 weights on top of the mapped files, of which bf16 are used where they lie.
  bool named = false;
  for (uint64_t megabytes = 60; !named && megabytes <= 300; megabytes += 20) {
    const Outcome outcome =
        Under(megabytes << 10, "run --model " + Model() + " --prompt-ids 1,2 --threads 1 --weights f32");
    named = outcome.code == 2 && outcome.err.find("hydrant convert --weights w4a8") != std::string::npos;
    if (named) {
      EXPECT_THAT(outcome.err, AllOf(HasSubstr("needs "), HasSubstr("of memory in f32"), HasSubstr("(ulimit -v)"),
                                     HasSubstr("OUT' once, then ")));
    }
  }
  EXPECT_TRUE(named);
}

TEST(MemoryCommandsTest, WeightsThatDoNotFitAreRefusedWithTheirSize) {
  HYDRANT_NEED_ULIMIT();
  const Outcome outcome =
      Under(uint64_t{1} << 19, "bench latency --shape 1b --weights w4a8 --threads 1 --max-tokens 4000 --runs 1");
  EXPECT_EQ(outcome.code, 2) << outcome.err;
  EXPECT_THAT(outcome.err, AllOf(StartsWith("error: "), HasSubstr("free (ulimit -v)")));
}

}  // namespace
}  // namespace hydrant::test::memory_commands_test
