// SPDX-License-Identifier: Apache-2.0
#include "load/end_of_turn.h"

#include <algorithm>
#include <array>
#include <filesystem>

#include "base/json.h"
#include "hydrant/error.h"
#include "tokenizer/chat/chat_template.h"

namespace hydrant::load {
namespace {

class Finder {
 public:
  Finder(const model::ModelConfig& config, const tokenizer::Tokenizer* tokenizer)
      : config_(config), tokenizer_(tokenizer) {}

  void AddFile(const std::string& file, const std::vector<int32_t>& ids, bool believes_several) {
    for (const int32_t id : ids) {
      const bool is_bos = tokenizer_ != nullptr && id == tokenizer_->bos_id() && id != tokenizer_->eos_id();
      if (is_bos && !(believes_several && ids.size() > 1)) {
        doubted_.push_back({file, id});
      } else {
        Add(id, file);
      }
    }
  }
  void Add(int32_t id, const std::string& named_by, bool template_only = false) {
    if (id < 0 || id >= config_.vocab_size) return;  // the model cannot say it
    for (EosToken& token : found_.tokens) {
      if (token.id != id) continue;
      if (std::ranges::find(token.named_by, named_by) == token.named_by.end()) token.named_by.push_back(named_by);
      return;
    }
    const std::array<int32_t, 1> one = {id};
    const bool has_text = tokenizer_ != nullptr && id < tokenizer_->vocab_size();
    found_.tokens.push_back({id, has_text ? tokenizer_->Decode(one, false) : "", {named_by}, template_only});
  }
  // That ends every reply.
  bool has_any() const {
    return std::any_of(found_.tokens.begin(), found_.tokens.end(),
                       [](const EosToken& token) { return !token.template_only; });
  }
  EndOfTurn Take() {
    for (const auto& [file, id] : doubted_) {
      const std::string folder = std::filesystem::path(config_.file).parent_path().string();
      found_.warnings.push_back(
          (folder.empty() ? "" : folder + "/") + file + ": 'eos_token_id' is " + std::to_string(id) +
          ", which is the tokenizer's BOS (" + base::DumpJson(tokenizer_->TokenText(id)) +
          "): it does not end a reply" +
          (has_any() ? "" : "; no other token does, so StopOptions::max_tokens or StopOptions::stop ends it"));
    }
    return std::move(found_);
  }

 private:
  struct Doubt {
    std::string file;
    int32_t id;
  };

  const model::ModelConfig& config_;
  const tokenizer::Tokenizer* tokenizer_;
  std::vector<Doubt> doubted_;
  EndOfTurn found_;
};

// Of the folder; an empty name where it has none, or one that is not known.
tokenizer::FolderTemplate KnownTemplate(const std::string& folder) {
  try {
    return tokenizer::ReadFolderTemplate(folder);
  } catch (const UserError&) {  // whoever renders a prompt by it says what is wrong
    return {};
  }
}

}  // namespace

EndOfTurn FindEndOfTurn(const model::ModelConfig& config, const tokenizer::Tokenizer* tokenizer,
                        const std::string& folder) {
  Finder finder(config, tokenizer);
  finder.AddFile("generation_config.json", config.generation_eos_token_ids, true);
  finder.AddFile("config.json", config.config_eos_token_ids, false);
  if (tokenizer != nullptr) {
    const std::string file = std::filesystem::path(tokenizer->eos_file()).filename().string();
    if (!file.empty()) finder.Add(tokenizer->eos_id(), file);
    if (file.empty() && !finder.has_any()) finder.Add(tokenizer->eos_id(), "the tokenizer's class");
    const tokenizer::FolderTemplate found = KnownTemplate(folder);
    if (!found.name.empty()) {
      finder.Add(tokenizer->IdOfToken(tokenizer::EndOfReply(found.name, found.tokens)), "chat template " + found.name,
                 true);
    }
  }
  return finder.Take();
}

int32_t EndOfReplyId(const std::string& template_name, const tokenizer::Tokenizer* tokenizer,
                     const std::string& folder) {
  if (tokenizer == nullptr || template_name == "none") return -1;
  tokenizer::FolderTemplate found;
  if (template_name == "auto") {
    found = tokenizer::ReadFolderTemplate(folder);
    if (found.name.empty()) return -1;
  } else {
    found = {.name = template_name, .tokens = tokenizer::ReadTemplateTokens(folder, template_name)};
  }
  return tokenizer->IdOfToken(tokenizer::EndOfReply(found.name, found.tokens));
}

}  // namespace hydrant::load
