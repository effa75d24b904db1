// SPDX-License-Identifier: Apache-2.0
#include "cli/eval/texts.h"

#include <fmt/core.h>

#include <array>
#include <string_view>
#include <utility>

#include "base/json.h"
#include "base/mapped_file.h"
#include "base/text_bytes.h"
#include "cli/flags/values.h"
#include "cli/terminal/standard_input.h"
#include "hydrant/error.h"
#include "tokenizer/chat/chat_template.h"
#include "tokenizer/tokenizer.h"

namespace hydrant::cli {
namespace {

constexpr std::array<std::string_view, 3> kUsualFields = {"text", "conversations", "messages"};

// Role names of the two spellings that chat data come in.
std::string RoleNamed(const base::JsonView& role) {
  const std::string name = role.String();
  if (name == "human" || name == "user") return "user";
  if (name == "gpt" || name == "assistant") return "assistant";
  if (name == "system") return "system";
  role.Fail("user, assistant, system, human or gpt");
}

std::vector<tokenizer::Message> MessagesOf(const base::JsonView& list) {
  std::vector<tokenizer::Message> messages;
  if (list.Size() == 0) list.Fail("one message at least");
  for (size_t i = 0; i < list.Size(); ++i) {
    const base::JsonView message = list.At(i);
    const bool from = message.Has("from");
    messages.push_back({.role = RoleNamed(message.At(from ? "from" : "role")),
                        .content = message.At(from ? "value" : "content").String()});
  }
  return messages;
}

base::JsonView FieldOf(const base::JsonView& line, const std::string& field) {
  if (!field.empty()) return line.At(field);
  for (const std::string_view name : kUsualFields) {
    if (line.Has(name)) return line.At(name);
  }
  line.Fail("an object with \"text\", \"conversations\" or \"messages\"", "name the field with --field");
}

class Reader {
 public:
  Reader(const load::LoadedModel& loaded, const TextOptions& options) : loaded_(&loaded), options_(&options) {}

  std::vector<std::vector<int32_t>> Read(const std::string& content, std::string_view split) {
    if (split == "jsonl") {
      ReadLines(content);
    } else if (split == "blank") {
      for (const std::string& text : SplitAtBlankLines(content)) AddText(text);
    } else {
      AddText(content);
    }
    return std::move(texts_);
  }

 private:
  void ReadLines(const std::string& content) {
    int64_t number = 0;
    for (size_t begin = 0; begin < content.size();) {
      const size_t end = std::min(content.find('\n', begin), content.size());
      const std::string_view line = std::string_view(content).substr(begin, end - begin);
      begin = end + 1;
      ++number;
      if (line.find_first_not_of(" \t\r") == std::string_view::npos) continue;
      const std::string where = fmt::format("{} line {}", options_->file.empty() ? "stdin" : options_->file, number);
      const base::Json json = base::ParseJson(line, where);
      const base::JsonView field = FieldOf(base::JsonView(json, where), options_->field);
      if (!field.is_string() && !field.is_array()) field.Fail("a text, or a list of messages");
      if (field.is_string()) {
        AddText(field.String());
      } else {
        AddMessages(MessagesOf(field));
      }
    }
  }

  void AddText(std::string_view text) {
    texts_.push_back(
        loaded_->tokenizer->Encode(Used(text), {.parse_special = false, .add_bos = loaded_->tokenizer->adds_bos()}));
  }

  // What may be used of a text: its first bytes where few tokens are, up to a whole character.
  std::string_view Used(std::string_view text) const {
    const auto tokens = static_cast<size_t>(options_->max_tokens);
    if (tokens > 0 && tokens < text.size() / kMostTokenBytes) {
      size_t end = tokens * kMostTokenBytes;
      while (end > 0 && (static_cast<unsigned char>(text[end]) & 0xc0) == 0x80) --end;
      return text.substr(0, end);
    }
    if (text.size() <= tokenizer::kMostTextBytes) return text;
    throw UserError(fmt::format("{} has a text of {} MB, at most {} MB are made tokens at once",
                                options_->file.empty() ? "stdin" : options_->file, text.size() >> 20,
                                tokenizer::kMostTextBytes >> 20),
                    "score less of it (--max-tokens), or several texts (--split blank)");
  }

  void AddMessages(const std::vector<tokenizer::Message>& messages) {
    if (!have_template_) template_ = tokenizer::ReadFolderTemplate(loaded_->options.model);
    have_template_ = true;
    if (template_.name.empty()) {
      throw FileError(
          loaded_->options.model,
          "has no chat template for the messages of " + (options_->file.empty() ? "standard input" : options_->file),
          "score texts, not messages, or give the folder a chat template");
    }
    const std::string text = tokenizer::RenderTemplate(template_.name, messages, template_.tokens, false);
    texts_.push_back(loaded_->tokenizer->Encode(text, {.parse_special = true, .add_bos = false}));
  }

  const load::LoadedModel* loaded_;
  const TextOptions* options_;
  bool have_template_ = false;
  tokenizer::FolderTemplate template_;
  std::vector<std::vector<int32_t>> texts_;
};

}  // namespace

std::vector<std::string> SplitAtBlankLines(const std::string& text) {
  std::vector<std::string> parts;
  std::string part;
  for (size_t begin = 0; begin <= text.size();) {
    const size_t end = std::min(text.find('\n', begin), text.size());
    const std::string line = text.substr(begin, end - begin);
    begin = end + 1;
    if (line.find_first_not_of(" \t\r") != std::string::npos) {
      part += (part.empty() ? "" : "\n") + line;
      continue;
    }
    if (!part.empty()) parts.push_back(std::exchange(part, {}));
  }
  if (!part.empty()) parts.push_back(part);
  return parts;
}

std::vector<std::vector<int32_t>> ReadTexts(const load::LoadedModel& loaded, const TextOptions& options) {
  if (!loaded.tokenizer) throw UserError(loaded.options.model + ": has no tokenizer.json or tokenizer.model");
  const std::string content = options.file.empty() ? ReadStdin() : base::ReadTextFile(options.file, kMaxInputBytes);
  base::CheckIsText(content, options.file.empty() ? "stdin" : options.file);
  const bool lines = options.split == "jsonl" || (options.split == "auto" && options.file.ends_with(".jsonl"));
  if (!lines && !options.field.empty()) {
    throw UserError("--field is for JSONL only", "add --split jsonl, or leave it out");
  }
  return Reader(loaded, options).Read(content, lines ? "jsonl" : options.split);
}

}  // namespace hydrant::cli
