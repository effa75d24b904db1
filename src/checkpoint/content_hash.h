// SPDX-License-Identifier: Apache-2.0
// XXH64 (Y. Collet, https://github.com/Cyan4973/xxHash, doc/xxhash_spec.md), seed 0: says which file a converted one
// was made from, as fast as memory can be read; no protection against forgery. `xxhsum -H1 FILE` prints the same.
#pragma once

#include <cstdint>
#include <functional>
#include <span>
#include <string>
#include <vector>

namespace hydrant::checkpoint {

// `look` is called every 8 MB, and may throw to end the work.
uint64_t XxHash64(std::span<const uint8_t> bytes, const std::function<void()>& look = {});

// "xxh64:0123456789abcdef" of one file; of several, the hash of their hashes (8 little-endian bytes each) in the given
// order. Throws FileError.
std::string HashOfFiles(const std::vector<std::string>& paths, const std::function<void()>& look = {});

}  // namespace hydrant::checkpoint
