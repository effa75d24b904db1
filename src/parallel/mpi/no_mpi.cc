// SPDX-License-Identifier: Apache-2.0
// Stands for mpi_ranks.cc in builds without MPI.
#include "parallel/mpi/make_communicator.h"

namespace hydrant::parallel {

std::unique_ptr<Communicator> MakeMpiRanks(const CommunicatorOptions&, const Launch& launch) {
  const std::string several = launch.size == 1 ? "" : launch.variable + " is " + std::to_string(launch.size) + ", and ";
  throw UserError(several + "this build has no MPI",
                  "install Open MPI (Debian: apt install libopenmpi-dev openmpi-bin) and build again, or start one "
                  "process");
}

void LeaveRanks(int) {}

}  // namespace hydrant::parallel
