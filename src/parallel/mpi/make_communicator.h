// SPDX-License-Identifier: Apache-2.0
// The communicator of a program. Only this library links MPI, and only mpi_ranks.cc sees its header.
#pragma once

#include <memory>
#include <string>

#include "parallel/communicator.h"
#include "parallel/launch.h"

namespace hydrant::parallel {

// `kind` is "single", "mpi", or "auto": mpi where mpirun or its like has started several processes, else single. One of
// MPI may be made in a process, and only the thread that made it may use it. Throws UserError for another kind, and
// where MPI is asked for and missing.
std::unique_ptr<Communicator> MakeCommunicator(const std::string& kind, const CommunicatorOptions& options = {});

// The last call of a program that had a communicator: where one was left by an exception, the other ranks end too, by
// this exit code. What the program has to say must be written before.
void LeaveRanks(int exit_code);

// Of mpi_ranks.cc, or of no_mpi.cc in builds without MPI.
std::unique_ptr<Communicator> MakeMpiRanks(const CommunicatorOptions& options, const Launch& launch);

}  // namespace hydrant::parallel
