// SPDX-License-Identifier: Apache-2.0
// How much memory this process can still get, and from whom it knows.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

namespace hydrant::base {

// In bytes; nothing: no limit, or not known. Page cache that can be dropped counts as free.
struct MemoryLimits {
  std::optional<uint64_t> system;         // MemAvailable
  std::optional<uint64_t> cgroup;         // of the tightest group
  std::optional<uint64_t> address_space;  // ulimit -v
  std::optional<uint64_t> data;           // ulimit -d
};

struct FreeMemory {
  uint64_t own = ~uint64_t{0};    // for memory of our own
  uint64_t pages = ~uint64_t{0};  // for that and the pages of mapped files together: these count in no ulimit
  std::string limit;              // what bounds `own`: " (ulimit -v)", " (the cgroup's limit)", or ""
};
FreeMemory FreeOf(const MemoryLimits& limits);

// Of this process, now. `root`: before /proc and /sys, for tests; then without ulimits.
MemoryLimits ReadMemoryLimits(const std::string& root = "");
inline FreeMemory FreeNow() { return FreeOf(ReadMemoryLimits()); }

// "MemAvailable:  123 kB" of a text of such lines, in bytes.
std::optional<uint64_t> KilobytesOf(std::string_view text, std::string_view name);
// What a group may still take: `limit` and `usage` as in memory.max and memory.current (v1: memory.limit_in_bytes,
// memory.usage_in_bytes), of which file pages in `stat` can be dropped. Nothing without a limit.
std::optional<uint64_t> FreeInGroup(std::string_view limit, std::string_view usage, std::string_view stat);

// "3.7 GB", "812 MB".
std::string MemoryText(uint64_t bytes);
// "4.1 GB are free (ulimit -v)".
std::string FreeText(const FreeMemory& free);
// Throws UserError: that an allocation of so many bytes failed, and what is free.
[[noreturn]] void FailAllocation(uint64_t bytes);

}  // namespace hydrant::base
