// SPDX-License-Identifier: Apache-2.0
#include "base/json.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <utility>

#include "base/mapped_file.h"
#include "base/placeholder.h"
#include "hydrant/error.h"

template class nlohmann::basic_json<>;

namespace hydrant::base {
namespace {

constexpr size_t kMaxDepth = 64;

// The value as it stands in the file, cut to a length that fits an error line.
std::string Shown(const Json& value) {
  std::string text = DumpJson(value);
  if (text.size() > 80) text = text.substr(0, 77) + "...";
  return text;
}

std::string Joined(const std::string& path, std::string_view key) {
  return path.empty() ? std::string(key) : path + "." + std::string(key);
}

// Builds the value as the parser reads it. The parser's own callback interface would need a second copy of all keys to
// find duplicates, and takes twice as long on a vocabulary of 128000 tokens.
class DomBuilder : public nlohmann::json_sax<Json> {
 public:
  explicit DomBuilder(const std::string& file) : file_(file) {}

  Json Take() { return std::move(root_); }

  bool null() override { return Put(nullptr); }
  bool boolean(bool value) override { return Put(value); }
  bool number_integer(number_integer_t value) override { return Put(value); }
  bool number_unsigned(number_unsigned_t value) override { return Put(value); }
  bool number_float(number_float_t value, const string_t& /*text*/) override { return Put(value); }
  bool string(string_t& value) override { return Put(std::move(value)); }
  bool binary(binary_t& value) override { return Put(std::move(value)); }
  bool start_object(size_t /*size*/) override { return Open(Json::object()); }
  bool start_array(size_t /*size*/) override { return Open(Json::array()); }
  bool end_object() override { return Close(); }
  bool end_array() override { return Close(); }

  bool key(string_t& name) override {
    const auto [member, inserted] = open_.back()->get_ref<Json::object_t&>().try_emplace(std::move(name));
    if (!inserted) throw FileError(file_, "JSON key " + Shown(member->first) + " appears twice in one object");
    member_ = &member->second;
    return true;
  }
  bool parse_error(size_t /*position*/, const std::string& /*token*/, const Json::exception& error) override {
    throw FileError(file_, "is not valid JSON: " + ProblemOf(error));
  }

 private:
  bool Put(Json value) {
    Place(std::move(value));
    return true;
  }
  // Where the value is now; containers stay in place while they are open, because only the innermost one grows.
  Json* Place(Json value) {
    if (open_.empty()) {
      root_ = std::move(value);
      return &root_;
    }
    if (open_.back()->is_array()) {
      auto& elements = open_.back()->get_ref<Json::array_t&>();
      elements.push_back(std::move(value));
      return &elements.back();
    }
    *member_ = std::move(value);
    return member_;
  }
  bool Open(Json container) {
    if (open_.size() >= kMaxDepth) {
      throw FileError(file_, "JSON is nested deeper than " + std::to_string(kMaxDepth) + " levels");
    }
    open_.push_back(Place(std::move(container)));
    return true;
  }
  bool Close() {
    open_.pop_back();
    return true;
  }

  const std::string& file_;
  Json root_;
  std::vector<Json*> open_;  // containers that are not closed yet, outermost first
  Json* member_ = nullptr;   // the value of the last key
};

}  // namespace

Json ParseJson(std::string_view text, const std::string& file) {
  RefusePlaceholder(text, file);
  DomBuilder builder(file);
  Json::sax_parse(text.begin(), text.end(), &builder);
  return builder.Take();
}

std::string ProblemOf(const Json::exception& error) {
  const std::string_view what = error.what();
  const size_t end = what.starts_with("[json.exception.") ? what.find("] ") : std::string_view::npos;
  const std::string_view problem = end == std::string_view::npos ? what : what.substr(end + 2);
  constexpr size_t kMost = 300;  // it repeats what it has read
  return problem.size() > kMost ? std::string(problem.substr(0, kMost)) + "..." : std::string(problem);
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
