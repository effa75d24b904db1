// SPDX-License-Identifier: Apache-2.0
#include "server/api/fields.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <limits>

#include "server/api/api_error.h"

namespace hydrant::server {
namespace {

std::string Shown(const base::Json& value) {
  std::string text = base::DumpJson(value);
  if (text.size() > 80) text = text.substr(0, 77) + "...";
  return text;
}

// As in JSON: 1.0 is an integer too, as Python's clients may send it.
std::optional<int64_t> IntegerOf(const base::Json& value) {
  if (value.is_number_unsigned() && value.get<uint64_t>() > uint64_t{std::numeric_limits<int64_t>::max()}) return {};
  if (value.is_number_integer()) return value.get<int64_t>();
  if (!value.is_number_float()) return {};
  const double number = value.get<double>();
  if (std::abs(number) > 9e15 || number != std::floor(number)) return {};
  return static_cast<int64_t>(number);
}

}  // namespace

Fields::Fields(const base::Json& object, std::string path) : object_(&object), path_(std::move(path)) {
  if (object.is_object()) return;
  const std::string name = path_.empty() ? "the request" : "'" + path_.substr(0, path_.size() - 1) + "'";
  throw ApiError(400, fmt::format("{} is {}, expected an object", name, Shown(object)),
                 path_.empty() ? "" : path_.substr(0, path_.size() - 1));
}

const base::Json* Fields::Find(std::string_view name) {
  asked_.emplace(name);
  const auto found = object_->find(name);
  return found == object_->end() || found->is_null() ? nullptr : &*found;
}

void Fields::Fail(std::string_view name, const std::string& expected) const {
  const std::string path = PathOf(name);
  throw ApiError(400, fmt::format("'{}' is {}, expected {}", path, Shown(object_->at(std::string(name))), expected),
                 path);
}

std::optional<bool> Fields::Bool(std::string_view name) {
  const base::Json* const value = Find(name);
  if (value == nullptr) return {};
  if (!value->is_boolean()) Fail(name, "true or false");
  return value->get<bool>();
}

std::optional<int64_t> Fields::Integer(std::string_view name, int64_t min, int64_t max) {
  const base::Json* const value = Find(name);
  if (value == nullptr) return {};
  const std::optional<int64_t> number = IntegerOf(*value);
  if (!number || *number < min || *number > max) Fail(name, fmt::format("an integer, {} to {}", min, max));
  return number;
}

std::optional<uint64_t> Fields::Seed(std::string_view name) {
  const base::Json* const value = Find(name);
  if (value == nullptr) return {};
  if (value->is_number_unsigned()) return value->get<uint64_t>();
  const std::optional<int64_t> number = IntegerOf(*value);
  if (!number) Fail(name, "an integer of 64 bits");
  return static_cast<uint64_t>(*number);
}

std::optional<double> Fields::Number(std::string_view name, double min, double max) {
  const base::Json* const value = Find(name);
  if (value == nullptr) return {};
  if (!value->is_number()) Fail(name, "a number");
  const double number = value->get<double>();
  if (!(number >= min && number <= max)) Fail(name, fmt::format("a number, {} to {}", min, max));
  return number;
}

std::optional<std::string> Fields::String(std::string_view name) {
  const base::Json* const value = Find(name);
  if (value == nullptr) return {};
  if (!value->is_string()) Fail(name, "a string");
  return value->get<std::string>();
}

std::optional<std::vector<int32_t>> Fields::Ids(std::string_view name) {
  const base::Json* const value = Find(name);
  if (value == nullptr) return {};
  return IdList(*value, PathOf(name));
}

void Fields::Ignore(const std::vector<std::string_view>& names) {
  for (const std::string_view name : names) asked_.emplace(name);
}

void Fields::Refuse(std::string_view name, const std::vector<base::Json>& harmless) {
  const base::Json* const value = Find(name);
  if (value == nullptr || std::ranges::find(harmless, *value) != harmless.end()) return;
  const std::string path = PathOf(name);
  throw ApiError(400, fmt::format("'{}' is {}, and this server cannot do that: leave it out", path, Shown(*value)),
                 path, "unsupported_parameter");
}

void Fields::CheckNoOthers() const {
  for (const auto& [name, value] : object_->items()) {
    if (asked_.contains(name)) continue;
    throw ApiError(400, fmt::format("Unrecognized request argument supplied: {}", PathOf(name)), PathOf(name),
                   "unknown_parameter");
  }
}

std::vector<int32_t> IdList(const base::Json& value, const std::string& name) {
  const auto fail = [&](const base::Json& found) {
    throw ApiError(400, fmt::format("'{}' has {}, expected a list of token ids", name, Shown(found)), name);
  };
  if (!value.is_array()) fail(value);
  std::vector<int32_t> ids;
  ids.reserve(value.size());
  for (const base::Json& element : value) {
    const std::optional<int64_t> id = IntegerOf(element);
    if (!id || *id < 0 || *id > std::numeric_limits<int32_t>::max()) fail(element);
    ids.push_back(static_cast<int32_t>(*id));
  }
  return ids;
}

}  // namespace hydrant::server
