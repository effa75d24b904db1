// SPDX-License-Identifier: Apache-2.0
#include "tokenizer/tokenizer_config.h"

#include <algorithm>
#include <array>
#include <charconv>
#include <filesystem>
#include <utility>

#include "base/json.h"
#include "base/mapped_file.h"
#include "base/paths.h"

namespace hydrant::tokenizer {
namespace {

namespace fs = std::filesystem;
using base::JsonView;

constexpr int64_t kMaxId = (int64_t{1} << 31) - 2;
constexpr const char* kConfigName = "tokenizer_config.json";
constexpr const char* kAddedName = "added_tokens.json";
constexpr const char* kMapName = "special_tokens_map.json";

// Keys of one token each, in the order in which transformers numbers tokens that the vocabulary lacks.
constexpr std::array<std::string_view, 7> kRoles = {"bos_token", "eos_token", "unk_token", "sep_token",
                                                    "pad_token", "cls_token", "mask_token"};
// Lists of such tokens; the second is transformers 5's name for the first.
constexpr std::array<std::string_view, 2> kMoreTokens = {"additional_special_tokens", "extra_special_tokens"};

// Special tokens of the CodeLlama classes, and their defaults.
constexpr std::array<std::pair<std::string_view, const char*>, 4> kInfillTokens = {
    {{"prefix_token", "▁<PRE>"}, {"middle_token", "▁<MID>"}, {"suffix_token", "▁<SUF>"}, {"eot_token", "▁<EOT>"}}};

constexpr std::array<std::pair<std::string_view, TokenizerClass>, 7> kClasses = {
    {{"LlamaTokenizer", TokenizerClass::kLlama},
     {"LlamaTokenizerFast", TokenizerClass::kLlama},
     {"CodeLlamaTokenizer", TokenizerClass::kCodeLlama},
     {"CodeLlamaTokenizerFast", TokenizerClass::kCodeLlama},
     {"Qwen2Tokenizer", TokenizerClass::kQwen2},
     {"Qwen2TokenizerFast", TokenizerClass::kQwen2},
     {"PreTrainedTokenizerFast", TokenizerClass::kOther}}};
// What AutoTokenizer takes for a model without a tokenizer_class.
constexpr std::array<std::pair<std::string_view, TokenizerClass>, 4> kClassOfModel = {
    {{"llama", TokenizerClass::kLlama},
     {"mistral", TokenizerClass::kLlama},
     {"qwen2", TokenizerClass::kQwen2},
     {"qwen3", TokenizerClass::kQwen2}}};

struct DefaultToken {
  TokenizerClass class_of;
  const char* key;
  const char* content;
};
constexpr std::array<DefaultToken, 9> kDefaults = {{{TokenizerClass::kLlama, "bos_token", "<s>"},
                                                    {TokenizerClass::kLlama, "eos_token", "</s>"},
                                                    {TokenizerClass::kLlama, "unk_token", "<unk>"},
                                                    {TokenizerClass::kCodeLlama, "bos_token", "<s>"},
                                                    {TokenizerClass::kCodeLlama, "eos_token", "</s>"},
                                                    {TokenizerClass::kCodeLlama, "unk_token", "<unk>"},
                                                    {TokenizerClass::kQwen2, "eos_token", "<|endoftext|>"},
                                                    {TokenizerClass::kQwen2, "unk_token", "<|endoftext|>"},
                                                    {TokenizerClass::kQwen2, "pad_token", "<|endoftext|>"}}};

bool Flag(const JsonView& json, std::string_view key, bool otherwise = false) {
  return json.Has(key) ? json.At(key).Bool() : otherwise;
}

int32_t IdOfKey(const std::string& key, const JsonView& json) {
  int32_t id = -1;
  const char* end = key.data() + key.size();
  const auto parsed = std::from_chars(key.data(), end, id);
  if (parsed.ec != std::errc() || parsed.ptr != end || id < 0) json.Fail("token ids as keys (not \"" + key + "\")");
  return id;
}

void CheckContent(const std::string& content, const JsonView& json) {
  if (content.empty() || content.size() > kMaxAddedTokenBytes) json.Fail("1 to 512 bytes");
}

AddedToken ReadAddedToken(const JsonView& json, bool is_special) {
  AddedToken token;
  token.content = json.At("content").String();
  token.special = is_special || Flag(json, "special");
  token.normalized = Flag(json, "normalized", !token.special);
  token.lstrip = Flag(json, "lstrip");
  token.rstrip = Flag(json, "rstrip");
  token.single_word = Flag(json, "single_word");
  return token;
}

// "<s>" or {"content": "<s>", ...}.
AddedToken ReadSpecialToken(const JsonView& json) {
  AddedToken token{.content = {}, .special = true};
  if (json.is_object()) {
    token = ReadAddedToken(json, true);
  } else {
    token.content = json.String();
  }
  if (token.content.size() > kMaxAddedTokenBytes) json.Fail("at most 512 bytes");
  return token;
}

void PutSpecial(const JsonView& value, std::string_view key, ConfigRules* rules) {
  AddedToken token = ReadSpecialToken(value);
  if (token.content.empty()) return;
  SpecialToken& special = rules->special_tokens.emplace_back();
  special.key = key;
  special.token = std::move(token);
  special.file = value.file();
  special.has_flags = value.is_object();
}

void ReadInfillTokens(const JsonView& config, ConfigRules* rules) {
  if (rules->class_of != TokenizerClass::kUnknown && rules->class_of != TokenizerClass::kCodeLlama) return;
  for (const auto& [key, usual] : kInfillTokens) {
    const bool is_token = config.Has(key) && (config.At(key).is_string() || config.At(key).is_object());
    if (is_token) PutSpecial(config.At(key), key, rules);
    if (config.raw().contains(key) && !config.Has(key)) rules->null_keys.emplace_back(key);
  }
}

// Keys of `config` replace those that are there; the lists are joined.
void ReadSpecialTokens(const JsonView& config, ConfigRules* rules) {
  for (const std::string_view key : kRoles) {
    if (!config.raw().contains(key)) continue;
    std::erase_if(rules->special_tokens, [key](const SpecialToken& special) { return special.key == key; });
    std::erase(rules->null_keys, key);
    if (config.Has(key)) {
      PutSpecial(config.At(key), key, rules);
    } else {
      rules->null_keys.emplace_back(key);
    }
  }
  for (const std::string_view key : kMoreTokens) {
    if (!config.Has(key)) continue;
    const JsonView list = config.At(key);
    if (list.is_object()) {
      for (const auto& [name, value] : list.raw().items()) PutSpecial(list.At(name), kMoreTokens[0], rules);
      continue;
    }
    for (size_t i = 0; i < list.Size(); ++i) PutSpecial(list.At(i), kMoreTokens[0], rules);
  }
}

void SortSpecialTokens(ConfigRules* rules) {
  const auto place = [](const SpecialToken& special) -> size_t {
    for (size_t i = 0; i < kRoles.size(); ++i) {
      if (kRoles[i] == special.key) return i;
    }
    for (size_t i = 0; i < kInfillTokens.size(); ++i) {
      if (kInfillTokens[i].first == special.key) return kRoles.size() + 1 + i;
    }
    return kRoles.size();
  };
  std::stable_sort(rules->special_tokens.begin(), rules->special_tokens.end(),
                   [&](const SpecialToken& a, const SpecialToken& b) { return place(a) < place(b); });
}

void SetClass(const std::string& name, ConfigRules* rules) {
  rules->class_name = name;
  rules->class_of = TokenizerClass::kOther;
  for (const auto& [spelling, class_of] : kClasses) {
    if (spelling == name) rules->class_of = class_of;
  }
}

void ReadUnfollowed(const JsonView& config, ConfigRules* rules) {
  const auto warn = [&](const std::string& text) { rules->warnings.push_back(config.file() + ": " + text); };
  if (config.Has("auto_map")) {
    const JsonView map = config.At("auto_map");
    if (map.is_array() || (map.is_object() && map.Has("AutoTokenizer"))) {
      warn("'auto_map' names Python code of the model's own for its tokenizer, which is not run: ids may differ");
    }
  }
  if (Flag(config, "use_default_system_prompt")) {
    warn(
        "'use_default_system_prompt' is true and not followed (transformers has none since 4.44); give "
        "ChatMessage::system");
  }
  if (Flag(config, "clean_up_tokenization_spaces")) {
    rules->notes.push_back(config.file() +
                           ": 'clean_up_tokenization_spaces' is true and not followed: text is printed as the model "
                           "wrote it, with its spaces before punctuation");
  }
  if (config.Has("sp_model_kwargs")) {
    const JsonView kwargs = config.At("sp_model_kwargs");
    if (!kwargs.is_object()) kwargs.Fail("an object");
    rules->samples = Flag(kwargs, "enable_sampling");
  }
}

void ReadAddedTokensDecoder(const JsonView& tokens, ConfigRules* rules) {
  if (!tokens.is_object()) tokens.Fail("an object of ids and tokens");
  for (const auto& [key, value] : tokens.raw().items()) {
    AddedToken token = ReadAddedToken(tokens.At(key), false);
    CheckContent(token.content, tokens.At(key).At("content"));
    token.id = IdOfKey(key, tokens);
    rules->added_tokens.push_back(std::move(token));
  }
  rules->added_tokens_file = tokens.file();
  rules->added_tokens_have_flags = true;
}

void SortAddedTokens(ConfigRules* rules) {
  std::stable_sort(rules->added_tokens.begin(), rules->added_tokens.end(),
                   [](const AddedToken& a, const AddedToken& b) { return a.id < b.id; });
}

// added_tokens.json, the older place: {"<pad>": 32000}.
std::vector<AddedToken> ReadAddedTokensFile(const std::string& path, const ConfigRules& rules) {
  std::vector<AddedToken> tokens;
  const base::Json json = base::ReadJsonFile(path);
  const JsonView view(json, path);
  if (!view.is_object()) view.Fail("an object of tokens and ids");
  for (const auto& [content, value] : json.items()) {
    const auto id = static_cast<int32_t>(view.At(content).Int(0, kMaxId));
    if (content.empty() || content.size() > kMaxAddedTokenBytes) view.Fail("tokens of 1 to 512 bytes");
    const bool special = rules.IsSpecial(content);
    tokens.push_back({.id = id, .content = content, .special = special, .normalized = !special});
  }
  return tokens;
}

// transformers passes over the older files where there is an added_tokens_decoder.
void WarnOfOlderFiles(const fs::path& folder, ConfigRules* rules) {
  const auto listed = [&](const std::string& content) {
    return std::any_of(rules->added_tokens.begin(), rules->added_tokens.end(),
                       [&](const AddedToken& token) { return token.content == content; });
  };
  const std::string added = (folder / kAddedName).string();
  if (!base::IsThere(added)) return;
  for (const AddedToken& token : ReadAddedTokensFile(added, *rules)) {
    if (listed(token.content)) continue;
    rules->warnings.push_back(added + ": " + base::DumpJson(token.content) + " (" + std::to_string(token.id) +
                              ") is not used: 'added_tokens_decoder' of " + rules->added_tokens_file +
                              " lists the added tokens, and it is not among them");
  }
}

void ReadOlderFiles(const fs::path& folder, ConfigRules* rules) {
  const std::string map = (folder / kMapName).string();
  if (base::IsThere(map)) {
    const base::Json json = base::ReadJsonFile(map);
    const JsonView view(json, map);
    if (!view.is_object()) view.Fail("an object");
    ReadSpecialTokens(view, rules);
  }
  const std::string added = (folder / kAddedName).string();
  if (!base::IsThere(added)) return;
  rules->added_tokens = ReadAddedTokensFile(added, *rules);
  rules->added_tokens_file = added;
}

// The class by config.json, where tokenizer_config.json names none.
void ReadClassOfModel(const fs::path& folder, ConfigRules* rules) {
  const std::string file = (folder / "config.json").string();
  if (rules->class_of != TokenizerClass::kUnknown || !base::IsThere(file)) return;
  const base::Json json = base::ReadJsonFile(file);
  const JsonView config(json, file);
  if (!config.is_object()) return;  // the model's reader says so
  if (config.Has("tokenizer_class")) return SetClass(config.At("tokenizer_class").String(), rules);
  if (!config.Has("model_type") || !config.At("model_type").is_string()) return;
  const std::string type = config.At("model_type").String();
  for (const auto& [name, class_of] : kClassOfModel) {
    if (name == type) rules->class_of = class_of;
  }
}

// Of other classes they are no tokens.
void SettleInfillTokens(ConfigRules* rules) {
  for (const auto& [key, usual] : kInfillTokens) {
    if (rules->class_of != TokenizerClass::kCodeLlama) {
      std::erase_if(rules->special_tokens, [key = key](const SpecialToken& special) { return special.key == key; });
    } else if (rules->Special(key) == nullptr && !rules->IsNull(key)) {
      SpecialToken& special = rules->special_tokens.emplace_back();
      special.key = key;
      special.token = {.content = usual, .special = true};
    }
  }
}

void AddDefaults(ConfigRules* rules) {
  for (const DefaultToken& usual : kDefaults) {
    if (usual.class_of != rules->class_of || rules->Special(usual.key) != nullptr || rules->IsNull(usual.key)) continue;
    SpecialToken& special = rules->special_tokens.emplace_back();
    special.key = usual.key;
    special.token.content = usual.content;
    special.token.special = true;
    special.is_default = true;
  }
}

}  // namespace

const SpecialToken* ConfigRules::Special(std::string_view key) const {
  for (const SpecialToken& special : special_tokens) {
    if (special.key == key) return &special;
  }
  return nullptr;
}

bool ConfigRules::IsNull(std::string_view key) const {
  return std::find(null_keys.begin(), null_keys.end(), key) != null_keys.end();
}

bool ConfigRules::IsSpecial(std::string_view content) const {
  return std::any_of(special_tokens.begin(), special_tokens.end(),
                     [content](const SpecialToken& special) { return special.token.content == content; });
}

AddedToken ConfigRules::WithFlagsOfRole(AddedToken listed, bool slow) const {
  for (const SpecialToken& special : special_tokens) {
    if (special.token.content != listed.content) continue;
    const bool is_object =
        special.is_default ? slow || class_of == TokenizerClass::kQwen2 : special.has_flags && !added_tokens_have_flags;
    if (!is_object) continue;
    const bool was_special = listed.special;
    const int32_t id = listed.id;
    listed = special.token;
    listed.id = id;
    listed.special = listed.special || was_special;
  }
  return listed;
}

std::string EosNotAdded(const std::string& file) {
  return file + ": 'add_eos_token' is true and not followed: nothing could be generated after a prompt that ends";
}

ConfigRules ParseConfigRules(std::string_view text, const std::string& file) {
  const base::Json json = base::ParseJson(text, file);
  const JsonView config(json, file);
  if (!config.is_object()) config.Fail("an object");
  ConfigRules rules;
  rules.file = file;
  if (config.Has("tokenizer_class")) SetClass(config.At("tokenizer_class").String(), &rules);
  if (config.Has("add_bos_token")) rules.add_bos_token = config.At("add_bos_token").Bool();
  rules.add_eos_token = Flag(config, "add_eos_token");
  rules.legacy = Flag(config, "legacy", true);
  if (config.Has("add_prefix_space")) rules.add_prefix_space = config.At("add_prefix_space").Bool();
  rules.prefix_space_is_null = json.contains("add_prefix_space") && !config.Has("add_prefix_space");
  rules.split_special_tokens = Flag(config, "split_special_tokens");
  ReadSpecialTokens(config, &rules);
  ReadInfillTokens(config, &rules);
  if (config.Has("added_tokens_decoder")) ReadAddedTokensDecoder(config.At("added_tokens_decoder"), &rules);
  ReadUnfollowed(config, &rules);
  SortAddedTokens(&rules);
  SortSpecialTokens(&rules);
  return rules;
}

ConfigRules ReadConfigRules(const std::string& folder) {
  const fs::path path(folder);
  ConfigRules rules;
  const std::string config = (path / kConfigName).string();
  if (base::IsThere(config)) rules = ParseConfigRules(base::ReadTextFile(config), config);
  rules.file = config;
  rules.has_model_file = base::IsThere(path / "tokenizer.model");
  if (rules.added_tokens_file.empty()) {
    ReadOlderFiles(path, &rules);
  } else {
    WarnOfOlderFiles(path, &rules);
  }
  ReadClassOfModel(path, &rules);
  AddDefaults(&rules);
  SettleInfillTokens(&rules);
  SortAddedTokens(&rules);
  SortSpecialTokens(&rules);
  return rules;
}

}  // namespace hydrant::tokenizer
