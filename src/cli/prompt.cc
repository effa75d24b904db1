// SPDX-License-Identifier: Apache-2.0
#include "cli/prompt.h"

#include <fmt/core.h>

#include "cli/values.h"
#include "hydrant/error.h"
#include "tokenizer/chat_template.h"

namespace hydrant::cli {

std::string ResolveTemplate(const std::string& model_folder, const std::string& template_name) {
  if (template_name != "auto") return template_name;
  const std::string name = tokenizer::ReadFolderTemplate(model_folder).name;
  return name.empty() ? "none" : name;
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

std::vector<ChatMessage> FirstMessages(const RunOptions& options, const std::string& text) {
  std::vector<ChatMessage> messages;
  if (options.system) messages.push_back({"system", *options.system});
  messages.push_back({"user", text});
  return messages;
}

}  // namespace hydrant::cli
