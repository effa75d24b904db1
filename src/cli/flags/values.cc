// SPDX-License-Identifier: Apache-2.0
#include "cli/flags/values.h"

#include <fmt/core.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <charconv>
#include <cmath>
#include <filesystem>
#include <limits>
#include <system_error>

#include "base/json.h"
#include "base/mapped_file.h"
#include "base/nearest.h"
#include "base/placeholder.h"
#include "hydrant/error.h"
#include "load/other_kinds.h"

namespace hydrant::cli {
namespace {

std::string Shown(const std::string& text) {
  return base::DumpJson(text.size() <= 60 ? text : text.substr(0, 57) + "...");
}

// The whole text as a number of type T; false when it is anything else or does not fit.
template <typename T>
bool ReadNumber(const std::string& text, T* number) {
  const char* begin = text.data();
  const char* end = begin + text.size();
  if (begin != end && *begin == '+') ++begin;
  const auto [rest, error] = std::from_chars(begin, end, *number);
  return error == std::errc() && rest == end && begin != end;
}

std::string_view Trimmed(std::string_view text) {
  constexpr std::string_view kSpace = " \t\r\n";
  const size_t first = text.find_first_not_of(kSpace);
  return first == std::string_view::npos ? "" : text.substr(first, text.find_last_not_of(kSpace) - first + 1);
}

// Integers and commas without brackets.
bool IsBareList(std::string_view text) {
  return !Trimmed(text).empty() && text.find_first_not_of("0123456789-, \t\r\n") == std::string_view::npos;
}

}  // namespace

int64_t ParseInteger(std::string_view flag, const std::string& text, int64_t min, int64_t max) {
  int64_t number = 0;
  if (!ReadNumber(text, &number) || number < min || number > max) {
    throw UserError(fmt::format("{} is {}, expected an integer from {} to {}", flag, Shown(text), min, max));
  }
  return number;
}

uint64_t ParseSeed(std::string_view flag, const std::string& text) {
  uint64_t number = 0;
  if (!ReadNumber(text, &number)) {
    throw UserError(fmt::format("{} is {}, expected an integer from 0 to {}", flag, Shown(text),
                                std::numeric_limits<uint64_t>::max()));
  }
  return number;
}

uint64_t ParseBytes(std::string_view flag, const std::string& text) {
  constexpr std::string_view kUnits = "kmgt";
  std::string lower = text;
  std::ranges::transform(lower, lower.begin(),
                         [](char c) { return c >= 'A' && c <= 'Z' ? static_cast<char>(c + 32) : c; });
  std::string_view number = lower;
  if (number.ends_with("ib")) number.remove_suffix(2);
  if (number.ends_with('b')) number.remove_suffix(1);
  int shift = 0;
  if (!number.empty() && kUnits.find(number.back()) != std::string_view::npos) {
    shift = 10 * (static_cast<int>(kUnits.find(number.back())) + 1);
    number.remove_suffix(1);
  }
  uint64_t count = 0;
  if (!ReadNumber(std::string(number), &count) || count < 1 || count > (uint64_t{1} << (60 - shift))) {
    throw UserError(fmt::format("{} is {}, expected a number of bytes such as 8G or 512M", flag, Shown(text)));
  }
  return count << shift;
}

float ParseFloat(std::string_view flag, const std::string& text, const FloatRange& range) {
  double number = 0;
  const bool read = ReadNumber(text, &number) && std::isfinite(number);
  const auto rounded = static_cast<float>(number);
  // Checked as the float that will be used: 1e-50 is not "above 0".
  if (!read || number > range.max || number < range.min || (range.open_below && !(rounded > range.min))) {
    throw UserError(fmt::format("{} is {}, expected a number {} {}, at most {}", flag, Shown(text),
                                range.open_below ? "above" : "of at least", range.min, range.max));
  }
  return rounded;
}

std::string ParseChoice(std::string_view flag, const std::string& text, std::span<const std::string_view> choices) {
  for (const std::string_view choice : choices) {
    if (choice == text) return text;
  }
  const std::string nearest = base::Nearest(text, choices);
  throw UserError(fmt::format("{} is {}, expected one of {}", flag, Shown(text), fmt::join(choices, ", ")),
                  nearest.empty() ? "" : "did you mean " + nearest + "?");
}

std::vector<std::string> ListItems(const std::string& text) {
  std::string_view rest = Trimmed(text);
  if (rest.starts_with('[') && rest.ends_with(']')) rest = rest.substr(1, rest.size() - 2);
  std::vector<std::string> items;
  for (size_t begin = 0; begin <= rest.size();) {
    const size_t end = std::min(rest.find(',', begin), rest.size());
    std::string_view item = Trimmed(rest.substr(begin, end - begin));
    if (item.size() > 1 && item.front() == '"' && item.back() == '"') item = item.substr(1, item.size() - 2);
    items.emplace_back(item);
    begin = end + 1;
  }
  return items;
}

std::vector<int32_t> ParseIdList(std::string_view flag, const std::string& text, bool or_file) {
  const bool brackets = Trimmed(text).starts_with('[');
  const bool file = !brackets && or_file && access(text.c_str(), F_OK) == 0;
  if (!brackets && !file && !IsBareList(text)) {
    if (or_file && text.find_first_not_of(" \t\r\n") != std::string::npos) {
      throw FileError(
          text, "there is no such file",
          fmt::format("{} takes a list of token ids such as 1,2 or [1, 2], or a file that holds one", flag));
    }
    throw UserError(fmt::format("{} is {}, expected a list of token ids such as 1,2 or [1, 2]", flag, Shown(text)));
  }
  if (!file && text.size() > kMaxInputBytes) throw UserError(fmt::format("{} is longer than 64 MB", flag));
  const std::string where = file ? text : std::string(flag);
  std::string list = file ? base::ReadTextFile(text, kMaxInputBytes) : text;
  const bool bare = IsBareList(list);
  if (bare && Trimmed(list).ends_with(',')) {
    throw UserError(fmt::format("{} is {}, expected a token id behind the comma", where, Shown(list)));
  }
  if (bare) list = "[" + list + "]";
  base::Json json = base::ParseJson(list, where);
  if (json.is_object() && json.contains("ids")) json = base::Json(json["ids"]);  // what 'hydrant tokenize' prints
  const std::vector<int64_t> wide = base::JsonView(json, where).IntList(0, std::numeric_limits<int32_t>::max());
  return {wide.begin(), wide.end()};
}

void CheckIsFolder(std::string_view flag, const std::string& path) {
  if (path.empty()) throw UserError(fmt::format("{} is empty", flag));
  std::error_code error;
  const std::filesystem::file_status status = std::filesystem::status(path, error);
  if (status.type() == std::filesystem::file_type::directory) return;
  const bool absent = !std::filesystem::exists(status);
  if (!absent) load::RefuseOtherKind(path, load::Role::kBase);
  const std::string hint = absent ? base::MissingPathHint(path) : "";
  throw FileError(path, absent ? "there is no such folder" : "is no folder",
                  hint.empty() ? fmt::format("{} takes a folder with config.json and weights", flag) : hint);
}

double ShortestDouble(float value) {
  char digits[32];
  const auto [end, error] = std::to_chars(digits, digits + sizeof(digits), value);
  double wide = value;
  if (error == std::errc()) std::from_chars(digits, end, wide);
  return wide;
}

}  // namespace hydrant::cli
