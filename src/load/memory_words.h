// SPDX-License-Identifier: Apache-2.0
// What a user is told where there is too little memory for a model. Numbers in, words out.
#pragma once

#include <cstdint>
#include <string>

#include "base/free_memory.h"
#include "hydrant/error.h"
#include "model/linear_packer.h"

namespace hydrant::load {

struct Packing {
  std::string what;     // the folder
  std::string format;   // that its weights become
  std::string command;  // that does it once, with FORMAT for the format
  uint64_t stays = 0;   // bytes that no format changes: the embedding
};

// For packing at load that needs more than is free. The command is named with the same format where its result fits,
// else with 4 bits.
FileError MemoryRefusal(const Packing& packing, const model::PackNeed& need, const base::FreeMemory& free);

// For weights in files that do not fit: they are read from the disk again for every token.
std::string PagingWarning(const std::string& model, uint64_t weight_bytes, uint64_t free_pages);

}  // namespace hydrant::load
