// SPDX-License-Identifier: Apache-2.0
// Which files of a folder make its tokenizer.
#include <algorithm>
#include <charconv>
#include <filesystem>

#include "base/json.h"
#include "base/mapped_file.h"
#include "base/paths.h"
#include "hydrant/error.h"
#include "tokenizer/loaders.h"

namespace hydrant::tokenizer {
namespace {

namespace fs = std::filesystem;
using base::JsonView;

constexpr const char* kJsonName = "tokenizer.json";
constexpr const char* kModelName = "tokenizer.model";
constexpr int64_t kMaxId = (int64_t{1} << 31) - 2;

bool Flag(const JsonView& json, std::string_view key) { return json.Has(key) && json.At(key).Bool(); }

int32_t IdOfKey(const std::string& key, const JsonView& json) {
  int32_t id = -1;
  const char* end = key.data() + key.size();
  const auto parsed = std::from_chars(key.data(), end, id);
  if (parsed.ec != std::errc() || parsed.ptr != end || id < 0) json.Fail("token ids as keys (not \"" + key + "\")");
  return id;
}

AddedToken ReadAddedToken(int32_t id, const JsonView& json) {
  AddedToken token;
  token.id = id;
  token.content = json.At("content").String();
  token.special = Flag(json, "special");
  token.lstrip = Flag(json, "lstrip");
  token.rstrip = Flag(json, "rstrip");
  token.single_word = Flag(json, "single_word");
  if (token.content.empty() || token.content.size() > kMaxAddedTokenBytes) json.At("content").Fail("1 to 512 bytes");
  return token;
}

// added_tokens.json, the older place: {"<pad>": 32000}.
std::vector<AddedToken> ReadAddedTokensFile(const std::string& path) {
  std::vector<AddedToken> tokens;
  const base::Json json = base::ReadJsonFile(path);
  const JsonView view(json, path);
  if (!view.is_object()) view.Fail("an object of tokens and ids");
  for (const auto& [content, value] : json.items()) {
    const auto id = static_cast<int32_t>(view.At(content).Int(0, kMaxId));
    if (content.empty() || content.size() > kMaxAddedTokenBytes) view.Fail("tokens of 1 to 512 bytes");
    tokens.push_back({.id = id, .content = content, .special = true});
  }
  std::sort(tokens.begin(), tokens.end(), [](const AddedToken& a, const AddedToken& b) { return a.id < b.id; });
  return tokens;
}

ConfigRules ReadConfigRules(const fs::path& folder) {
  ConfigRules rules;
  const fs::path config = folder / "tokenizer_config.json";
  if (base::IsThere(config)) rules = ParseConfigRules(base::ReadTextFile(config.string()), config.string());
  const fs::path added = folder / "added_tokens.json";
  if (rules.added_tokens.empty() && base::IsThere(added)) rules.added_tokens = ReadAddedTokensFile(added.string());
  return rules;
}

std::string TokenTextOf(const JsonView& json) {
  if (json.is_object()) return json.At("content").String();
  return json.String();
}

}  // namespace

ConfigRules ParseConfigRules(std::string_view text, const std::string& file) {
  const base::Json json = base::ParseJson(text, file);
  const JsonView config(json, file);
  if (!config.is_object()) config.Fail("an object");
  ConfigRules rules;
  if (config.Has("add_bos_token")) rules.add_bos_token = config.At("add_bos_token").Bool();
  if (config.Has("bos_token")) rules.bos_token = TokenTextOf(config.At("bos_token"));
  if (config.Has("tokenizer_class")) {
    const std::string name = config.At("tokenizer_class").String();
    rules.is_llama_class = name == "LlamaTokenizer" || name == "LlamaTokenizerFast";
  }
  if (config.Has("added_tokens_decoder")) {
    const JsonView tokens = config.At("added_tokens_decoder");
    if (!tokens.is_object()) tokens.Fail("an object of ids and tokens");
    for (const auto& [key, value] : tokens.raw().items()) {
      rules.added_tokens.push_back(ReadAddedToken(IdOfKey(key, tokens), tokens.At(key)));
    }
  }
  return rules;
}

bool HasTokenizer(const std::string& folder) {
  return base::IsThere(fs::path(folder) / kJsonName) || base::IsThere(fs::path(folder) / kModelName);
}

std::unique_ptr<Tokenizer> LoadTokenizer(const std::string& path) {
  fs::path file = path;
  std::error_code error;
  if (fs::is_directory(file, error)) {
    if (!HasTokenizer(path)) {
      throw FileError(path, "has no tokenizer.json and no tokenizer.model",
                      "name a folder or a file with the tokenizer of the model");
    }
    const fs::path json = file / kJsonName;
    file = base::IsThere(json) ? json : file / kModelName;
  }
  const std::string name = file.string();
  const std::string text = base::ReadTextFile(name);
  const ConfigRules rules = ReadConfigRules(file.parent_path());
  if (file.extension() == ".json") return LoadTokenizerJson(text, name, rules);
  if (file.extension() == ".model") return LoadSentencePiece(text, name, rules);
  throw FileError(name, "is no tokenizer file, expected tokenizer.json or tokenizer.model");
}

}  // namespace hydrant::tokenizer
