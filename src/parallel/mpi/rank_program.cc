// SPDX-License-Identifier: Apache-2.0
// What make_communicator_test starts by mpirun: rank_program SCENARIO FOLDER.
#include <unistd.h>

#include <cstdio>
#include <fstream>
#include <string>
#include <thread>

#include "parallel/mpi/make_communicator.h"
#include "parallel/mpi/transcript.h"

namespace hydrant::parallel {
namespace {

void Run(const std::string& scenario, const std::string& folder) {
  const CommunicatorOptions options{
      .limit = std::chrono::milliseconds(scenario == "late" ? 2000 : 60'000),
      .on_abort = [](const std::string& text) { std::fprintf(stderr, "aborts: %s\n", text.c_str()); }};
  const std::unique_ptr<Communicator> ranks = MakeCommunicator("auto", options);
  if (scenario == "ends") {
    std::ofstream(folder + "/rank" + std::to_string(ranks->rank())) << test::Transcript(*ranks);
  }
  ranks->set_step(4);
  if (scenario == "dies" && ranks->rank() == 1) _exit(9);
  if (scenario == "throws" && ranks->rank() == 1) throw UserError("no more paper");
  if (scenario == "late" && ranks->rank() == 1) std::this_thread::sleep_for(std::chrono::seconds(30));
  ranks->Barrier();
}

}  // namespace
}  // namespace hydrant::parallel

int main(int argc, char** argv) {
  if (argc != 3) return 2;
  int code = 0;
  try {
    hydrant::parallel::Run(argv[1], argv[2]);
  } catch (const std::exception& e) {
    std::fprintf(stderr, "error: %s\n", e.what());
    code = 2;
  }
  hydrant::parallel::LeaveRanks(code);
  return code;
}
