// SPDX-License-Identifier: Apache-2.0
// What every collective gives on a rank, in bits: the same for all kinds of communicators.
#pragma once

#include <array>
#include <bit>
#include <cstdio>
#include <initializer_list>
#include <string>
#include <vector>

#include "parallel/communicator.h"

namespace hydrant::parallel::test {

// FNV-1a, of 64 bits.
inline std::string HashOf(std::span<const std::byte> bytes) {
  uint64_t hash = 0xcbf29ce484222325;
  for (const std::byte b : bytes) hash = (hash ^ static_cast<uint64_t>(b)) * 0x100000001b3;
  std::array<char, 32> text = {};
  std::snprintf(text.data(), text.size(), "%016llx\n", static_cast<unsigned long long>(hash));
  return text.data();
}

template <typename T>
std::string SumHash(Communicator& ranks, size_t count) {
  std::vector<T> numbers(count);
  uint64_t state = static_cast<uint64_t>(ranks.rank()) * 977 + count;
  for (T& number : numbers) {
    state = state * 6364136223846793005 + 1442695040888963407;
    number = static_cast<T>(static_cast<double>(static_cast<int64_t>(state)) / static_cast<double>(state >> 40 | 1));
  }
  ranks.TreeSum(std::span(numbers));
  return HashOf(std::as_bytes(std::span(numbers)));
}

inline std::string Transcript(Communicator& ranks) {
  std::string text = std::to_string(ranks.rank()) + " of " + std::to_string(ranks.size()) + "\n";
  // The last takes several pieces, the first of them with long messages.
  for (const size_t count : std::initializer_list<size_t>{0, 1, 2, 5, 1000, 100'003, 4'000'003}) {
    text += SumHash<float>(ranks, count) + SumHash<double>(ranks, count);
  }
  for (const size_t count : std::initializer_list<size_t>{1, 100, 3'000'000}) {
    std::vector<int32_t> own(count, 7 * ranks.rank() + 1), all(count * static_cast<size_t>(ranks.size()));
    ranks.AllGather(std::as_bytes(std::span(own)), BytesOf(std::span(all)));
    text += HashOf(std::as_bytes(std::span(all)));
    ranks.Broadcast(BytesOf(std::span(own)), ranks.size() - 1);
    text += HashOf(std::as_bytes(std::span(own)));
  }
  ranks.Barrier();
  return text + std::to_string(ranks.MaxReduce(ranks.rank() * 3 - 1)) + "\n";
}

}  // namespace hydrant::parallel::test
