// SPDX-License-Identifier: Apache-2.0
#include "parallel/communicator.h"

#include <algorithm>
#include <array>
#include <vector>

#include "base/check.h"

namespace hydrant::parallel {
namespace {

// Sums go in pieces of so many bytes for each rank, which bounds the memory beside them; messages of MPI are long
// enough then to travel at full speed. Broadcasts go in pieces because MPI counts in ints.
constexpr size_t kSliceBytes = size_t{4} << 20;
constexpr size_t kBroadcastBytes = size_t{256} << 20;
constexpr size_t kMostGathered = (size_t{1} << 31) - 1;

}  // namespace

void Communicator::Broadcast(std::span<std::byte> bytes, int root) {
  HYDRANT_CHECK(root >= 0 && root < size());
  collective_ = "Broadcast";
  while (!bytes.empty()) {
    const std::span<std::byte> piece = bytes.first(std::min(bytes.size(), kBroadcastBytes));
    DoBroadcast(piece, root);
    bytes = bytes.subspan(piece.size());
  }
}

void Communicator::AllGather(std::span<const std::byte> own, std::span<std::byte> all) {
  HYDRANT_CHECK(all.size() == own.size() * static_cast<size_t>(size()) && all.size() <= kMostGathered);
  collective_ = "AllGather";
  DoAllGather(own, all);
}

void Communicator::TreeSum(std::span<float> values) { Sum(values); }
void Communicator::TreeSum(std::span<double> values) { Sum(values); }

// Each rank adds one slice of all ranks' values, and gives its sums to the others: what travels does not grow with the
// number of ranks, and whoever adds has all operands, so that the order is free to choose.
template <typename T>
void Communicator::Sum(std::span<T> values) {
  collective_ = "TreeSum";
  const auto ranks = static_cast<size_t>(size());
  if (ranks == 1) return;
  std::vector<T> own, all;
  while (!values.empty()) {
    const size_t slice = std::min(kSliceBytes / sizeof(T), (values.size() + ranks - 1) / ranks);
    const std::span<T> piece = values.first(std::min(values.size(), slice * ranks));
    own.assign(slice * ranks, 0);  // the last slice may be short
    all.resize(slice * ranks);
    std::ranges::copy(piece, own.begin());
    DoAllToAll(std::as_bytes(std::span(own)), BytesOf(std::span(all)));
    for (size_t stride = 1; stride < ranks; stride *= 2) {
      for (size_t left = 0; left + stride < ranks; left += 2 * stride) {
        T* to = all.data() + left * slice;
        const T* from = all.data() + (left + stride) * slice;
        for (size_t i = 0; i < slice; ++i) to[i] += from[i];
      }
    }
    DoAllGather(std::as_bytes(std::span(all).first(slice)), BytesOf(std::span(own)));
    std::copy_n(own.begin(), piece.size(), piece.begin());
    values = values.subspan(piece.size());
  }
}

int64_t Communicator::MaxReduce(int64_t value) {
  collective_ = "MaxReduce";
  std::vector<int64_t> all(static_cast<size_t>(size()));
  DoAllGather(std::as_bytes(std::span(&value, 1)), BytesOf(std::span(all)));
  return *std::ranges::max_element(all);
}

void Communicator::Barrier() {
  collective_ = "Barrier";
  std::vector<std::byte> all(static_cast<size_t>(size()));
  const std::array<std::byte, 1> own = {};
  DoAllGather(own, all);
}

void Communicator::Abort(const std::string& message) {
  if (options_.on_abort) options_.on_abort(message);
  DoAbort(message);
  throw RankError(message);
}

void Communicator::Overdue() {
  const std::string at = step_ < 0 ? "" : " at step " + std::to_string(step_);
  const std::string limit = std::to_string(std::chrono::duration<double>(options_.limit).count());
  Abort("rank " + std::to_string(rank()) + " of " + std::to_string(size()) + " has waited " +
        limit.substr(0, limit.find('.') + 2) + " s in " + collective_ + at + " for ranks that do not come");
}

}  // namespace hydrant::parallel
