// SPDX-License-Identifier: Apache-2.0
// Ranks as processes that MPI connects.
#include <mpi.h>

#include <algorithm>
#include <exception>
#include <thread>

#include "parallel/mpi/make_communicator.h"

namespace hydrant::parallel {
namespace {

using Clock = std::chrono::steady_clock;

// A rank that waits for the others looks whether they have come at once, then more and more rarely: after the second
// time span it takes a hundredth of a core at most.
constexpr std::chrono::microseconds kWithoutSleep{50}, kFirstSleep{10}, kLongestSleep{2000};

// An error that all ranks meet is told once: rank 0 ends the job while the others wait for so long.
constexpr std::chrono::seconds kOthersWait{3};

// MPI_Wait of all libraries keeps a core busy. Sleeping between two looks costs nobody anything while ranks are
// awaited, but a transfer goes on only while somebody looks. So a collective is a barrier with sleeps, then the
// transfer without.
class MpiRanks : public Communicator {
 public:
  MpiRanks(const CommunicatorOptions& options, const Launch& launch) : Communicator(options) {
    int provided = 0;
    MPI_Init_thread(nullptr, nullptr, MPI_THREAD_FUNNELED, &provided);
    MPI_Comm_rank(MPI_COMM_WORLD, &rank_);
    MPI_Comm_size(MPI_COMM_WORLD, &size_);
    if (launch.size > 1 && size_ != launch.size) {
      throw UserError(
          launch.variable + " is " + std::to_string(launch.size) + ", and MPI counts ranks: " + std::to_string(size_),
          "start the program by the mpirun of the MPI that it was built with");
    }
    if (provided < MPI_THREAD_FUNNELED) throw UserError("this MPI cannot run in a program with threads");
  }

  // With an exception under way the others must not wait for this rank: LeaveRanks ends them.
  ~MpiRanks() override {
    if (std::uncaught_exceptions() > 0) {
      if (rank_ != 0) std::this_thread::sleep_for(kOthersWait);
      return;
    }
    Gather();  // MPI_Finalize would wait without sleeping
    MPI_Finalize();
  }

  int rank() const override { return rank_; }
  int size() const override { return size_; }

 protected:
  // The analyzer knows MPI_Wait, but not a loop of MPI_Test.
  // NOLINTBEGIN(clang-analyzer-optin.mpi.MPI-Checker)
  void DoBroadcast(std::span<std::byte> bytes, int root) override {
    Gather();
    MPI_Request request = MPI_REQUEST_NULL;
    MPI_Ibcast(bytes.data(), static_cast<int>(bytes.size()), MPI_BYTE, root, MPI_COMM_WORLD, &request);
    Await(request, /*sleeps=*/false);
  }

  void DoAllGather(std::span<const std::byte> own, std::span<std::byte> all) override {
    Gather();
    MPI_Request request = MPI_REQUEST_NULL;
    const int count = static_cast<int>(own.size());
    MPI_Iallgather(own.data(), count, MPI_BYTE, all.data(), count, MPI_BYTE, MPI_COMM_WORLD, &request);
    Await(request, /*sleeps=*/false);
  }

  void DoAllToAll(std::span<const std::byte> own, std::span<std::byte> all) override {
    Gather();
    MPI_Request request = MPI_REQUEST_NULL;
    const int count = static_cast<int>(own.size()) / size_;
    MPI_Ialltoall(own.data(), count, MPI_BYTE, all.data(), count, MPI_BYTE, MPI_COMM_WORLD, &request);
    Await(request, /*sleeps=*/false);
  }

  void DoAbort(const std::string&) override { MPI_Abort(MPI_COMM_WORLD, 1); }

 private:
  // Returns when all ranks have come.
  void Gather() {
    MPI_Request request = MPI_REQUEST_NULL;
    MPI_Ibarrier(MPI_COMM_WORLD, &request);
    Await(request, /*sleeps=*/true);
  }
  // NOLINTEND(clang-analyzer-optin.mpi.MPI-Checker)

  void Await(MPI_Request request, bool sleeps) {
    const Clock::time_point start = Clock::now();
    std::chrono::microseconds sleep = kFirstSleep;
    for (int is_done = 0;;) {
      MPI_Test(&request, &is_done, MPI_STATUS_IGNORE);
      if (is_done != 0) return;
      const Clock::duration waited = Clock::now() - start;
      if (waited > options().limit) Overdue();
      if (!sleeps || waited < kWithoutSleep) {
        std::this_thread::yield();
        continue;
      }
      std::this_thread::sleep_for(sleep);
      sleep = std::min(2 * sleep, kLongestSleep);
    }
  }

  int rank_ = 0, size_ = 1;
};

}  // namespace

std::unique_ptr<Communicator> MakeMpiRanks(const CommunicatorOptions& options, const Launch& launch) {
  return std::make_unique<MpiRanks>(options, launch);
}

void LeaveRanks(int exit_code) {
  int is_running = 0, is_over = 0;
  MPI_Initialized(&is_running);
  MPI_Finalized(&is_over);
  if (is_running != 0 && is_over == 0) MPI_Abort(MPI_COMM_WORLD, exit_code);
}

}  // namespace hydrant::parallel
