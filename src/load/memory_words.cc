// SPDX-License-Identifier: Apache-2.0
#include "load/memory_words.h"

#include <utility>

namespace hydrant::load {

FileError MemoryRefusal(const Packing& packing, const model::PackNeed& need, const base::FreeMemory& free) {
  const bool packed = packing.format.starts_with("w");
  const bool fits = packed && need.settled_bytes + packing.stays <= free.pages;
  const std::string format = fits ? packing.format : "w4a8";
  const uint64_t then = (fits ? need.settled_bytes : need.bytes_in_4_bits) + packing.stays;
  std::string command = packing.command;
  if (const size_t at = command.find("FORMAT"); at != std::string::npos) command.replace(at, 6, format);
  std::string hint = "'" + command + "' once, then " + base::MemoryText(then);
  if (then > free.pages) hint += ", which is more than is free too: it is read from the disk again for every token";
  return {packing.what,
          "needs " + base::MemoryText(need.bytes) + " of memory in " + packing.format + ", and " + base::FreeText(free),
          hint};
}

std::string PagingWarning(const std::string& model, uint64_t weight_bytes, uint64_t free_pages) {
  return model + ": the weights take " + base::MemoryText(weight_bytes) + ", and " + base::MemoryText(free_pages) +
         " of memory are free: much of them is read from the disk again for every token; 'hydrant convert "
         "ConvertOptions::weights w4a8' makes them smaller";
}

}  // namespace hydrant::load
