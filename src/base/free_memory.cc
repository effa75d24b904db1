// SPDX-License-Identifier: Apache-2.0
#include "base/free_memory.h"

#include <sys/resource.h>

#include <algorithm>
#include <charconv>
#include <cstdio>
#include <fstream>
#include <iterator>
#include <system_error>

#include "hydrant/error.h"

namespace hydrant::base {
namespace {

std::string Contents(const std::string& path) {
  std::ifstream file(path);
  return {std::istreambuf_iterator<char>(file), std::istreambuf_iterator<char>()};
}

std::optional<uint64_t> NumberAt(std::string_view text) {
  uint64_t number = 0;
  while (text.starts_with(' ') || text.starts_with('\t')) text.remove_prefix(1);
  if (std::from_chars(text.data(), text.data() + text.size(), number).ec != std::errc{}) return std::nullopt;
  return number;
}

// The number behind `name` and a blank at the begin of a line; 0 without one.
uint64_t LineOf(std::string_view text, std::string_view name) {
  while (!text.empty()) {
    if (text.starts_with(name) && text.substr(name.size()).starts_with(' ')) {
      return NumberAt(text.substr(name.size())).value_or(0);
    }
    const size_t end = text.find('\n');
    if (end == std::string_view::npos) break;
    text.remove_prefix(end + 1);
  }
  return 0;
}

void Tighten(std::optional<uint64_t>& least, std::optional<uint64_t> other) {
  if (other && (!least || *other < *least)) least = other;
}

struct GroupFiles {
  const char *limit, *usage;
};
constexpr GroupFiles kVersion2[] = {{"memory.max", "memory.current"}, {"memory.high", "memory.current"}};
constexpr GroupFiles kVersion1[] = {{"memory.limit_in_bytes", "memory.usage_in_bytes"}};

// From the group up to the mount, which in a container is often the group itself.
template <size_t kCount>
void TightenByGroups(const std::string& mount, std::string group, const GroupFiles (&files)[kCount],
                     std::optional<uint64_t>& least) {
  while (true) {
    const std::string folder = mount + group + "/";
    for (const GroupFiles& file : files) {
      Tighten(least, FreeInGroup(Contents(folder + file.limit), Contents(folder + file.usage),
                                 Contents(folder + "memory.stat")));
    }
    if (group.empty()) return;
    group.resize(group.find_last_of('/') == std::string::npos ? 0 : group.find_last_of('/'));
  }
}

std::optional<uint64_t> CgroupFree(const std::string& root) {
  std::optional<uint64_t> least;
  std::ifstream file(root + "/proc/self/cgroup");
  for (std::string line; std::getline(file, line);) {  // "0::/a/b", "4:memory:/a/b"
    const size_t first = line.find(':'), second = line.find(':', first + 1);
    if (second == std::string::npos) continue;
    const std::string controllers = "," + line.substr(first + 1, second - first - 1) + ",";
    const std::string group = line.substr(second + 1);
    if (line.starts_with("0::")) {
      TightenByGroups(root + "/sys/fs/cgroup", group, kVersion2, least);
      TightenByGroups(root + "/sys/fs/cgroup/unified", group, kVersion2, least);
    } else if (controllers.find(",memory,") != std::string::npos) {
      TightenByGroups(root + "/sys/fs/cgroup/memory", group, kVersion1, least);
    }
  }
  return least;
}

std::optional<uint64_t> UlimitFree(int resource, std::optional<uint64_t> used) {
  struct rlimit limit {};
  if (getrlimit(static_cast<__rlimit_resource>(resource), &limit) != 0 || limit.rlim_cur == RLIM_INFINITY || !used) {
    return std::nullopt;
  }
  return limit.rlim_cur > *used ? limit.rlim_cur - *used : 0;
}

}  // namespace

std::optional<uint64_t> KilobytesOf(std::string_view text, std::string_view name) {
  const std::string wanted = std::string(name) + ":";
  for (size_t at = text.find(wanted); at != std::string_view::npos; at = text.find(wanted, at + 1)) {
    if (at > 0 && text[at - 1] != '\n') continue;
    const auto number = NumberAt(text.substr(at + wanted.size()));
    return number && *number < (uint64_t{1} << 50) ? std::optional(*number << 10) : std::nullopt;
  }
  return std::nullopt;
}

std::optional<uint64_t> FreeInGroup(std::string_view limit, std::string_view usage, std::string_view stat) {
  constexpr uint64_t kNone = uint64_t{1} << 62;  // v1 has no word for it
  const auto most = NumberAt(limit), used = NumberAt(usage);
  if (!most || !used || *most >= kNone) return std::nullopt;
  uint64_t cache = 0;
  for (const char* name : {"inactive_file", "active_file"}) {
    const uint64_t with_children = LineOf(stat, std::string("total_") + name);  // v1
    cache += with_children > 0 ? with_children : LineOf(stat, name);
  }
  const uint64_t kept = *used - std::min(cache, *used);
  return *most > kept ? *most - kept : 0;
}

FreeMemory FreeOf(const MemoryLimits& limits) {
  FreeMemory free;
  const auto tighten = [&free](const std::optional<uint64_t>& limit, bool pages, const char* name) {
    if (!limit) return;
    if (pages) free.pages = std::min(free.pages, *limit);
    if (*limit >= free.own) return;
    free.own = *limit;
    free.limit = name;
  };
  tighten(limits.system, true, "");
  tighten(limits.cgroup, true, " (the cgroup's limit)");
  tighten(limits.address_space, false, " (ulimit -v)");
  tighten(limits.data, false, " (ulimit -d)");
  return free;
}

MemoryLimits ReadMemoryLimits(const std::string& root) {
  MemoryLimits limits;
  limits.system = KilobytesOf(Contents(root + "/proc/meminfo"), "MemAvailable");
  limits.cgroup = CgroupFree(root);
  if (!root.empty()) return limits;
  const std::string status = Contents("/proc/self/status");
  limits.address_space = UlimitFree(RLIMIT_AS, KilobytesOf(status, "VmSize"));
  limits.data = UlimitFree(RLIMIT_DATA, KilobytesOf(status, "VmData"));
  return limits;
}

std::string MemoryText(uint64_t bytes) {
  char text[32];
  const auto value = static_cast<double>(bytes);
  if (bytes >= 1'000'000'000) {
    std::snprintf(text, sizeof(text), "%.1f GB", 1e-9 * value);
  } else {
    std::snprintf(text, sizeof(text), "%.0f MB", 1e-6 * value);
  }
  return text;
}

std::string FreeText(const FreeMemory& free) {
  if (free.own == ~uint64_t{0}) return "less is free";
  return MemoryText(free.own) + " are free" + free.limit;
}

void FailAllocation(uint64_t bytes) {
  throw UserError(MemoryText(bytes) + " of memory are needed, and " + FreeText(FreeNow()),
                  "weights that 'hydrant convert' wrote take the least");
}

}  // namespace hydrant::base
