// SPDX-License-Identifier: Apache-2.0
#include "traffic/suite.h"

#include <fmt/format.h>

#include <utility>

#include "base/json.h"
#include "base/mapped_file.h"
#include "base/text_bytes.h"
#include "base/text_parts.h"
#include "hydrant/error.h"

namespace hydrant::traffic {
namespace {

using base::AtLine;
using base::JsonView;
using base::TextPart;
using base::Trimmed;

constexpr const char* kForms =
    "a text, or an object with \"turns\", \"conversations\", \"messages\", \"input\", \"instruction\", \"prompt\" or "
    "\"text\"";

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

Prompt PromptOfEveryTurn(const JsonView& list, std::string_view role_key, std::string_view text_key) {
  Prompt prompt;
  for (size_t i = 0; i < list.Size(); ++i) {
    const JsonView message = list.At(i), role = message.At(role_key);
    const std::string name = role.String();
    if (name == "human" || name == "user") {
      prompt.turns.push_back(TextOf(message.At(text_key)));
    } else if (name == "system") {
      if (!prompt.turns.empty()) role.Fail("\"system\" before the user's first text only");
      prompt.before.push_back({.role = name, .content = message.At(text_key).String()});
    }
  }
  if (prompt.turns.empty()) list.Fail("a text of the user");
  return prompt;
}

// Which key of `object` holds the prompt, by the forms in their order; empty: none.
std::string_view FormOf(const JsonView& object) {
  for (const std::string_view key : {"turns", "conversations", "messages", "instruction", "input", "prompt", "text"}) {
    if (object.Has(key)) return key;
  }
  return {};
}

Prompt PromptOf(const JsonView& value, Asked asked) {
  if (value.is_string()) return {.before = {}, .turns = {TextOf(value)}};
  const std::string_view form = FormOf(value);
  if (form.empty()) value.Fail(kForms);
  if (form == "turns") return PromptOfTurns(value.At("turns"));
  if (asked == Asked::kEveryTurn && form == "conversations") return PromptOfEveryTurn(value.At(form), "from", "value");
  if (asked == Asked::kEveryTurn && form == "messages") return PromptOfEveryTurn(value.At(form), "role", "content");
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

class Parser {
 public:
  Parser(const std::string& name, Asked asked) : name_(name), asked_(asked) {}

  Suite Parse(std::string_view content) {
    base::CheckIsText(content, name_);
    constexpr std::string_view kByteOrderMark = "\xef\xbb\xbf";
    if (content.starts_with(kByteOrderMark)) content.remove_prefix(kByteOrderMark.size());
    const std::string_view text = Trimmed(content);
    if (text.empty()) throw FileError(name_, "has no prompt, expected lines of text or JSON");
    if (text.front() == '[') {
      base::ForEachElement(content, name_, [this](const TextPart& part) { return AddJson(part, "an array"); });
    } else if (text.front() == '{') {
      base::ForEachLine(content, [this](const TextPart& part) { return AddJson(part, "lines"); });
    } else {
      suite_.form = "lines of text";
      base::ForEachLine(content, [this](const TextPart& part) {
        return Add({.before = {}, .turns = {std::string(part.text)}}, part);
      });
    }
    if (suite_.prompts.empty()) throw FileError(name_, "is an empty list, expected one prompt at least");
    return std::move(suite_);
  }

 private:
  // True: go on.
  bool AddJson(const TextPart& part, std::string_view list) {
    const std::string where = AtLine(name_, part.line);
    const base::Json json = base::ParseJson(part.text, where);
    const JsonView value(json, where);
    Add(PromptOf(value, asked_), part);
    if (!suite_.form.empty()) return true;
    suite_.form = value.is_string() ? fmt::format("{} of texts", list)
                                    : fmt::format("{} of JSON objects with \"{}\"", list, FormOf(value));
    return true;
  }

  bool Add(Prompt prompt, const TextPart& part) {
    size_t bytes = 0;
    for (const Message& message : prompt.before) bytes += message.content.size();
    for (const std::string& turn : prompt.turns) bytes += turn.size();
    if (bytes > kMaxPromptBytes) {
      throw FileError(AtLine(name_, part.line),
                      fmt::format("has a prompt of {} bytes, at most {} are sent", bytes, kMaxPromptBytes));
    }
    if (suite_.prompts.size() >= kMaxPrompts) {
      throw FileError(AtLine(name_, part.line),
                      fmt::format("is one prompt more than the {} that are read", kMaxPrompts));
    }
    suite_.prompts.push_back(std::move(prompt));
    return true;
  }

  const std::string& name_;
  Asked asked_;
  Suite suite_;
};

}  // namespace

Suite ParseSuite(std::string_view content, const std::string& name, Asked asked) {
  return Parser(name, asked).Parse(content);
}

Suite ReadSuite(const std::string& file, Asked asked) {
  const auto mapped = base::MappedFile::Open(file);
  const auto bytes = mapped->bytes();
  if (bytes.size() > kMaxSuiteBytes) {
    throw FileError(file, fmt::format("has {} MB, at most {} MB are read", bytes.size() >> 20, kMaxSuiteBytes >> 20),
                    "give a part of it");
  }
  return ParseSuite({reinterpret_cast<const char*>(bytes.data()), bytes.size()}, file, asked);
}

}  // namespace hydrant::traffic
