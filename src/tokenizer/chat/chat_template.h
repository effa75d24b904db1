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
// alternate, an unknown role), for no messages, and for an unknown name (with the nearest one).
std::string RenderTemplate(std::string_view name, std::span<const Message> messages, const TemplateTokens& tokens,
                           bool add_generation_prompt);

// The name of the template with this Jinja text (one line break at the end is no difference to Jinja, nor is the kind
// of line break); empty for a text that is none of the known ones, however similar.
std::string_view RecognizeTemplate(std::string_view jinja);
// What BOS and EOS the template's publisher uses. Throws UserError for an unknown name.
TemplateTokens UsualTokens(std::string_view name);

// The text of the token that ends a reply under the template. Throws UserError for an unknown name.
std::string EndOfReply(std::string_view name, const TemplateTokens& tokens);

struct FolderTemplate {
  std::string name;  // empty: the folder has no chat template
  TemplateTokens tokens;
};
// The template of a model folder: chat_template.jinja, else chat_template in tokenizer_config.json (a string, or the
// list form with names, of which "default" is used). Throws FileError for a Jinja text that is none of the known ones,
// and offers --template.
FolderTemplate ReadFolderTemplate(const std::string& folder);
// BOS and EOS text only (for a template named by flag): from tokenizer_config.json, else the template's usual ones.
TemplateTokens ReadTemplateTokens(const std::string& folder, std::string_view template_name);

}  // namespace hydrant::tokenizer
