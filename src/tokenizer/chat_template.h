// SPDX-License-Identifier: Apache-2.0
// The published chat templates, written out in C++ and recognised by their Jinja text.
#pragma once

#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace hydrant::tokenizer {

struct Message {
  std::string role;
  std::string content;
};

// BOS and EOS text of the tokenizer, which templates print.
struct TemplateTokens {
  std::string bos;
  std::string eos;
};

// Names for --template, such as "vicuna", "llama-3".
std::span<const std::string_view> TemplateNames();

// Renders as the publisher's template does, to the byte. Throws UserError where the template raises (roles that do not
// alternate, an unknown role), and for an unknown name (with the nearest one).
std::string RenderTemplate(std::string_view name, std::span<const Message> messages, const TemplateTokens& tokens,
                           bool add_generation_prompt);

struct FolderTemplate {
  std::string name;  // empty: the folder has no chat template
  TemplateTokens tokens;
};
// The template of a model folder, by the text of chat_template in tokenizer_config.json (a string or the list form with names).
// Throws FileError for a Jinja text that is none of the known ones, and offers --template.
FolderTemplate ReadFolderTemplate(const std::string& folder);
// BOS and EOS text only (for a template named by flag): from tokenizer_config.json, else the template's usual ones.
TemplateTokens ReadTemplateTokens(const std::string& folder, std::string_view template_name);

}  // namespace hydrant::tokenizer
