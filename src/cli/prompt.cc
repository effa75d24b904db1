// SPDX-License-Identifier: Apache-2.0
#include "cli/prompt.h"

#include "tokenizer/chat_template.h"

namespace hydrant::cli {

std::string ResolveTemplate(const std::string& model_folder, const std::string& template_name) {
  if (template_name != "auto") return template_name;
  const std::string name = tokenizer::ReadFolderTemplate(model_folder).name;
  return name.empty() ? "none" : name;
}

std::vector<int32_t> ConversationIds(const Engine& engine, std::span<const ChatMessage> messages,
                                     const std::string& resolved_template) {
  std::string rendered;
  if (engine.RenderChat(messages, resolved_template, &rendered)) {
    return engine.Tokenize(rendered, /*parse_special=*/true, /*add_bos=*/false);
  }
  return engine.Tokenize(messages.back().content, /*parse_special=*/true, /*add_bos=*/true);
}

std::vector<ChatMessage> FirstMessages(const RunOptions& options, const std::string& text) {
  std::vector<ChatMessage> messages;
  if (options.system) messages.push_back({"system", *options.system});
  messages.push_back({"user", text});
  return messages;
}

}  // namespace hydrant::cli
