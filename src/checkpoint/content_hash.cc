// SPDX-License-Identifier: Apache-2.0
#include "checkpoint/content_hash.h"

#include <algorithm>
#include <array>
#include <bit>
#include <cstring>

#include "base/mapped_file.h"

namespace hydrant::checkpoint {
namespace {

constexpr uint64_t kPrime1 = 0x9E3779B185EBCA87U, kPrime2 = 0xC2B2AE3D27D4EB4FU, kPrime3 = 0x165667B19E3779F9U,
                   kPrime4 = 0x85EBCA77C2B2AE63U, kPrime5 = 0x27D4EB2F165667C5U;

template <typename T>
uint64_t Read(const uint8_t* from) {
  T value = 0;
  std::memcpy(&value, from, sizeof value);
  return value;
}

uint64_t Round(uint64_t lane, uint64_t input) { return std::rotl(lane + input * kPrime2, 31) * kPrime1; }

// Whole stripes of 32 bytes in four lanes; moves `at` behind them.
uint64_t Stripes(const uint8_t*& at, const uint8_t* end, const std::function<void()>& look) {
  std::array<uint64_t, 4> lanes = {kPrime1 + kPrime2, kPrime2, 0, 0 - kPrime1};
  while (end - at >= 32) {
    constexpr std::ptrdiff_t kPart = 8 << 20;
    if (look) look();
    for (const uint8_t* part = at + std::min(kPart, end - at); part - at >= 32; at += 32) {
      for (size_t i = 0; i < 4; ++i) lanes[i] = Round(lanes[i], Read<uint64_t>(at + 8 * i));
    }
  }
  uint64_t hash = std::rotl(lanes[0], 1) + std::rotl(lanes[1], 7) + std::rotl(lanes[2], 12) + std::rotl(lanes[3], 18);
  for (const uint64_t lane : lanes) hash = (hash ^ Round(0, lane)) * kPrime1 + kPrime4;
  return hash;
}

}  // namespace

uint64_t XxHash64(std::span<const uint8_t> bytes, const std::function<void()>& look) {
  const uint8_t* at = bytes.data();
  const uint8_t* end = at + bytes.size();
  uint64_t hash = bytes.size() >= 32 ? Stripes(at, end, look) : kPrime5;
  hash += bytes.size();
  for (; end - at >= 8; at += 8) hash = std::rotl(hash ^ Round(0, Read<uint64_t>(at)), 27) * kPrime1 + kPrime4;
  if (end - at >= 4) {
    hash = std::rotl(hash ^ (Read<uint32_t>(at) * kPrime1), 23) * kPrime2 + kPrime3;
    at += 4;
  }
  for (; at < end; ++at) hash = std::rotl(hash ^ (*at * kPrime5), 11) * kPrime1;
  hash = (hash ^ (hash >> 33)) * kPrime2;
  hash = (hash ^ (hash >> 29)) * kPrime3;
  return hash ^ (hash >> 32);
}

std::string HashOfFiles(const std::vector<std::string>& paths, const std::function<void()>& look) {
  std::vector<uint8_t> hashes;
  uint64_t hash = 0;
  for (const std::string& path : paths) {
    hash = XxHash64(base::MappedFile::Open(path)->bytes(), look);
    for (int shift = 0; shift < 64; shift += 8) hashes.push_back(static_cast<uint8_t>(hash >> shift));
  }
  if (paths.size() > 1) hash = XxHash64(hashes);
  std::string text = "xxh64:";
  for (int shift = 60; shift >= 0; shift -= 4) text += "0123456789abcdef"[(hash >> shift) & 15];
  return text;
}

}  // namespace hydrant::checkpoint
