// SPDX-License-Identifier: Apache-2.0
// From what the user typed to the ids that the model sees.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "cli/flags/run_flags.h"
#include "hydrant/engine.h"

namespace hydrant::cli {

// The template that --template means for this model folder: its name, or "none". Throws FileError for a Jinja text that
// is not known.
std::string ResolveTemplate(const std::string& model_folder, const std::string& template_name);
// The same for a run. Where the folder has no template and its name, or that of the heads' base, tells a known family:
// a chat (`interactive`) takes the family's template; a prompt stays as it is. Both add a warning to `options`.
std::string ChooseTemplate(RunOptions& options, bool interactive);

// Ids of a conversation under a template: special tokens parsed, no second BOS. With "none": the text of the last
// message, BOS as the tokenizer files say.
std::vector<int32_t> ConversationIds(const Engine& engine, std::span<const ChatMessage> messages,
                                     const std::string& resolved_template);

// Refuses a prompt without text, which no model was trained to answer: `name` is the flag or file that it came from.
// Templates cut white space, so under one a prompt of white space is empty too.
void CheckPromptText(const std::string& name, const std::string& text, const std::string& resolved_template);

// The system message (if any) and one user message.
std::vector<ChatMessage> FirstMessages(const RunOptions& options, const std::string& text);

}  // namespace hydrant::cli
