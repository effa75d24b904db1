// SPDX-License-Identifier: Apache-2.0
#include "traffic/suite.h"

#include <fmt/format.h>

#include <algorithm>
#include <functional>
#include <utility>

#include "base/json.h"
#include "base/mapped_file.h"
#include "hydrant/error.h"

namespace hydrant::traffic {
namespace {

using base::JsonView;

constexpr std::string_view kBlank = " \t\r\n";
constexpr const char* kForms =
    "a text, or an object with \"turns\", \"conversations\", \"messages\", \"input\", \"instruction\", \"prompt\" or "
    "\"text\"";

std::string Where(const std::string& name, size_t line) { return fmt::format("{} line {}", name, line); }

std::string_view Trimmed(std::string_view text) {
  const size_t begin = text.find_first_not_of(kBlank);
  if (begin == std::string_view::npos) return {};
  return text.substr(begin, text.find_last_not_of(kBlank) + 1 - begin);
}

std::string TextOf(const JsonView& value) {
  std::string text = value.String();
  if (Trimmed(text).empty()) value.Fail("a text that is not empty");
  return text;
}

Prompt PromptOfTurns(const JsonView& turns) {
  Prompt prompt;
  if (turns.is_string()) return {.before = {}, .turns = {TextOf(turns)}};
  if (turns.Size() == 0) turns.Fail("one turn at least");
  for (size_t i = 0; i < turns.Size(); ++i) prompt.turns.push_back(TextOf(turns.At(i)));
  return prompt;
}

Prompt PromptOfConversations(const JsonView& list) {
  for (size_t i = 0; i < list.Size(); ++i) {
    const JsonView message = list.At(i);
    const std::string from = message.At("from").String();
    if (from == "human" || from == "user") return {.before = {}, .turns = {TextOf(message.At("value"))}};
  }
  list.Fail("a message from \"human\"");
}

Prompt PromptOfMessages(const JsonView& list) {
  Prompt prompt;
  for (size_t i = 0; i < list.Size(); ++i) {
    const JsonView message = list.At(i), role = message.At("role");
    const std::string name = role.String();
    if (name != "system" && name != "user" && name != "assistant") role.Fail("system, user or assistant");
    prompt.before.push_back({.role = name, .content = message.At("content").String()});
  }
  while (!prompt.before.empty() && prompt.before.back().role != "user") prompt.before.pop_back();
  if (prompt.before.empty()) list.Fail("a message of the user");
  prompt.turns.push_back(std::move(prompt.before.back().content));
  prompt.before.pop_back();
  return prompt;
}

// Which key of `object` holds the prompt, by the forms in their order; empty: none.
std::string_view FormOf(const JsonView& object) {
  for (const std::string_view key : {"turns", "conversations", "messages", "instruction", "input", "prompt", "text"}) {
    if (object.Has(key)) return key;
  }
  return {};
}

Prompt PromptOf(const JsonView& value) {
  if (value.is_string()) return {.before = {}, .turns = {TextOf(value)}};
  const std::string_view form = FormOf(value);
  if (form.empty()) value.Fail(kForms);
  if (form == "turns") return PromptOfTurns(value.At("turns"));
  if (form == "conversations") return PromptOfConversations(value.At("conversations"));
  if (form == "messages") return PromptOfMessages(value.At("messages"));
  if (form != "instruction") return {.before = {}, .turns = {TextOf(value.At(form))}};
  std::string text = TextOf(value.At("instruction"));
  if (value.Has("input")) {
    const std::string input = value.At("input").String();  // often empty
    if (!input.empty()) text += "\n\n" + input;
  }
  return {.before = {}, .turns = {std::move(text)}};
}

// A part of a file, and its place for errors.
struct Part {
  std::string_view text;
  size_t line = 1;
};

// The elements of an array of JSON, each parsed alone: a file of gigabytes is never held twice, and errors have lines.
// Brackets are only counted here; each element's own parser is the judge of it.
class ArraySplitter {
 public:
  ArraySplitter(std::string_view text, const std::string& name) : text_(text), name_(name) {}

  void Split(const std::function<void(const Part&)>& on_part) {
    Skip();  // to the '['
    Advance();
    for (Skip(); !AtEnd() && text_[at_] != ']'; Skip()) {
      const size_t begin = at_, line = line_;
      EndOfElement();
      const std::string_view element = Trimmed(text_.substr(begin, at_ - begin));
      if (element.empty()) throw FileError(Where(name_, line), "expected a value in front of ','");
      on_part({element, line});
      if (AtEnd() || text_[at_] == ']') break;
      Advance();  // the ','
      Skip();
      if (!AtEnd() && text_[at_] == ']') throw FileError(Where(name_, line_), "expected a value behind ','");
    }
    if (AtEnd()) throw FileError(Where(name_, line_), "ends within the array, expected ']'");
    Advance();
    Skip();
    if (!AtEnd()) throw FileError(Where(name_, line_), "has more behind the array, expected its end");
  }

 private:
  bool AtEnd() const { return at_ >= text_.size(); }
  void Advance() {
    if (text_[at_] == '\n') ++line_;
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

void SplitLines(std::string_view text, const std::function<void(const Part&)>& on_part) {
  size_t number = 0;
  for (size_t begin = 0; begin < text.size();) {
    const size_t end = std::min(text.find('\n', begin), text.size());
    const std::string_view line = Trimmed(text.substr(begin, end - begin));
    begin = end + 1;
    ++number;
    if (!line.empty()) on_part({line, number});
  }
}

class Parser {
 public:
  explicit Parser(const std::string& name) : name_(name) {}

  Suite Parse(std::string_view content) {
    constexpr std::string_view kByteOrderMark = "\xef\xbb\xbf";
    if (content.starts_with(kByteOrderMark)) content.remove_prefix(kByteOrderMark.size());
    const std::string_view text = Trimmed(content);
    if (text.empty()) throw FileError(name_, "has no prompt, expected lines of text or JSON");
    if (text.front() == '[') {
      ArraySplitter(content, name_).Split([this](const Part& part) { AddJson(part, "an array"); });
    } else if (text.front() == '{') {
      SplitLines(content, [this](const Part& part) { AddJson(part, "lines"); });
    } else {
      suite_.form = "lines of text";
      SplitLines(content, [this](const Part& part) { Add({.before = {}, .turns = {std::string(part.text)}}, part); });
    }
    if (suite_.prompts.empty()) throw FileError(name_, "is an empty list, expected one prompt at least");
    return std::move(suite_);
  }

 private:
  void AddJson(const Part& part, std::string_view list) {
    const std::string where = Where(name_, part.line);
    const base::Json json = base::ParseJson(part.text, where);
    const JsonView value(json, where);
    Add(PromptOf(value), part);
    if (!suite_.form.empty()) return;
    suite_.form = value.is_string() ? fmt::format("{} of texts", list)
                                    : fmt::format("{} of JSON objects with \"{}\"", list, FormOf(value));
  }

  void Add(Prompt prompt, const Part& part) {
    size_t bytes = 0;
    for (const Message& message : prompt.before) bytes += message.content.size();
    for (const std::string& turn : prompt.turns) bytes += turn.size();
    if (bytes > kMaxPromptBytes) {
      throw FileError(Where(name_, part.line),
                      fmt::format("has a prompt of {} bytes, at most {} are sent", bytes, kMaxPromptBytes));
    }
    if (suite_.prompts.size() >= kMaxPrompts) {
      throw FileError(Where(name_, part.line),
                      fmt::format("is one prompt more than the {} that are read", kMaxPrompts));
    }
    suite_.prompts.push_back(std::move(prompt));
  }

  const std::string& name_;
  Suite suite_;
};

}  // namespace

Suite ParseSuite(std::string_view content, const std::string& name) { return Parser(name).Parse(content); }

Suite ReadSuite(const std::string& file) {
  const auto mapped = base::MappedFile::Open(file);
  const auto bytes = mapped->bytes();
  if (bytes.size() > kMaxSuiteBytes) {
    throw FileError(file, fmt::format("has {} MB, at most {} MB are read", bytes.size() >> 20, kMaxSuiteBytes >> 20),
                    "give a part of it");
  }
  return ParseSuite({reinterpret_cast<const char*>(bytes.data()), bytes.size()}, file);
}

}  // namespace hydrant::traffic
