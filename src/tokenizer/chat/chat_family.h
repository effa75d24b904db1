// SPDX-License-Identifier: Apache-2.0
// Families of chat models by their names. Many folders of the years 2023 and 2024 have no chat_template (Vicuna,
// Llama-2-chat and Mistral-Instruct among them), and a chat model that gets bare text answers badly.
#pragma once

#include <optional>
#include <string>
#include <string_view>

namespace hydrant::tokenizer {

struct ChatFamily {
  std::string name;           // "Vicuna", as a sentence has it
  std::string template_name;  // for --template
  std::string said_by;        // where the name stands, and the name itself
};

// By the last part of a name such as "lmsys/vicuna-7b-v1.3" or "/models/Llama-2-7b-chat-hf/"; said_by stays empty.
// Nothing for other names, those of base models among them.
std::optional<ChatFamily> FamilyOfName(std::string_view name);

// By the model folder's own name, what the heads say about their base (base_model_name_or_path, their folder's name;
// `draft` may be empty), then _name_or_path of the model's config.json, which may be what it was trained from. Heads
// are not heard about a folder that has a base model's name. Nothing where the folder's names tell no family.
std::optional<ChatFamily> FamilyOfFolders(const std::string& model, const std::string& draft);

}  // namespace hydrant::tokenizer
