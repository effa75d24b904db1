// SPDX-License-Identifier: Apache-2.0
#include "base/text_parts.h"

#include <algorithm>

#include "hydrant/error.h"

namespace hydrant::base {
namespace {

class ArraySplitter {
 public:
  ArraySplitter(std::string_view text, const std::string& name) : text_(text), name_(name) {}

  void Split(const OnTextPart& on_part) {
    Skip();  // to the '['
    Advance();
    for (Skip(); !AtEnd() && text_[at_] != ']'; Skip()) {
      const size_t begin = at_, line = line_;
      EndOfElement();
      const std::string_view element = Trimmed(text_.substr(begin, at_ - begin));
      if (element.empty()) throw FileError(AtLine(name_, line), "expected a value in front of ','");
      if (!on_part({element, line})) return;
      if (AtEnd() || text_[at_] == ']') break;
      Advance();  // the ','
      Skip();
      if (!AtEnd() && text_[at_] == ']') throw FileError(AtLine(name_, line_), "expected a value behind ','");
    }
    if (AtEnd()) throw FileError(AtLine(name_, line_), "ends within the array, expected ']'");
    Advance();
    Skip();
    if (!AtEnd()) throw FileError(AtLine(name_, line_), "has more behind the array, expected its end");
  }

 private:
  bool AtEnd() const { return at_ >= text_.size(); }
  void Advance() {
    if (!AtEnd() && text_[at_] == '\n') ++line_;
    ++at_;
  }
  void Skip() {
    while (!AtEnd() && kBlank.find(text_[at_]) != std::string_view::npos) Advance();
  }
  void EndOfElement() {
    bool in_string = false;
    size_t depth = 0;
    for (; !AtEnd(); Advance()) {
      const char c = text_[at_];
      if (in_string) {
        if (c == '\\' && at_ + 1 < text_.size()) Advance();
        if (c == '"') in_string = false;
      } else if (c == '"') {
        in_string = true;
      } else if (c == '{' || c == '[') {
        ++depth;
      } else if (depth > 0 && (c == '}' || c == ']')) {
        --depth;
      } else if (depth == 0 && (c == ',' || c == ']')) {
        return;
      }
    }
  }

  std::string_view text_;
  const std::string& name_;
  size_t at_ = 0, line_ = 1;
};

}  // namespace

std::string_view Trimmed(std::string_view text) {
  const size_t begin = text.find_first_not_of(kBlank);
  if (begin == std::string_view::npos) return {};
  return text.substr(begin, text.find_last_not_of(kBlank) + 1 - begin);
}

void ForEachLine(std::string_view text, const OnTextPart& on_part) {
  size_t number = 0;
  for (size_t begin = 0; begin < text.size();) {
    const size_t end = std::min(text.find('\n', begin), text.size());
    const std::string_view line = Trimmed(text.substr(begin, end - begin));
    begin = end + 1;
    ++number;
    if (!line.empty() && !on_part({line, number})) return;
  }
}

void ForEachElement(std::string_view text, const std::string& name, const OnTextPart& on_part) {
  ArraySplitter(text, name).Split(on_part);
}

std::string AtLine(const std::string& name, size_t line) { return name + " line " + std::to_string(line); }

}  // namespace hydrant::base
