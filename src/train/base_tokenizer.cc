// SPDX-License-Identifier: Apache-2.0
#include "train/base_tokenizer.h"

#include <array>
#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <system_error>
#include <utility>

#include "base/json.h"
#include "base/mapped_file.h"
#include "base/paths.h"
#include "base/placeholder.h"
#include "hydrant/error.h"
#include "train/trained_tensor.h"

namespace hydrant::train {
namespace {

namespace fs = std::filesystem;
using base::Json;

constexpr std::array<const char*, 6> kNames = {"tokenizer.model",         "tokenizer.json",    "tokenizer_config.json",
                                               "special_tokens_map.json", "added_tokens.json", "chat_template.jinja"};

// Vicuna v1.1's, as models/tale-14m has it: the text by which it is recognized.
constexpr const char* kVicuna =
    "{% if messages[0]['role'] == 'system' %}{% set system = messages[0]['content'] %}{% set rest = messages[1:] %}"
    "{% else %}{% set system = 'A chat between a curious user and an artificial intelligence assistant. The assistant "
    "gives helpful, detailed, and polite answers to the user\\'s questions.' %}{% set rest = messages %}{% endif %}"
    "{{ bos_token + system }}{% for m in rest %}{% if m['role'] == 'user' %}"
    "{{ (' ' if loop.first else '') + 'USER: ' + m['content'] }}{% else %}"
    "{{ ' ASSISTANT: ' + m['content'] + eos_token }}{% endif %}{% endfor %}"
    "{% if add_generation_prompt %}{{ ' ASSISTANT:' }}{% endif %}";

// A folder of its own, removed at the end: loading wants the files beside each other.
class Folder {
 public:
  Folder() {
    path_ = (fs::temp_directory_path() / "hydrant-tokenizer-XXXXXX").string();
    if (mkdtemp(path_.data()) == nullptr)
      throw FileError(path_, std::string("cannot be made: ") + std::strerror(errno));
  }
  ~Folder() {
    std::error_code ignored;
    fs::remove_all(path_, ignored);
  }
  Folder(const Folder&) = delete;
  Folder& operator=(const Folder&) = delete;
  const std::string& path() const { return path_; }

 private:
  std::string path_;
};

LoadedTokenizer LoadFrom(const std::string& folder, const std::string& template_name) {
  return {.tokenizer = tokenizer::LoadTokenizer(folder),
          .chat = template_name.empty()
                      ? tokenizer::ReadFolderTemplate(folder)
                      : tokenizer::FolderTemplate{template_name, tokenizer::ReadTemplateTokens(folder, template_name)}};
}

}  // namespace

void CheckNewTemplate(const std::string& template_name) {
  if (template_name.empty() || template_name == "vicuna") return;
  throw UserError("RenderChat::template_name is '" + template_name + "', and a new tokenizer can have 'vicuna' alone",
                  "for another template take the tokenizer of a model that has it");
}

TokenizerFiles NewTokenizerFiles(std::string model, const std::string& template_name, int64_t max_positions) {
  CheckNewTemplate(template_name);
  Json config = {{"tokenizer_class", "LlamaTokenizer"},
                 {"bos_token", "<s>"},
                 {"eos_token", "</s>"},
                 {"unk_token", "<unk>"},
                 {"add_bos_token", true},
                 {"add_eos_token", false},
                 {"model_max_length", max_positions},
                 {"legacy", true}};
  if (!template_name.empty()) config["chat_template"] = kVicuna;
  return {{"tokenizer.model", std::move(model)}, {"tokenizer_config.json", config.dump(1) + "\n"}};
}

TokenizerFiles ReadTokenizerFiles(const std::string& folder, const std::string& template_name) {
  if (!base::IsFolder(folder)) throw FileError(folder, "is no folder", base::MissingPathHint(folder));
  if (!tokenizer::HasTokenizer(folder)) throw FileError(folder, "has no tokenizer.json and no tokenizer.model");
  static_cast<void>(LoadFrom(folder, template_name));  // for errors that name the folder's own files
  TokenizerFiles files;
  for (const char* name : kNames) {
    const std::string path = (fs::path(folder) / name).string();
    if (!base::IsThere(path)) continue;
    std::string text = base::ReadTextFile(path);
    base::RefusePlaceholder(text, path);
    files.emplace(name, std::move(text));
  }
  return files;
}

LoadedTokenizer LoadTokenizerOf(const TokenizerFiles& files, const std::string& template_name) {
  const Folder folder;
  for (const auto& [name, content] : files) WriteText(folder.path() + "/" + name, content);
  return LoadFrom(folder.path(), template_name);
}

}  // namespace hydrant::train
