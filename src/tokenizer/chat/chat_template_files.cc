// SPDX-License-Identifier: Apache-2.0
// Which chat template a model folder names.
#include <filesystem>
#include <optional>

#include "base/json.h"
#include "base/mapped_file.h"
#include "base/paths.h"
#include "base/placeholder.h"
#include "hydrant/error.h"
#include "tokenizer/chat/chat_template.h"

namespace hydrant::tokenizer {
namespace {

namespace fs = std::filesystem;
using base::JsonView;

struct Jinja {
  std::string file;  // that holds the text
  std::string text;
};

std::string KnownNames() {
  std::string list;
  for (const std::string_view name : TemplateNames()) list += (list.empty() ? "" : ", ") + std::string(name);
  return list;
}

// A string, or [{"name": "default", "template": ...}, ...].
std::string DefaultTemplate(const JsonView& json) {
  if (!json.is_array()) return json.String();
  for (size_t i = 0; i < json.Size(); ++i) {
    const JsonView member = json.At(i);
    if (member.At("name").String() == "default") return member.At("template").String();
  }
  throw FileError(json.file(), "'chat_template' has no template named \"default\"",
                  "choose one with RenderChat::template_name: " + KnownNames());
}

std::optional<Jinja> FindJinja(const fs::path& folder, const JsonView& config) {
  // transformers prefers the file of its own where both exist.
  const fs::path own_file = folder / "chat_template.jinja";
  if (base::IsThere(own_file)) {
    Jinja own{own_file.string(), base::ReadTextFile(own_file.string())};
    base::RefusePlaceholder(own.text, own.file);
    return own;
  }
  if (!config.Has("chat_template")) return std::nullopt;
  return Jinja{config.file(), DefaultTemplate(config.At("chat_template"))};
}

// "<s>" or {"content": "<s>", ...}; null and absent are `usual`.
std::string TokenText(const JsonView& config, std::string_view key, const std::string& usual) {
  if (!config.Has(key)) return usual;
  const JsonView token = config.At(key);
  return token.is_object() ? token.At("content").String() : token.String();
}

struct Config {
  base::Json json = base::Json::object();
  std::string file;

  explicit Config(const std::string& folder) : file((fs::path(folder) / "tokenizer_config.json").string()) {
    if (base::IsThere(file)) json = base::ReadJsonFile(file);
    if (!json.is_object()) JsonView(json, file).Fail("an object");
  }
};

TemplateTokens TokensOf(const JsonView& config, std::string_view template_name) {
  const TemplateTokens usual = UsualTokens(template_name);
  return {TokenText(config, "bos_token", usual.bos), TokenText(config, "eos_token", usual.eos)};
}

}  // namespace

FolderTemplate ReadFolderTemplate(const std::string& folder) {
  const Config config(folder);
  const JsonView view(config.json, config.file);
  const std::optional<Jinja> jinja = FindJinja(folder, view);
  if (!jinja.has_value()) return {};
  const std::string_view name = RecognizeTemplate(jinja->text);
  if (name.empty()) {
    throw FileError(
        jinja->file,
        "the chat template (" + std::to_string(jinja->text.size()) + " bytes of Jinja) is none of the known ones",
        "name the one that the model was trained with by RenderChat::template_name (" + KnownNames() +
            "), or use RenderChat::template_name none");
  }
  return {std::string(name), TokensOf(view, name)};
}

TemplateTokens ReadTemplateTokens(const std::string& folder, std::string_view template_name) {
  const Config config(folder);
  return TokensOf(JsonView(config.json, config.file), template_name);
}

}  // namespace hydrant::tokenizer
