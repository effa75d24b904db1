// SPDX-License-Identifier: Apache-2.0
#include "cli/run/prompt.h"

#include <fmt/core.h>

#include <optional>

#include "cli/flags/values.h"
#include "hydrant/error.h"
#include "tokenizer/chat/chat_family.h"
#include "tokenizer/chat/chat_template.h"

namespace hydrant::cli {

std::string ResolveTemplate(const std::string& model_folder, const std::string& template_name) {
  if (template_name != "auto") return template_name;
  const std::string name = tokenizer::ReadFolderTemplate(model_folder).name;
  return name.empty() ? "none" : name;
}

std::string ChooseTemplate(RunOptions& options, bool interactive) {
  if (options.source == PromptSource::kIds) return "none";
  const std::string& model = options.engine.model;
  std::string name = ResolveTemplate(model, options.template_name);
  if (name != "none" || options.template_name == "none") return name;
  const std::optional<tokenizer::ChatFamily> family = tokenizer::FamilyOfFolders(model, options.engine.draft);
  if (!family) return name;
  if (interactive) {
    options.warnings.push_back(
        fmt::format("{}: has no chat template; {}, so this chat goes by the template of {} (--template {}); --template "
                    "none continues every line on its own",
                    model, family->said_by, family->name, family->template_name));
    return family->template_name;
  }
  options.warnings.push_back(
      fmt::format("{}: has no chat template, and the prompt goes in as it is; {}, and {} expects --template {} "
                  "(--template none, where this is meant)",
                  model, family->said_by, family->name, family->template_name));
  return name;
}

namespace {

void CheckLength(const Engine& engine, const std::string& text) {
  const auto positions = static_cast<size_t>(engine.info().max_positions);
  if (text.size() <= positions * kMostTokenBytes) return;
  throw UserError(fmt::format("the prompt has {} bytes, more than {} for each of the model's {} positions", text.size(),
                              kMostTokenBytes, positions),
                  "shorten the prompt");
}

}  // namespace

std::vector<int32_t> ConversationIds(const Engine& engine, std::span<const ChatMessage> messages,
                                     const std::string& resolved_template) {
  std::string rendered;
  if (engine.RenderChat(messages, resolved_template, &rendered)) {
    CheckLength(engine, rendered);
    return engine.Tokenize(rendered, /*parse_special=*/true, /*add_bos=*/false);
  }
  CheckLength(engine, messages.back().content);
  return engine.Tokenize(messages.back().content, /*parse_special=*/true, /*add_bos=*/true);
}

void CheckPromptText(const std::string& name, const std::string& text, const std::string& resolved_template) {
  const char* const hint = "give a text; --prompt-ids with the BOS id alone lets the model begin by itself";
  if (text.empty()) throw UserError(fmt::format("{}: is empty, expected the text of a prompt", name), hint);
  if (resolved_template == "none" || text.find_first_not_of(" \t\r\n\v\f") != std::string::npos) return;
  throw UserError(
      fmt::format("{}: is white space only, which template {} makes an empty message; expected the text of a "
                  "prompt",
                  name, resolved_template),
      hint);
}

std::vector<ChatMessage> FirstMessages(const RunOptions& options, const std::string& text) {
  std::vector<ChatMessage> messages;
  if (options.system) messages.push_back({"system", *options.system});
  messages.push_back({"user", text});
  return messages;
}

}  // namespace hydrant::cli
