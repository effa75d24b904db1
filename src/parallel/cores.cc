// SPDX-License-Identifier: Apache-2.0
#include "parallel/cores.h"

#include <unistd.h>

#include <algorithm>
#include <array>
#include <fstream>
#include <string>

namespace hydrant::parallel {
namespace {

// The same for containers of one machine, whose host names differ.
std::string MachineName() {
  std::string name;
  std::ifstream file("/proc/sys/kernel/random/boot_id");
  if (std::getline(file, name) && !name.empty()) return name;
  std::array<char, 256> host = {};
  gethostname(host.data(), host.size() - 1);
  return host.data();
}

// FNV-1a, of 64 bits: ranks compare numbers instead of texts of any length.
uint64_t HashOf(const std::string& text) {
  uint64_t hash = 0xcbf29ce484222325;
  for (const char c : text) hash = (hash ^ static_cast<uint8_t>(c)) * 0x100000001b3;
  return hash;
}

}  // namespace

std::vector<int> CoresOf(int sharer, int sharers, int threads, const base::CoreOrder& allowed) {
  if (sharers <= 1 || allowed.num_cores == 0) return allowed.cpus;
  std::vector<int> cpus;
  for (int i = 0; i < std::min(threads, allowed.num_cores); ++i) {
    cpus.push_back(allowed.cpus[static_cast<size_t>((sharer * threads + i) % allowed.num_cores)]);
  }
  return cpus;
}

void TakeOwnCores(Communicator& ranks, int threads) {
  if (ranks.size() == 1) return;
  const base::CoreOrder allowed = base::AllowedCores();
  std::string place = MachineName();
  for (const int cpu : allowed.cpus) place += " " + std::to_string(cpu);
  const uint64_t own = HashOf(place);
  std::vector<uint64_t> places(static_cast<size_t>(ranks.size()));
  ranks.AllGather(std::as_bytes(std::span(&own, 1)), BytesOf(std::span(places)));
  const auto before = places.begin() + ranks.rank();
  const auto sharers = static_cast<int>(std::count(places.begin(), places.end(), own));
  if (sharers == 1) return;
  if (threads == 0) threads = std::max(1, base::DefaultThreads() / sharers);
  base::KeepTo(CoresOf(static_cast<int>(std::count(places.begin(), before, own)), sharers, threads, allowed));
}

}  // namespace hydrant::parallel
