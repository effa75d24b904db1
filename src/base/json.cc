// SPDX-License-Identifier: Apache-2.0
#include "base/json.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <set>
#include <utility>

#include "base/mapped_file.h"
#include "hydrant/error.h"

namespace hydrant::base {
namespace {

constexpr int kMaxDepth = 64;

// The value as it stands in the file, cut to a length that fits an error line.
std::string Shown(const Json& value) {
  std::string text = DumpJson(value);
  if (text.size() > 80) text = text.substr(0, 77) + "...";
  return text;
}

std::string Joined(const std::string& path, std::string_view key) {
  return path.empty() ? std::string(key) : path + "." + std::string(key);
}

}  // namespace

Json ParseJson(std::string_view text, const std::string& file) {
  std::vector<std::set<std::string>> keys;
  const Json::parser_callback_t callback = [&](int depth, Json::parse_event_t event, Json& parsed) {
    if (depth > kMaxDepth) throw FileError(file, "JSON is nested deeper than " + std::to_string(kMaxDepth) + " levels");
    if (event == Json::parse_event_t::object_start) keys.emplace_back();
    if (event == Json::parse_event_t::object_end) keys.pop_back();
    if (event == Json::parse_event_t::key && !keys.back().insert(parsed.get_ref<const std::string&>()).second) {
      throw FileError(file, "JSON key " + DumpJson(parsed) + " appears twice in one object");
    }
    return true;
  };
  try {
    return Json::parse(text.begin(), text.end(), callback);
  } catch (const Json::exception& e) {
    throw FileError(file, std::string("is not valid JSON: ") + e.what());
  }
}

Json ReadJsonFile(const std::string& path) { return ParseJson(ReadTextFile(path), path); }

std::string DumpJson(const Json& value) { return value.dump(-1, ' ', true, Json::error_handler_t::replace); }

bool JsonView::Has(std::string_view key) const {
  if (!value_->is_object()) return false;
  const auto it = value_->find(key);
  return it != value_->end() && !it->is_null();
}

JsonView JsonView::At(std::string_view key) const {
  if (!value_->is_object()) Fail("an object");
  const auto it = value_->find(key);
  if (it == value_->end()) throw FileError(file_, "'" + Joined(path_, key) + "' is missing");
  JsonView member(*it, file_);
  member.path_ = Joined(path_, key);
  return member;
}

JsonView JsonView::At(size_t index) const {
  if (!value_->is_array() || index >= value_->size()) Fail("a longer array");
  JsonView element((*value_)[index], file_);
  element.path_ = path_ + "[" + std::to_string(index) + "]";
  return element;
}

size_t JsonView::Size() const {
  if (!value_->is_array()) Fail("an array");
  return value_->size();
}

int64_t JsonView::Int(int64_t min, int64_t max) const {
  const std::string expected = "an integer from " + std::to_string(min) + " to " + std::to_string(max);
  if (!value_->is_number_integer()) Fail(expected);
  if (value_->is_number_unsigned() &&
      value_->get<uint64_t>() > static_cast<uint64_t>(std::numeric_limits<int64_t>::max())) {
    Fail(expected);
  }
  const int64_t number = value_->get<int64_t>();
  if (number < min || number > max) Fail(expected);
  return number;
}

double JsonView::Number() const {
  if (!value_->is_number() || !std::isfinite(value_->get<double>())) Fail("a finite number");
  return value_->get<double>();
}

bool JsonView::Bool() const {
  if (!value_->is_boolean()) Fail("true or false");
  return value_->get<bool>();
}

std::string JsonView::String() const {
  if (!value_->is_string()) Fail("a string");
  return value_->get<std::string>();
}

std::vector<int64_t> JsonView::IntList(int64_t min, int64_t max) const {
  std::vector<int64_t> numbers;
  numbers.reserve(Size());
  for (size_t i = 0; i < value_->size(); ++i) numbers.push_back(At(i).Int(min, max));
  return numbers;
}

void JsonView::Fail(const std::string& expected, const std::string& hint) const {
  const std::string name = path_.empty() ? "the JSON value" : "'" + path_ + "'";
  throw FileError(file_, name + " is " + Shown(*value_) + ", expected " + expected, hint);
}

}  // namespace hydrant::base
