// SPDX-License-Identifier: Apache-2.0
#include "train/data/documents.h"

#include <algorithm>
#include <array>
#include <utility>

#include "base/json.h"
#include "base/text_bytes.h"
#include "base/text_parts.h"
#include "hydrant/error.h"

namespace hydrant::train {
namespace {

using base::JsonView;
using base::Trimmed;
using tokenizer::Message;

constexpr const char* kForms =
    "a text, or an object with \"conversations\", \"messages\", \"instruction\" and \"output\", \"prompt\" and "
    "\"completion\", \"question\" and \"answer\", or \"text\"";

bool EndsWithInAnyCase(std::string_view text, std::string_view end) {
  const auto same = [](char a, char b) { return (a >= 'A' && a <= 'Z' ? static_cast<char>(a + 32) : a) == b; };
  return text.size() >= end.size() && std::ranges::equal(text.substr(text.size() - end.size()), end, same);
}

enum class Form : uint8_t { kText, kLines, kArray };

// By the first two signs that are no blanks. A story may begin with a quote, a file named for JSON does not.
Form FormOf(std::string_view text, const std::string& name) {
  const char first = text.front();
  const std::string_view rest = Trimmed(text.substr(1));
  const char second = rest.empty() ? '\0' : rest.front();
  if (first == '[' && (second == '{' || second == '"' || second == ']')) return Form::kArray;
  if (first == '{' && (second == '"' || second == '}')) return Form::kLines;
  if (first == '"' && IsNamedForJson(name)) return Form::kLines;
  return Form::kText;
}

void CheckJsonSize(const base::TextPart& part, const std::string& name) {
  if (part.text.size() <= kMostJsonBytes) return;
  throw FileError(base::AtLine(name, part.line),
                  "has a value of " + std::to_string(part.text.size()) + " bytes, at most " +
                      std::to_string(kMostJsonBytes) + " are read",
                  "split it into several, or give it as plain text");
}

class TextSplitter {
 public:
  explicit TextSplitter(const std::function<bool(const FilePart&)>& on_part) : on_part_(on_part) {}

  void Split(std::string_view content) {
    while (!content.empty()) {
      const size_t end = std::min(content.find(kDocumentMark), content.size());
      if (!SplitDocument(content.substr(0, end))) return;
      content.remove_prefix(std::min(end + kDocumentMark.size(), content.size()));
    }
  }

 private:
  // False: on_part has enough.
  bool SplitDocument(std::string_view document) {
    std::string_view text = Trimmed(document);
    if (!text.empty()) CountLines({document.data(), text.data()});
    const char* const end = document.data() + document.size();
    for (bool begins = true; !text.empty(); begins = false) {
      const std::string_view piece = FirstPiece(text, kPieceBytes);
      text.remove_prefix(piece.size());
      if (!on_part_({.text = piece, .line = line_, .begins = begins, .ends = text.empty()})) return false;
      CountLines(piece);
      document = {piece.data() + piece.size(), end};
    }
    CountLines(document);
    return true;
  }

  void CountLines(std::string_view text) { line_ += static_cast<size_t>(std::count(text.begin(), text.end(), '\n')); }

  const std::function<bool(const FilePart&)>& on_part_;
  size_t line_ = 1;
};

bool IsContinuation(char byte) { return (static_cast<unsigned char>(byte) & 0xC0) == 0x80; }

bool IsLetterOrDigit(char byte) {
  return (byte >= '0' && byte <= '9') || (byte >= 'A' && byte <= 'Z') || (byte >= 'a' && byte <= 'z');
}

// Empty: a role that is none of a conversation between two.
std::string_view RoleNamed(const std::string& name) {
  constexpr std::array<std::string_view, 2> kUser = {"human", "user"};
  constexpr std::array<std::string_view, 5> kAssistant = {"gpt", "assistant", "chatgpt", "bing", "bard"};
  if (std::find(kUser.begin(), kUser.end(), name) != kUser.end()) return "user";
  if (std::find(kAssistant.begin(), kAssistant.end(), name) != kAssistant.end()) return "assistant";
  return name == "system" ? "system" : "";
}

Example Without(LeftOut reason) { return {.text = {}, .messages = {}, .left_out = reason}; }

bool HasEmptyReply(const std::vector<Message>& messages) {
  return std::ranges::any_of(
      messages, [](const Message& message) { return message.role == "assistant" && Trimmed(message.content).empty(); });
}

// Drops what no reply needs, and looks whether the roles alternate.
Example InTurns(std::vector<Message> messages) {
  const size_t system = !messages.empty() && messages.front().role == "system" ? 1 : 0;
  const auto first = messages.begin() + static_cast<std::ptrdiff_t>(system);
  if (first != messages.end() && first->role == "assistant") messages.erase(first);
  for (size_t i = system; i < messages.size(); ++i) {
    if (messages[i].role != ((i - system) % 2 == 0 ? "user" : "assistant")) return Without(LeftOut::kRoles);
  }
  if (!messages.empty() && messages.back().role == "user") messages.pop_back();
  if (messages.size() < system + 2) return Without(LeftOut::kNoReply);
  if (HasEmptyReply(messages)) return Without(LeftOut::kNoText);
  return {.text = {}, .messages = std::move(messages)};
}

Example ReadMessages(const JsonView& list) {
  std::vector<Message> messages;
  for (size_t i = 0; i < list.Size(); ++i) {
    const JsonView message = list.At(i);
    const bool from = message.Has("from");
    const std::string_view role = RoleNamed(message.At(from ? "from" : "role").String());
    if (role.empty()) return Without(LeftOut::kRoles);
    const JsonView content = message.At(from ? "value" : "content");
    if (content.is_null()) return Without(LeftOut::kNoText);  // a call of a tool
    messages.push_back({.role = std::string(role), .content = content.String()});
  }
  return InTurns(std::move(messages));
}

Example OneTurn(std::string question, std::string answer) {
  return InTurns(
      {{.role = "user", .content = std::move(question)}, {.role = "assistant", .content = std::move(answer)}});
}

Example Text(std::string text) {
  if (Trimmed(text).empty()) return Without(LeftOut::kEmpty);
  return {.text = std::move(text), .messages = {}};
}

// An object's "prompt" may be a number beside a "text" (what distill-data writes), and Alpaca has a "text" of all.
Example ReadObject(const JsonView& value) {
  const auto text = [&](std::string_view key) { return value.At(key).String(); };
  for (const std::string_view key : {"conversations", "messages"}) {
    if (value.Has(key)) return ReadMessages(value.At(key));
  }
  const bool has_text = value.Has("text");
  const auto is_pair = [&](std::string_view question, std::string_view answer) {
    return value.Has(question) && (value.Has(answer) || !has_text);
  };
  if (is_pair("instruction", "output")) {
    std::string question = text("instruction");
    const std::string input = value.Has("input") ? text("input") : "";  // often empty
    if (!input.empty()) question += "\n\n" + input;
    return OneTurn(std::move(question), text("output"));
  }
  const char* completion = value.Has("response") ? "response" : "completion";
  if (is_pair("prompt", completion)) return OneTurn(text("prompt"), text(completion));
  if (is_pair("question", "answer")) return OneTurn(text("question"), text("answer"));
  if (has_text) return Text(text("text"));
  value.Fail(kForms);
}

// What ends a generation, as OpenAI's servers and ours name it.
bool IsCut(const JsonView& value) {
  if (!value.Has("finish_reason") || !value.At("finish_reason").is_string()) return false;
  const std::string reason = value.At("finish_reason").String();
  return reason == "length" || reason == "context";
}

}  // namespace

std::string_view FirstPiece(std::string_view text, size_t most) {
  if (text.size() <= most) return text;
  const auto is_blank = [&](size_t at) { return base::kBlank.find(text[at]) != std::string_view::npos; };
  size_t any_blank = 0;
  for (size_t at = most - 1; at > 0; --at) {
    if (!is_blank(at) || is_blank(at - 1)) continue;
    const bool behind_letter = IsLetterOrDigit(text[at - 1]);
    if (behind_letter && (text[at] == '\n' || IsLetterOrDigit(text[at + 1]))) return text.substr(0, at);
    if (any_blank == 0) any_blank = at;
  }
  if (any_blank > 0) return text.substr(0, any_blank);
  size_t end = most;
  while (end > 1 && most - end < 3 && IsContinuation(text[end])) --end;
  return text.substr(0, end);
}

void SplitFile(std::string_view content, const std::string& name, const std::function<bool(const FilePart&)>& on_part) {
  constexpr std::string_view kByteOrderMark = "\xef\xbb\xbf";
  if (content.size() > kMostFileBytes) {
    throw FileError(name,
                    "has " + std::to_string(content.size() >> 20) + " MB, at most " +
                        std::to_string(kMostFileBytes >> 20) + " MB are read",
                    "split it into several files");
  }
  base::CheckIsText(content, name);
  if (content.starts_with(kByteOrderMark)) content.remove_prefix(kByteOrderMark.size());
  const std::string_view text = Trimmed(content);
  if (text.empty()) throw FileError(name, "is empty, expected text or JSON to train on");
  const auto on_json = [&](const base::TextPart& part) {
    CheckJsonSize(part, name);
    return on_part({.text = part.text, .line = part.line, .is_json = true});
  };
  switch (FormOf(text, name)) {
    case Form::kArray: return base::ForEachElement(content, name, on_json);
    case Form::kLines: return base::ForEachLine(content, on_json);
    case Form::kText: return TextSplitter(on_part).Split(content);
  }
}

bool IsNamedForJson(std::string_view name) {
  return EndsWithInAnyCase(name, ".json") || EndsWithInAnyCase(name, ".jsonl");
}

std::string_view Words(LeftOut reason) {
  switch (reason) {
    case LeftOut::kEmpty: return "without text";
    case LeftOut::kNoReply: return "without a question and a reply";
    case LeftOut::kRoles: return "whose roles are not user and assistant in turns";
    case LeftOut::kNoText: return "with a message without text";
    case LeftOut::kRefused: return "that the chat template refuses";
    case LeftOut::kLong: return "too long";
  }
  return "";
}

Example ReadExample(const JsonView& value) {
  if (value.is_string()) return Text(value.String());
  if (!value.is_object()) value.Fail(kForms);
  Example example = ReadObject(value);
  example.is_cut = IsCut(value);
  return example;
}

}  // namespace hydrant::train
