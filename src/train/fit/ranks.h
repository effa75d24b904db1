// SPDX-License-Identifier: Apache-2.0
// What ranks that train together have in common besides the gradients: HeadFit::SumOver has those.
#pragma once

#include <cstdint>
#include <vector>

#include "base/json_fwd.h"
#include "parallel/communicator.h"
#include "train/fit/batch_tensors.h"
#include "train/fit/checkpoint.h"

namespace hydrant::train {

// Ranks with other data or options would make other steps, and wait for one another for ever. Throws UserError on those
// that differ from rank 0, with what differs.
void CheckSameSettings(parallel::Communicator& ranks, const base::Json& settings);

// All go on from rank 0's parameters, moments and number of steps: CPUs of other kinds may draw other last bits.
void TakeStart(parallel::Communicator& ranks, const std::vector<TrainedPart>& parts, int64_t& step);

// Throws InternalError where parameters have come to differ.
void CheckSameParameters(parallel::Communicator& ranks, const std::vector<TrainedPart>& parts);

// CountLabels of the rows of all ranks; `own`: of this one, without tokens where it has no row.
std::vector<double> CountAllLabels(parallel::Communicator& ranks, const BatchTensors& own, int32_t depth,
                                   int64_t first_shift = 2);

// Adds the gradients of all ranks. Returns their norm, the same on each: libtorch adds squares in an order that depends
// on the number of threads and on the CPU, so one rank's is taken.
double SumGradients(parallel::Communicator& ranks, Parameters& parameters);

// For all that multiplies in this process. OpenBLAS counts cores when it is loaded, which is before a rank knows its
// own.
void SetLibraryThreads(const parallel::Communicator& ranks, int threads);

}  // namespace hydrant::train
