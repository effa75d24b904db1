// SPDX-License-Identifier: Apache-2.0
#include "cli/terminal/sections.h"

#include <fmt/core.h>

#include <algorithm>
#include <array>

#include "base/json.h"
#include "cli/terminal/escape.h"

namespace hydrant::cli {
namespace {

constexpr size_t kMaxListed = 12;
constexpr size_t kMaxGroupsListed = 2;  // groups of tied names are long

std::string Scalar(const base::Json& value) {
  if (value.is_null()) return "none";
  if (value.is_boolean()) return value.get<bool>() ? "yes" : "no";
  if (value.is_string()) return value.get<std::string>();
  return base::DumpJson(value);
}

// "a = b = c": names of one storage.
std::string JoinedNames(const base::Json& names) {
  std::string text;
  const size_t listed = std::min(names.size(), kMaxListed);
  for (size_t i = 0; i < listed; ++i) text += fmt::format("{}{}", i == 0 ? "" : " = ", Scalar(names[i]));
  if (names.size() > listed) text += fmt::format(" and {} more", names.size() - listed);
  return text;
}

std::string ValueText(const std::string& key, const base::Json& value) {
  if (key == "parameters" && value.is_number()) {
    return fmt::format("{} ({:.2f} M)", value.get<uint64_t>(), static_cast<double>(value.get<uint64_t>()) / 1e6);
  }
  if (key == "bytes" && value.is_number()) return ByteText(value.get<uint64_t>());
  if (value.is_object()) {
    std::string text;
    for (const auto& [name, member] : value.items()) {
      text += fmt::format("{}{} {}", text.empty() ? "" : ", ", name, ValueText(name, member));
    }
    return text.empty() ? "none" : text;
  }
  if (!value.is_array()) return Scalar(value);
  if (value.empty()) return "none";
  std::string text;
  const bool groups = value[0].is_array();
  const size_t listed = std::min(value.size(), groups ? kMaxGroupsListed : kMaxListed);
  for (size_t i = 0; i < listed; ++i) {
    const std::string element = groups ? JoinedNames(value[i]) : Scalar(value[i]);
    text += fmt::format("{}{}", i == 0 ? "" : groups ? "; " : ", ", element);
  }
  if (value.size() > listed) text += fmt::format("{} and {} more", groups ? ";" : ",", value.size() - listed);
  return text;
}

}  // namespace

std::string ByteText(uint64_t bytes) {
  constexpr std::array<const char*, 4> units = {"B", "kB", "MB", "GB"};
  auto amount = static_cast<double>(bytes);
  size_t unit = 0;
  while (amount >= 1000 && unit + 1 < units.size()) {
    amount /= 1000;
    ++unit;
  }
  return unit == 0 ? fmt::format("{} B", bytes) : fmt::format("{:.1f} {}", amount, units[unit]);
}

std::string SectionsText(std::span<const Section> sections) {
  std::string text;
  for (const Section& section : sections) {
    if (!text.empty()) text += '\n';
    text += section.name + '\n';
    for (const auto& [key, value] : section.facts) {
      std::string label = key;
      std::replace(label.begin(), label.end(), '_', ' ');
      text += fmt::format("  {:22} {}\n", label, EscapedName(ValueText(key, value)));
    }
  }
  return text;
}

base::Json SectionsJson(std::span<const Section> sections) {
  base::Json json = base::Json::object();
  for (const Section& section : sections) {
    base::Json facts = base::Json::object();
    for (const auto& [key, value] : section.facts) facts[key] = value;
    json[section.name] = std::move(facts);
  }
  return json;
}

}  // namespace hydrant::cli
