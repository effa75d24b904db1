// SPDX-License-Identifier: Apache-2.0
#include "parallel/launch.h"

#include <charconv>
#include <cstdlib>
#include <string_view>
#include <system_error>

namespace hydrant::parallel {

Launch FindLaunch() {
  // Open MPI's mpirun; MPICH's and Intel's; MVAPICH's; Slurm's srun, whatever it starts processes for.
  for (const char* name : {"OMPI_COMM_WORLD_SIZE", "PMI_SIZE", "MV2_COMM_WORLD_SIZE", "SLURM_STEP_NUM_TASKS"}) {
    const char* text = std::getenv(name);
    if (text == nullptr) continue;
    const std::string_view digits = text;
    Launch launch{.variable = name};
    const auto read = std::from_chars(digits.data(), digits.data() + digits.size(), launch.size);
    if (read.ec == std::errc{} && launch.size > 1) return launch;
  }
  return {};
}

}  // namespace hydrant::parallel
