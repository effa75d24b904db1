// SPDX-License-Identifier: Apache-2.0
#include "train/fit/ranks.h"

#include <ATen/Parallel.h>
#include <dlfcn.h>
#include <omp.h>

#include <bit>
#include <optional>
#include <span>
#include <string>

#include "base/json.h"
#include "base/json_difference.h"
#include "base/thread_pool.h"
#include "hydrant/error.h"
#include "train/fit/lm_loss.h"

namespace hydrant::train {
namespace {

std::span<float> NumbersOf(at::Tensor& tensor) {
  return {tensor.data_ptr<float>(), static_cast<size_t>(tensor.numel())};
}

// Of 64 bits, four numbers at a time as it were: a checksum against mistakes, not against people.
uint64_t HashOf(std::span<const float> numbers) {
  uint64_t hash = numbers.size();
  for (const float number : numbers)
    hash = (hash ^ std::bit_cast<uint32_t>(number)) * 0x9E3779B97F4A7C15 + (hash >> 29);
  return hash;
}

}  // namespace

void CheckSameSettings(parallel::Communicator& ranks, const base::Json& settings) {
  if (ranks.size() == 1) return;
  std::string first = base::DumpJson(settings);
  auto size = static_cast<int64_t>(first.size());
  ranks.Broadcast(parallel::BytesOf(std::span(&size, 1)), 0);
  first.resize(static_cast<size_t>(size));
  ranks.Broadcast(parallel::BytesOf(std::span(first)), 0);
  const std::optional<base::JsonDifference> difference =
      base::FirstDifference(base::ParseJson(first, "settings of rank 0"), settings);
  if (!difference) return;
  throw UserError("rank " + std::to_string(ranks.rank()) + " has '" + difference->name + "' " +
                      base::DumpJson(difference->expected) + ", and rank 0 has " + base::DumpJson(difference->found),
                  "give all ranks the same base, the same data and the same options");
}

void TakeStart(parallel::Communicator& ranks, const std::vector<TrainedPart>& parts, int64_t& step) {
  if (ranks.size() == 1) return;
  ranks.Broadcast(parallel::BytesOf(std::span(&step, 1)), 0);
  for (const TrainedPart& part : parts) {
    AdamW& optimizer = part.trained->optimizer();
    for (at::Tensor* tensor : {&part.trained->parameters().values(), &optimizer.mean(), &optimizer.variance()}) {
      ranks.Broadcast(parallel::BytesOf(NumbersOf(*tensor)), 0);
    }
  }
}

void CheckSameParameters(parallel::Communicator& ranks, const std::vector<TrainedPart>& parts) {
  if (ranks.size() == 1) return;
  for (const TrainedPart& part : parts) {
    const uint64_t own = HashOf(NumbersOf(part.trained->parameters().values()));
    std::vector<uint64_t> all(static_cast<size_t>(ranks.size()));
    ranks.AllGather(std::as_bytes(std::span(&own, 1)), parallel::BytesOf(std::span(all)));
    for (size_t r = 1; r < all.size(); ++r) {
      if (all[r] == all.front()) continue;
      throw InternalError("the parameters of " + part.name + " on rank " + std::to_string(r) +
                          " differ from those on rank 0: the machines compute differently");
    }
  }
}

std::vector<double> CountAllLabels(parallel::Communicator& ranks, const BatchTensors& own, int32_t depth,
                                   int64_t first_shift) {
  std::vector<double> counts(static_cast<size_t>(depth), 0.0);
  if (own.tokens.defined()) counts = CountLabels(own, depth, first_shift);
  ranks.TreeSum(std::span(counts));
  return counts;
}

double SumGradients(parallel::Communicator& ranks, Parameters& parameters) {
  ranks.TreeSum(NumbersOf(parameters.gradients()));
  double norm = GradientNorm(parameters);
  ranks.Broadcast(parallel::BytesOf(std::span(&norm, 1)), 0);
  return norm;
}

void SetLibraryThreads(const parallel::Communicator& ranks, int threads) {
  at::set_num_threads(threads);
  omp_set_num_threads(threads);  // PyTorch's own packages bring an OpenMP of their own beside ours
  if (ranks.size() == 1) return;
  using Setter = void (*)(int);
  const auto set = reinterpret_cast<Setter>(dlsym(RTLD_DEFAULT, "openblas_set_num_threads"));
  if (set != nullptr) set(base::DefaultThreads());
}

}  // namespace hydrant::train
