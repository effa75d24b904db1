// SPDX-License-Identifier: Apache-2.0
// tokenizer.json: added tokens, normalizer, pre-tokenizer, BPE, decoder, in the order of the tokenizers library.
#include <algorithm>
#include <optional>

#include "base/json.h"
#include "hydrant/error.h"
#include "tokenizer/decoder.h"
#include "tokenizer/json/bpe.h"
#include "tokenizer/json/json_added_tokens.h"
#include "tokenizer/json/normalizer.h"
#include "tokenizer/json/pre_tokenizer.h"
#include "tokenizer/loaders.h"
#include "tokenizer/utf8.h"

namespace hydrant::tokenizer {
namespace {

using base::Json;
using base::JsonView;

const Json& NullJson() {
  static const Json null;
  return null;
}

// The member, or null when it is absent.
JsonView Member(const JsonView& json, std::string_view key) {
  return json.Has(key) ? json.At(key) : JsonView(NullJson(), json.file());
}

// The special token that TemplateProcessing puts first, -1 for none. Other things that it could do to a prompt, such as
// an EOS at its end, are refused.
int32_t TemplateBos(const JsonView& json, int32_t vocab_size) {
  const JsonView single = json.At("single");
  const size_t size = single.Size();
  if (size == 0 || size > 2 || !single.At(size - 1).Has("Sequence"))
    single.Fail("at most one special token, then the text");
  if (size == 1) return -1;
  const std::string name = single.At(size_t{0}).At("SpecialToken").At("id").String();
  const JsonView ids = json.At("special_tokens").At(name).At("ids");
  if (ids.Size() != 1) ids.Fail("one id");
  return static_cast<int32_t>(ids.At(size_t{0}).Int(0, vocab_size - 1));
}

int32_t PostProcessorBos(const JsonView& json, int32_t vocab_size) {
  if (json.is_null()) return -1;
  const JsonView type = json.At("type");
  const std::string name = type.String();
  if (name == "TemplateProcessing") return TemplateBos(json, vocab_size);
  if (name == "ByteLevel") return -1;  // moves offsets only
  if (name != "Sequence") {
    type.Fail("TemplateProcessing, ByteLevel or Sequence", "this post-processor is not supported");
  }
  int32_t bos = -1;
  const JsonView members = json.At("processors");
  for (size_t i = 0; i < members.Size(); ++i) {
    const JsonView member = members.At(i);
    if (member.At("type").String() == "Sequence") member.At("type").Fail("TemplateProcessing or ByteLevel");
    const int32_t found = PostProcessorBos(member, vocab_size);
    if (found >= 0 && bos >= 0) member.Fail("one TemplateProcessing at most");
    bos = std::max(bos, found);
  }
  return bos;
}

// Whether a part of the file puts a space before a text.
bool BeginsWithSpace(const Json& part) {
  if (!part.is_object()) return false;
  for (const char* key : {"normalizer", "pre_tokenizer"}) {
    if (part.contains(key) && BeginsWithSpace(part[key])) return true;
  }
  for (const char* key : {"normalizers", "pretokenizers"}) {
    if (part.contains(key) && part[key].is_array() &&
        std::any_of(part[key].begin(), part[key].end(), [](const Json& member) { return BeginsWithSpace(member); })) {
      return true;
    }
  }
  const auto text = [&](const char* key) { return part.contains(key) && part[key].is_string() ? part[key] : Json(""); };
  if (text("type") == "Prepend") return true;
  if (text("type") == "Metaspace") return text("prepend_scheme") != "never";
  return text("type") == "ByteLevel" && part.value("add_prefix_space", Json(true)) == true;
}

// transformers makes a LlamaTokenizerFast anew from tokenizer.model where the config has add_prefix_space
// (LlamaConverter in convert_slow_tokenizer.py): what tokenizer.json says about spaces then does not count.
void RebuildSpaces(const ConfigRules& rules, Json* json) {
  const bool prefix = *rules.add_prefix_space;
  const Json space = {{"type", "Replace"}, {"pattern", {{"String", " "}}}, {"content", kWordBoundary}};
  (*json)["normalizer"] = nullptr;
  (*json)["pre_tokenizer"] = nullptr;
  if (rules.legacy) {
    Json steps = Json::array();
    if (prefix) steps.push_back({{"type", "Prepend"}, {"prepend", kWordBoundary}});
    steps.push_back(space);
    (*json)["normalizer"] = {{"type", "Sequence"}, {"normalizers", steps}};
  } else {
    (*json)["pre_tokenizer"] = {{"type", "Metaspace"},
                                {"replacement", kWordBoundary},
                                {"prepend_scheme", prefix ? "first" : "never"},
                                {"split", false}};
  }
  Json decoders = {{{"type", "Replace"}, {"pattern", {{"String", kWordBoundary}}}, {"content", " "}},
                   {{"type", "ByteFallback"}},
                   {{"type", "Fuse"}}};
  if (prefix) decoders.push_back({{"type", "Strip"}, {"content", " "}, {"start", 1}, {"stop", 0}});
  (*json)["decoder"] = {{"type", "Sequence"}, {"decoders", decoders}};
}

bool RebuildsSpaces(const ConfigRules& rules, const Json& json) {
  if (rules.class_of != TokenizerClass::kLlama || !rules.has_model_file || !rules.add_prefix_space) return false;
  return json.is_object() && json.contains("model") && json["model"].is_object() &&
         json["model"].value("byte_fallback", Json(false)) == true;
}

struct TokenEntry {
  DecodedToken decoded;
  bool special = false;
};

class JsonTokenizer : public Tokenizer {
 public:
  // `rebuilt`: transformers makes this tokenizer anew from tokenizer.model, whose own tokens it looks for in the text
  // as it is (convert_slow_tokenizer.py, SpmConverter).
  JsonTokenizer(const JsonView& json, const ConfigRules& rules, bool rebuilt)
      : normalizer_(Normalizer::Parse(Member(json, "normalizer"))),
        pre_tokenizer_(PreTokenizer::Parse(Member(json, "pre_tokenizer"))),
        decoder_(Decoder::Parse(json.At("decoder"))),
        bpe_(BpeModel::Parse(json.At("model"))),
        parses_special_(!rules.split_special_tokens) {
    warnings_ = rules.warnings;
    notes_ = rules.notes;
    for (const std::string& token : bpe_.tokens()) entries_.push_back({decoder_.Decode(token), false});
    for (AddedToken& token : JoinAddedTokens(Member(json, "added_tokens"), bpe_, rules, &warnings_)) {
      if (rebuilt && token.special && bpe_.IdOf(token.content) >= 0) token.normalized = false;
      Add(token);
    }
    ChooseBos(Member(json, "post_processor"), rules);
    if (const SpecialToken* eos = rules.Special("eos_token")) {
      eos_id_ = IdOfToken(eos->token.content);
      eos_file_ = eos->file;
    }
    WarnOfTheRest(json, rules);
  }

  std::vector<int32_t> Encode(std::string_view text, const EncodeOptions& options) const override;
  std::string Decode(std::span<const int32_t> ids, bool skip_special) const override;
  std::string TokenBytes(int32_t id, bool is_first) const override;

  int32_t vocab_size() const override { return static_cast<int32_t>(entries_.size()); }
  bool IsSpecial(int32_t id) const override { return InRange(id) && entries_[static_cast<size_t>(id)].special; }
  int32_t bos_id() const override { return bos_id_; }
  bool adds_bos() const override { return adds_bos_; }
  std::string TokenText(int32_t id) const override {
    return IsSpecial(id) ? entries_[static_cast<size_t>(id)].decoded.bytes : "";
  }
  int32_t IdOfToken(std::string_view text) const override {
    const auto added = added_ids_.find(std::string(text));
    return added != added_ids_.end() ? added->second : bpe_.IdOf(text);
  }

 private:
  bool InRange(int32_t id) const { return id >= 0 && id < vocab_size(); }
  void Add(const AddedToken& token);
  void ChooseBos(const JsonView& post_processor, const ConfigRules& rules);
  void WarnOfTheRest(const JsonView& json, const ConfigRules& rules);
  void EncodeNormalized(std::string_view text, bool at_start, bool parse_special, std::vector<int32_t>* ids) const;

  Normalizer normalizer_;
  PreTokenizer pre_tokenizer_;
  Decoder decoder_;
  BpeModel bpe_;
  std::vector<TokenEntry> entries_;  // by id
  std::unordered_map<std::string, int32_t> added_ids_;
  AddedTokenFinder raw_tokens_;         // looked for in the text as it comes
  AddedTokenFinder normalized_tokens_;  // looked for after normalization
  int32_t bos_id_ = -1;
  bool adds_bos_ = false;
  bool parses_special_;
};

void JsonTokenizer::Add(const AddedToken& token) {
  added_ids_.emplace(token.content, token.id);
  const auto index = static_cast<size_t>(token.id);
  if (index >= entries_.size()) entries_.resize(index + 1);
  // The content is text, not letters of the byte alphabet (the reference library takes it for letters where it can).
  entries_[index] = {{token.content, false}, token.special};
  const std::string content = token.normalized ? normalizer_.Apply(token.content) : token.content;
  if (!content.empty()) (token.normalized ? normalized_tokens_ : raw_tokens_).Add(token, content);
}

// LlamaTokenizerFast writes the post-processor anew from its bos_token and add_bos_token; other classes leave it.
void JsonTokenizer::ChooseBos(const JsonView& post_processor, const ConfigRules& rules) {
  const SpecialToken* named = rules.Special("bos_token");
  const int32_t named_id = named == nullptr ? -1 : IdOfToken(named->token.content);
  const bool is_llama = rules.class_of == TokenizerClass::kLlama || rules.class_of == TokenizerClass::kCodeLlama;
  bos_id_ = named_id;
  if (!is_llama || named_id < 0) {
    const int32_t template_bos = PostProcessorBos(post_processor, vocab_size());
    if (template_bos >= 0) bos_id_ = template_bos;
    adds_bos_ = template_bos >= 0;
  }
  if (!is_llama) return;
  if (named_id >= 0) adds_bos_ = rules.add_bos_token.value_or(true);
  if (named_id < 0 && rules.add_bos_token.has_value()) adds_bos_ = *rules.add_bos_token && bos_id_ >= 0;
  if (rules.add_eos_token) warnings_.push_back(EosNotAdded(rules.file));
}

void JsonTokenizer::WarnOfTheRest(const JsonView& json, const ConfigRules& rules) {
  for (const char* key : {"truncation", "padding"}) {
    if (!json.Has(key)) continue;
    warnings_.push_back(json.file() + ": '" + key +
                        "' is not followed: a text keeps all its tokens and gets no others");
  }
  if (!rules.add_prefix_space.has_value() || *rules.add_prefix_space == BeginsWithSpace(json.raw())) return;
  warnings_.push_back(rules.file + ": 'add_prefix_space' is " + (*rules.add_prefix_space ? "true" : "false") +
                      ", and tokenizer.json says otherwise: tokenizer.json is followed");
}

std::vector<int32_t> JsonTokenizer::Encode(std::string_view text, const EncodeOptions& options) const {
  std::vector<int32_t> ids;
  if (options.add_bos) {
    if (bos_id_ < 0) throw UserError("the tokenizer has no BOS token", "encode without Tokenize::add_bos");
    ids.push_back(bos_id_);
  }
  const bool parse_special = options.parse_special && parses_special_;
  const std::string clean = ReplaceInvalid(text);
  const std::string_view whole = clean;
  for (const AddedTokenFinder::Piece& piece : raw_tokens_.Split(whole, parse_special)) {
    if (piece.id >= 0) {
      ids.push_back(piece.id);
    } else {
      const std::string normalized = normalizer_.Apply(whole.substr(piece.begin, piece.end - piece.begin));
      EncodeNormalized(normalized, piece.begin == 0, parse_special, &ids);
    }
  }
  return ids;
}

void JsonTokenizer::EncodeNormalized(std::string_view text, bool at_start, bool parse_special,
                                     std::vector<int32_t>* ids) const {
  for (const AddedTokenFinder::Piece& piece : normalized_tokens_.Split(text, parse_special)) {
    if (piece.id >= 0) {
      ids->push_back(piece.id);
    } else {
      pre_tokenizer_.Split(text.substr(piece.begin, piece.end - piece.begin), at_start && piece.begin == 0,
                           [&](std::string_view word) { bpe_.Encode(word, ids); });
    }
  }
}

std::string JsonTokenizer::Decode(std::span<const int32_t> ids, bool skip_special) const {
  std::string bytes;
  std::string run;  // of byte tokens, which become text together or not at all
  const auto end_run = [&] {
    if (IsValidUtf8(run)) {
      bytes += run;
    } else {
      for (size_t i = 0; i < run.size(); ++i) bytes += kReplacement;
    }
    run.clear();
  };
  for (const int32_t id : ids) {
    if (!InRange(id)) {
      throw UserError("token id " + std::to_string(id) + " is outside the vocabulary of " +
                      std::to_string(vocab_size()) + " tokens");
    }
    const TokenEntry& entry = entries_[static_cast<size_t>(id)];
    if (skip_special && entry.special) continue;
    if (!entry.decoded.is_byte) end_run();
    (entry.decoded.is_byte ? run : bytes) += entry.decoded.bytes;
  }
  end_run();
  if (decoder_.strips_first_space() && bytes.starts_with(' ')) bytes.erase(0, 1);
  return ReplaceInvalid(bytes);
}

std::string JsonTokenizer::TokenBytes(int32_t id, bool is_first) const {
  if (!InRange(id)) return "";
  const std::string& bytes = entries_[static_cast<size_t>(id)].decoded.bytes;
  if (is_first && decoder_.strips_first_space() && bytes.starts_with(' ')) return bytes.substr(1);
  return bytes;
}

}  // namespace

std::unique_ptr<Tokenizer> LoadTokenizerJson(std::string_view text, const std::string& file, const ConfigRules& rules) {
  Json json = base::ParseJson(text, file);
  const bool rebuilt = RebuildsSpaces(rules, json);
  if (rebuilt) RebuildSpaces(rules, &json);
  return std::make_unique<JsonTokenizer>(JsonView(json, file), rules, rebuilt);
}

}  // namespace hydrant::tokenizer
