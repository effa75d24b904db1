// SPDX-License-Identifier: Apache-2.0
// Who may ask: the keys of a file, compared in constant time.
#pragma once

#include <array>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace hydrant::server {

class ApiKeys {
 public:
  // No keys: everyone may ask.
  ApiKeys() = default;
  // One key a line, and behind white space its name for logs and metrics; names are told from one another, and a key
  // without one is "key N", N its line. Empty lines and lines that begin with '#' say nothing. Throws FileError for a
  // file without keys, a key of fewer than 16 characters, and a key or a name that is there twice.
  static ApiKeys Read(const std::string& file);

  bool empty() const { return keys_.empty(); }
  size_t size() const { return keys_.size(); }
  // The name of the key in an Authorization header ("Bearer KEY"); null where it is none of ours. How long this takes
  // depends on the length of the header and the number of keys alone.
  const std::string* Find(std::string_view authorization) const;

 private:
  using Digest = std::array<uint8_t, 32>;  // SHA-256
  struct Key {
    std::string name;
    Digest digest;
  };
  static Digest DigestOf(std::string_view text);

  std::vector<Key> keys_;
};

}  // namespace hydrant::server
