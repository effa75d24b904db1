// SPDX-License-Identifier: Apache-2.0
#include "parallel/mpi/make_communicator.h"

namespace hydrant::parallel {

std::unique_ptr<Communicator> MakeCommunicator(const std::string& kind, const CommunicatorOptions& options) {
  if (kind != "auto" && kind != "single" && kind != "mpi") {
    throw UserError("communicator '" + kind + "' is unknown, expected auto, single or mpi");
  }
  const Launch launch = FindLaunch();
  if (kind == "single" || (kind == "auto" && launch.size == 1)) return MakeSingle();
  return MakeMpiRanks(options, launch);
}

}  // namespace hydrant::parallel
