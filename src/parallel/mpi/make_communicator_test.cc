// SPDX-License-Identifier: Apache-2.0
#include "parallel/mpi/make_communicator.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/wait.h>

#include <cstdlib>
#include <string>

#include "base/mapped_file.h"
#include "parallel/mpi/transcript.h"
#include "tests/test_data.h"

namespace hydrant::parallel::make_communicator_test {
namespace {

using testing::HasSubstr;

TEST(MakeCommunicator, IsSingleWithoutALauncher) {
  unsetenv("OMPI_COMM_WORLD_SIZE");
  EXPECT_EQ(FindLaunch().size, 1);
  EXPECT_EQ(MakeCommunicator("auto")->size(), 1);
  EXPECT_EQ(MakeCommunicator("single")->size(), 1);
  EXPECT_THROW(MakeCommunicator("pvm"), UserError);
}

TEST(MakeCommunicator, FindsWhatLaunchersSet) {
  for (const char* name : {"OMPI_COMM_WORLD_SIZE", "PMI_SIZE", "SLURM_STEP_NUM_TASKS"}) {
    setenv(name, "3", 1);
    EXPECT_EQ(FindLaunch().size, 3);
    EXPECT_EQ(FindLaunch().variable, name);
    EXPECT_EQ(MakeCommunicator("single")->size(), 1);
    setenv(name, "1", 1);
    EXPECT_EQ(FindLaunch().size, 1);
    setenv(name, "three", 1);
    EXPECT_EQ(FindLaunch().size, 1);
    unsetenv(name);
  }
}

#ifdef HYDRANT_RANK_PROGRAM

struct Outcome {
  int code = 0;
  std::string text;  // stdout and stderr
};

// Three processes on this machine, however few cores it has.
Outcome RunProcesses(const std::string& scenario, const std::string& folder) {
  const std::string command = std::string("timeout 100 ") + HYDRANT_MPIRUN +
                              " --oversubscribe --allow-run-as-root --bind-to none -n 3 " + HYDRANT_RANK_PROGRAM + " " +
                              scenario + " " + folder + " >" + folder + "/said 2>&1";
  const int status = std::system(command.c_str());
  return {.code = WIFEXITED(status) ? WEXITSTATUS(status) : -1, .text = base::ReadTextFile(folder + "/said")};
}

TEST(Mpi, GivesTheBitsOfThreads) {
  const hydrant::test::TempDir dir;
  const Outcome outcome = RunProcesses("ends", dir.path());
  ASSERT_EQ(outcome.code, 0) << outcome.text;
  RunThreads(3, {}, [&](Communicator& ranks) {
    EXPECT_EQ(base::ReadTextFile(dir.path() + "/rank" + std::to_string(ranks.rank())), test::Transcript(ranks));
  });
}

TEST(Mpi, ARankThatDiesEndsTheJob) {
  const hydrant::test::TempDir dir;
  const Outcome outcome = RunProcesses("dies", dir.path());
  EXPECT_EQ(outcome.code, 9) << outcome.text;
}

TEST(Mpi, ARankThatThrowsEndsTheJobByItsCode) {
  const hydrant::test::TempDir dir;
  const Outcome outcome = RunProcesses("throws", dir.path());
  EXPECT_EQ(outcome.code, 2) << outcome.text;
  EXPECT_THAT(outcome.text, HasSubstr("error: no more paper"));
}

TEST(Mpi, TheWatchdogNamesRankStepAndCollective) {
  const hydrant::test::TempDir dir;
  const Outcome outcome = RunProcesses("late", dir.path());
  EXPECT_EQ(outcome.code, 1) << outcome.text;
  EXPECT_THAT(outcome.text, HasSubstr("of 3 has waited 2.0 s in Barrier at step 4 for ranks that do not come"));
}

#else

TEST(Mpi, GivesTheBitsOfThreads) { GTEST_SKIP() << "skipped: this build has no MPI, or there is no mpirun"; }

TEST(Mpi, IsMissedByName) {
  setenv("OMPI_COMM_WORLD_SIZE", "3", 1);
  EXPECT_THROW(MakeCommunicator("auto"), UserError);
  unsetenv("OMPI_COMM_WORLD_SIZE");
}

#endif

}  // namespace
}  // namespace hydrant::parallel::make_communicator_test
