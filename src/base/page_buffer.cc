// SPDX-License-Identifier: Apache-2.0
#include "base/page_buffer.h"

#include <sys/mman.h>

#include <algorithm>
#include <cstdio>
#include <fstream>
#include <string>
#include <utility>

#include "base/free_memory.h"

namespace hydrant::base {
namespace {

constexpr size_t kHugePage = size_t{2} << 20;
constexpr int kPopulateWrite = 23;  // MADV_POPULATE_WRITE, which Debian 12's headers have and older ones lack

}  // namespace

PageBuffer::PageBuffer(size_t bytes, PageSize pages, bool reserve) : size_(bytes) {
  if (bytes == 0) return;
  mapped_ = (bytes + kHugePage - 1) / kHugePage * kHugePage + kHugePage;
  const int flags = MAP_PRIVATE | MAP_ANONYMOUS | (reserve ? 0 : MAP_NORESERVE);
  mapping_ = mmap(nullptr, mapped_, PROT_READ | PROT_WRITE, flags, -1, 0);
  if (mapping_ == MAP_FAILED) {
    mapping_ = nullptr;
    FailAllocation(bytes);
  }
  const auto address = reinterpret_cast<uintptr_t>(mapping_);
  data_ = static_cast<uint8_t*>(mapping_) + (kHugePage - address % kHugePage) % kHugePage;
  // Advice that the system may not know or follow: HugeShare tells.
  static_cast<void>(madvise(mapping_, mapped_, pages == PageSize::kHuge ? MADV_HUGEPAGE : MADV_NOHUGEPAGE));
}

PageBuffer::~PageBuffer() {
  if (mapping_ != nullptr) munmap(mapping_, mapped_);
}

PageBuffer::PageBuffer(PageBuffer&& other) noexcept { *this = std::move(other); }

PageBuffer& PageBuffer::operator=(PageBuffer&& other) noexcept {
  std::swap(mapping_, other.mapping_);
  std::swap(mapped_, other.mapped_);
  std::swap(data_, other.data_);
  std::swap(size_, other.size_);
  return *this;
}

bool PageBuffer::Populate() { return size_ == 0 || madvise(data_, size_, kPopulateWrite) == 0; }

// /proc/self/smaps: "7f00-7f40 rw-p ..." begins a mapping, "AnonHugePages:  2048 kB" is a line of it. A neighbouring
// mapping may be merged into ours, so a mapping counts for the part of it that is ours.
double PageBuffer::HugeShare() const {
  std::ifstream smaps("/proc/self/smaps");
  const auto begin = reinterpret_cast<uintptr_t>(data_), end = begin + size_;
  double huge = 0, share = 0;
  for (std::string line; std::getline(smaps, line);) {
    unsigned long long first = 0, last = 0, kilobytes = 0;
    if (std::sscanf(line.c_str(), "%llx-%llx ", &first, &last) == 2) {
      const uintptr_t from = std::max<uintptr_t>(first, begin), to = std::min<uintptr_t>(last, end);
      share = from < to ? static_cast<double>(to - from) / static_cast<double>(last - first) : 0;
    } else if (std::sscanf(line.c_str(), "AnonHugePages: %llu kB", &kilobytes) == 1) {
      huge += share * 1024.0 * static_cast<double>(kilobytes);
    }
  }
  return size_ == 0 ? 0 : std::min(1.0, huge / static_cast<double>(size_));
}

}  // namespace hydrant::base
