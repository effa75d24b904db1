// SPDX-License-Identifier: Apache-2.0
// JSON from untrusted files, on top of nlohmann::json: every error names the file and the path of the value.
#pragma once

#include <cstdint>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/json_fwd.h"

// Compiled once, in json.cc: in each file that reads JSON it takes seconds.
extern template class nlohmann::basic_json<>;

namespace hydrant::base {

// Parses `text`. `file` names it in errors. Throws FileError on malformed text, nesting deeper than 64,
// duplicate keys of an object, or invalid UTF-8.
Json ParseJson(std::string_view text, const std::string& file);
Json ReadJsonFile(const std::string& path);
// What the parser says is wrong, without the number that it gives its errors; cut where that is long.
std::string ProblemOf(const Json::exception& error);

// ASCII-escaped, one line; invalid UTF-8 in strings becomes U+FFFD.
std::string DumpJson(const Json& value);

// A value inside a file, with its path, for errors such as "config.json: 'rope_scaling.factor' is "x", expected a
// number". Holds a pointer into a Json that must outlive it.
class JsonView {
 public:
  JsonView(const Json& root, std::string file) : value_(&root), file_(std::move(file)) {}

  const std::string& file() const { return file_; }
  const std::string& path() const { return path_; }
  const Json& raw() const { return *value_; }

  bool is_null() const { return value_->is_null(); }
  bool is_object() const { return value_->is_object(); }
  bool is_array() const { return value_->is_array(); }
  bool is_string() const { return value_->is_string(); }
  bool is_number() const { return value_->is_number(); }
  bool is_integer() const { return value_->is_number_integer(); }
  bool is_bool() const { return value_->is_boolean(); }

  // True when the object has the key with a value other than null.
  bool Has(std::string_view key) const;
  // The member; throws FileError when this is not an object or the key is absent.
  JsonView At(std::string_view key) const;
  JsonView At(size_t index) const;
  size_t Size() const;  // of an array

  // Typed reads; throw FileError with the path when the value is of another type or out of range.
  int64_t Int(int64_t min, int64_t max) const;
  double Number() const;  // finite
  bool Bool() const;
  std::string String() const;
  std::vector<int64_t> IntList(int64_t min, int64_t max) const;

  // "'rope_scaling.factor' is "x", expected <expected>" as a FileError; for callers with their own rules.
  [[noreturn]] void Fail(const std::string& expected, const std::string& hint = {}) const;

 private:
  const Json* value_;
  std::string file_;
  std::string path_;
};

}  // namespace hydrant::base
