// SPDX-License-Identifier: Apache-2.0
#include "quant/weight_memory.h"

#include <sys/mman.h>

#include <cstdlib>
#include <mutex>

#include "base/free_memory.h"
#include "kernels/packed.h"

namespace hydrant::quant {
namespace {

using kernels::kLineBytes;

constexpr size_t kHugePage = size_t{2} << 20;
constexpr size_t kChunk = 2 * kHugePage;

std::shared_ptr<uint8_t> AllocateHuge(size_t bytes) {
  const size_t rounded = (bytes + kHugePage - 1) / kHugePage * kHugePage;
  auto* memory = static_cast<uint8_t*>(std::aligned_alloc(kHugePage, rounded));
  if (memory == nullptr) base::FailAllocation(rounded);
  madvise(memory, rounded, MADV_HUGEPAGE);  // where the system refuses, small pages stay
  return {memory, [](uint8_t* p) { std::free(p); }};
}

}  // namespace

std::shared_ptr<uint8_t> AllocateWeights(size_t bytes) {
  static std::mutex mutex;
  static std::weak_ptr<uint8_t> chunk;  // freed with the last matrix in it
  static size_t used = 0;
  if (bytes >= kHugePage) return AllocateHuge(bytes);
  const std::lock_guard lock(mutex);
  std::shared_ptr<uint8_t> memory = chunk.lock();
  if (!memory || used + bytes > kChunk) {
    memory = AllocateHuge(kChunk);
    chunk = memory;
    used = 0;
  }
  uint8_t* place = memory.get() + used;
  used +=
      (bytes + static_cast<size_t>(kLineBytes) - 1) / static_cast<size_t>(kLineBytes) * static_cast<size_t>(kLineBytes);
  return {memory, place};
}

}  // namespace hydrant::quant
