// SPDX-License-Identifier: Apache-2.0
// The fields of a JSON object that a client has sent. Every error names the field; a field that nobody has asked for is
// one, too.
#pragma once

#include <cstdint>
#include <optional>
#include <set>
#include <string>
#include <string_view>
#include <vector>

#include "base/json.h"

namespace hydrant::server {

class Fields {
 public:
  // `path` stands before names in errors ("stream_options."). `object` must outlive this. Throws ApiError where it is
  // no object.
  explicit Fields(const base::Json& object, std::string path = {});

  // The field's value; null where it is absent or null.
  const base::Json* Find(std::string_view name);
  std::optional<bool> Bool(std::string_view name);
  std::optional<int64_t> Integer(std::string_view name, int64_t min, int64_t max);
  // 64 bits, with a sign or without.
  std::optional<uint64_t> Seed(std::string_view name);
  std::optional<double> Number(std::string_view name, double min, double max);
  std::optional<std::string> String(std::string_view name);
  std::optional<std::vector<int32_t>> Ids(std::string_view name);
  // Fields that are taken and change nothing.
  void Ignore(const std::vector<std::string_view>& names);
  // A field that cannot be honoured: refused, but for null and these values.
  void Refuse(std::string_view name, const std::vector<base::Json>& harmless);
  // Refuses what was not asked for.
  void CheckNoOthers() const;

  std::string PathOf(std::string_view name) const { return path_ + std::string(name); }
  [[noreturn]] void Fail(std::string_view name, const std::string& expected) const;

 private:
  const base::Json* object_;
  std::string path_;
  std::set<std::string, std::less<>> asked_;
};

// The list of token ids in `value`, of the field `name`.
std::vector<int32_t> IdList(const base::Json& value, const std::string& name);

}  // namespace hydrant::server
