// SPDX-License-Identifier: Apache-2.0
#include "server/api_keys.h"

#include <openssl/crypto.h>
#include <openssl/sha.h>

#include <algorithm>
#include <sstream>

#include "base/mapped_file.h"
#include "hydrant/error.h"

namespace hydrant::server {
namespace {

constexpr size_t kLeastKey = 16;  // characters; fewer can be guessed
constexpr std::string_view kScheme = "Bearer ";

}  // namespace

ApiKeys::Digest ApiKeys::DigestOf(std::string_view text) {
  Digest digest;
  SHA256(reinterpret_cast<const unsigned char*>(text.data()), text.size(), digest.data());
  return digest;
}

ApiKeys ApiKeys::Read(const std::string& file) {
  ApiKeys keys;
  std::istringstream lines(base::ReadTextFile(file));
  int number = 0;
  for (std::string line; std::getline(lines, line);) {
    ++number;
    std::istringstream words(line);
    std::string key, name, more;
    words >> key >> name >> more;
    if (key.empty() || key[0] == '#') continue;
    const std::string where = "line " + std::to_string(number);
    if (!more.empty()) throw FileError(file, where + " has more than a key and a name");
    if (key.size() < kLeastKey) {
      throw FileError(file, where + " has a key of " + std::to_string(key.size()) + " characters, expected 16 at least",
                      "'openssl rand -hex 24' makes one");
    }
    if (name.empty()) name = "key " + std::to_string(number);
    const Digest digest = DigestOf(key);
    for (const Key& other : keys.keys_) {
      if (other.digest == digest) throw FileError(file, where + " repeats the key of '" + other.name + "'");
      if (other.name == name) throw FileError(file, where + " has the name '" + name + "' of another key");
    }
    keys.keys_.push_back({.name = name, .digest = digest});
  }
  if (keys.empty()) throw FileError(file, "has no key, expected one a line");
  return keys;
}

const std::string* ApiKeys::Find(std::string_view authorization) const {
  const bool has_scheme = authorization.size() > kScheme.size() &&
                          std::ranges::equal(
                              authorization.substr(0, kScheme.size()), kScheme, {},
                              [](char c) { return c >= 'A' && c <= 'Z' ? static_cast<char>(c - 'A' + 'a') : c; },
                              [](char c) { return c >= 'A' && c <= 'Z' ? static_cast<char>(c - 'A' + 'a') : c; });
  const Digest digest = DigestOf(has_scheme ? authorization.substr(kScheme.size()) : "");
  const std::string* found = nullptr;
  for (const Key& key : keys_) {
    if (CRYPTO_memcmp(key.digest.data(), digest.data(), digest.size()) == 0) found = &key.name;
  }
  return found;
}

}  // namespace hydrant::server
