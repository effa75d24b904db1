// SPDX-License-Identifier: Apache-2.0
#include "tokenizer/chat/chat_family.h"

#include <algorithm>
#include <array>
#include <filesystem>
#include <vector>

#include "base/json.h"
#include "base/mapped_file.h"
#include "base/paths.h"

namespace hydrant::tokenizer {
namespace {

namespace fs = std::filesystem;

// Words are looked for in names in lower case without '-', '_', ' ' and '.': "Llama-2-7b-chat-hf" is "llama27bchathf".
struct FamilyRow {
  const char* name;
  const char* template_name;
  std::array<std::string_view, 2> words;      // all of them
  std::array<std::string_view, 4> not_words;  // none of them
};

// The first row that fits.
constexpr std::array kRows = {
    // The first Vicuna spoke "### Human:"; it was published as a difference to LLaMA only.
    FamilyRow{"Vicuna", "vicuna", {"vicuna", ""}, {"deltav0", "7bv0", "13bv0", "stable"}},
    FamilyRow{"LongChat", "vicuna", {"longchat", ""}, {"", "", ""}},
    FamilyRow{"TinyLlama-Chat", "zephyr", {"tinyllama", "chat"}, {"chatv01", "chatv02", "chatv03"}},
    FamilyRow{"Zephyr", "zephyr", {"zephyr", ""}, {"stablelm", "gemma", ""}},
    FamilyRow{"OpenHermes", "chatml_plain", {"openhermes", ""}, {"", "", ""}},
    FamilyRow{"Nous-Hermes-2", "chatml_plain", {"hermes2", ""}, {"noushermesllama2", "", ""}},
    FamilyRow{"Dolphin", "chatml_plain", {"dolphin2", ""}, {"", "", ""}},
    FamilyRow{"Yi-Chat", "chatml_plain", {"yi6b", "chat"}, {"", "", ""}},
    FamilyRow{"Yi-Chat", "chatml_plain", {"yi34b", "chat"}, {"", "", ""}},
    FamilyRow{"Yi-Chat", "chatml_plain", {"yi15", "chat"}, {"", "", ""}},
    FamilyRow{"CodeLlama-Instruct", "llama-2", {"codellama", "instruct"}, {"70b", "", ""}},
    FamilyRow{"Llama-2-chat", "llama-2", {"llama2", "chat"}, {"chinese", "", ""}},
    FamilyRow{"Llama-3.1-Instruct", "llama-3.1", {"llama31", "instruct"}, {"", "", ""}},
    FamilyRow{"Llama-3.2-Instruct", "llama-3.1", {"llama32", "instruct"}, {"", "", ""}},
    FamilyRow{"Llama-3.3-Instruct", "llama-3.1", {"llama33", "instruct"}, {"", "", ""}},
    FamilyRow{"Llama-3-Instruct", "llama-3", {"llama3", "instruct"}, {"", "", ""}},
    FamilyRow{"Mistral-Instruct", "mistral_v01", {"mistral", "instructv01"}, {"", "", ""}},
    FamilyRow{"Mistral-Instruct", "mistral", {"mistral", "instruct"}, {"nemo", "small", "large"}},
    FamilyRow{"Qwen1.5-Chat", "chatml_qwen15", {"qwen15", "chat"}, {"", "", ""}},
    FamilyRow{"Qwen2.5-Instruct", "chatml_qwen25", {"qwen25", "instruct"}, {"", "", ""}},
    FamilyRow{"Qwen2-Instruct", "chatml", {"qwen2", "instruct"}, {"", "", ""}},
    FamilyRow{"Qwen3", "chatml_plain", {"qwen3", ""}, {"base", "embedding", "reranker"}},
};

// Names of base models; those of their chat models have been found before.
constexpr std::array<std::string_view, 9> kBases = {"llama2",  "llama3", "llama7b", "llama13b", "codellama",
                                                    "mistral", "qwen15", "qwen2",   "qwen3"};

// Without organisation and folders. "checkpoint-500" says nothing, and what stands before it does.
std::string LastPart(std::string_view name) {
  std::vector<std::string> parts = {""};
  for (const char letter : name) {
    if (letter == '/' || letter == '\\') {
      parts.emplace_back();
    } else {
      parts.back() += letter;
    }
  }
  const auto says_nothing = [](const std::string& part) {
    return part.empty() || part == "." || part == ".." || part.starts_with("checkpoint-");
  };
  while (parts.size() > 1 && says_nothing(parts.back())) parts.pop_back();
  return parts.back();
}

std::string Bare(std::string_view name) {
  std::string bare;
  for (const char letter : name) {
    if (letter == '-' || letter == '_' || letter == ' ' || letter == '.') continue;
    bare += letter >= 'A' && letter <= 'Z' ? static_cast<char>(letter - 'A' + 'a') : letter;
  }
  return bare;
}

bool IsBaseName(std::string_view name) {
  const std::string bare = Bare(LastPart(name));
  return !FamilyOfName(name) &&
         std::any_of(kBases.begin(), kBases.end(), [&](std::string_view base) { return bare.find(base) != bare.npos; });
}

// The folder's name; of "models--org--name/snapshots/HASH" (the cache of the hub) the model's.
std::string NameOfFolder(const std::string& folder) {
  std::error_code error;
  fs::path path = fs::absolute(folder, error).lexically_normal();
  if (!path.has_filename()) path = path.parent_path();
  if (path.parent_path().filename() == "snapshots") path = path.parent_path().parent_path();
  const std::string name = path.filename().string();
  const std::string prefix = "models--";
  const size_t organisation = name.starts_with(prefix) ? name.find("--", prefix.size()) : std::string::npos;
  return organisation == std::string::npos ? name : name.substr(organisation + 2);
}

// A text of config.json; empty where there is none. What is wrong with the file, its reader says.
std::string TextOf(const std::string& folder, const char* key) {
  const std::string file = (fs::path(folder) / "config.json").string();
  if (folder.empty() || !base::IsThere(file)) return "";
  const base::Json json = base::ReadJsonFile(file);
  return json.is_object() && json.contains(key) && json[key].is_string() ? json[key].get<std::string>() : "";
}

std::optional<ChatFamily> FamilyOf(const std::string& name, const std::string& where) {
  std::optional<ChatFamily> family = FamilyOfName(name);
  if (family) family->said_by = where + " is " + base::DumpJson(name);
  return family;
}

std::optional<ChatFamily> FamilyOfKey(const std::string& folder, const char* key) {
  return FamilyOf(TextOf(folder, key), std::string("'") + key + "' of " + (fs::path(folder) / "config.json").string());
}

}  // namespace

std::optional<ChatFamily> FamilyOfName(std::string_view name) {
  const std::string bare = Bare(LastPart(name));
  const auto has = [&bare](std::string_view word) { return bare.find(word) != std::string::npos; };
  for (const FamilyRow& row : kRows) {
    if (!std::all_of(row.words.begin(), row.words.end(), has)) continue;
    if (std::any_of(row.not_words.begin(), row.not_words.end(),
                    [&](std::string_view word) { return !word.empty() && has(word); })) {
      continue;
    }
    return ChatFamily{row.name, row.template_name, ""};
  }
  return std::nullopt;
}

std::optional<ChatFamily> FamilyOfFolders(const std::string& model, const std::string& draft) {
  const std::string own_name = NameOfFolder(model);
  std::optional<ChatFamily> family = FamilyOf(own_name, "the folder's name");
  if (!family && !IsBaseName(own_name)) {
    for (const std::string& heads : {draft, model}) {  // a whole model with heads says it of itself
      if (!family) family = FamilyOfKey(heads, "base_model_name_or_path");
    }
    if (!family && !draft.empty()) family = FamilyOf(NameOfFolder(draft), "the name of the heads' folder");
  }
  return family ? family : FamilyOfKey(model, "_name_or_path");
}

}  // namespace hydrant::tokenizer
