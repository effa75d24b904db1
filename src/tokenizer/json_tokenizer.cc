// SPDX-License-Identifier: Apache-2.0
// tokenizer.json: added tokens, normalizer, pre-tokenizer, BPE, decoder, in the order of the tokenizers library.
#include <algorithm>
#include <optional>

#include "base/json.h"
#include "hydrant/error.h"
#include "tokenizer/bpe.h"
#include "tokenizer/decoder.h"
#include "tokenizer/loaders.h"
#include "tokenizer/normalizer.h"
#include "tokenizer/pre_tokenizer.h"
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

bool Flag(const JsonView& json, std::string_view key, bool otherwise) {
  return json.Has(key) ? json.At(key).Bool() : otherwise;
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

struct TokenEntry {
  DecodedToken decoded;
  bool special = false;
};

class JsonTokenizer : public Tokenizer {
 public:
  JsonTokenizer(const JsonView& json, const ConfigRules& rules)
      : normalizer_(Normalizer::Parse(Member(json, "normalizer"))),
        pre_tokenizer_(PreTokenizer::Parse(Member(json, "pre_tokenizer"))),
        decoder_(Decoder::Parse(json.At("decoder"))),
        bpe_(BpeModel::Parse(json.At("model"))) {
    for (const std::string& token : bpe_.tokens()) entries_.push_back({decoder_.Decode(token), false});
    if (json.Has("added_tokens")) ReadAddedTokens(json.At("added_tokens"));
    const int32_t template_bos = PostProcessorBos(Member(json, "post_processor"), vocab_size());
    bos_id_ = template_bos >= 0 ? template_bos : FindToken(rules.bos_token);
    adds_bos_ = template_bos >= 0;
    if (rules.is_llama_class && rules.add_bos_token.has_value()) adds_bos_ = *rules.add_bos_token && bos_id_ >= 0;
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

 private:
  bool InRange(int32_t id) const { return id >= 0 && id < vocab_size(); }
  int32_t FindToken(const std::string& text) const;
  void ReadAddedTokens(const JsonView& tokens);
  void ReadAddedToken(const JsonView& json, size_t max_id);
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
};

void JsonTokenizer::ReadAddedTokens(const JsonView& tokens) {
  const size_t max_id = 2 * (entries_.size() + tokens.Size()) + 100'000;  // the table must not outgrow the file
  for (size_t i = 0; i < tokens.Size(); ++i) ReadAddedToken(tokens.At(i), max_id);
}

void JsonTokenizer::ReadAddedToken(const JsonView& json, size_t max_id) {
  AddedToken token;
  token.id = static_cast<int32_t>(json.At("id").Int(0, static_cast<int64_t>(max_id)));
  token.content = json.At("content").String();
  token.special = Flag(json, "special", false);
  token.normalized = Flag(json, "normalized", !token.special);
  token.lstrip = Flag(json, "lstrip", false);
  token.rstrip = Flag(json, "rstrip", false);
  token.single_word = Flag(json, "single_word", false);
  if (token.content.empty() || token.content.size() > kMaxAddedTokenBytes) json.At("content").Fail("1 to 512 bytes");
  const int32_t known = bpe_.IdOf(token.content);
  const auto index = static_cast<size_t>(token.id);
  const bool taken = index < bpe_.tokens().size() && !bpe_.tokens()[index].empty() && known != token.id;
  if ((known >= 0 && known != token.id) || taken) json.At("id").Fail("the id that the vocabulary gives to this token");
  if (!added_ids_.emplace(token.content, token.id).second) json.At("content").Fail("a token that was not added before");
  if (index >= entries_.size()) entries_.resize(index + 1);
  // The content is text, not letters of the byte alphabet (the reference library takes it for letters where it can).
  entries_[index] = {{token.content, false}, token.special};
  const std::string content = token.normalized ? normalizer_.Apply(token.content) : token.content;
  if (!content.empty()) (token.normalized ? normalized_tokens_ : raw_tokens_).Add(token, content);
}

int32_t JsonTokenizer::FindToken(const std::string& text) const {
  if (text.empty()) return -1;
  const auto added = added_ids_.find(text);
  return added != added_ids_.end() ? added->second : bpe_.IdOf(text);
}

std::vector<int32_t> JsonTokenizer::Encode(std::string_view text, const EncodeOptions& options) const {
  std::vector<int32_t> ids;
  if (options.add_bos) {
    if (bos_id_ < 0) throw UserError("the tokenizer has no BOS token", "leave out --add-bos");
    ids.push_back(bos_id_);
  }
  const std::string clean = ReplaceInvalid(text);
  const std::string_view whole = clean;
  for (const AddedTokenFinder::Piece& piece : raw_tokens_.Split(whole, options.parse_special)) {
    if (piece.id >= 0) {
      ids.push_back(piece.id);
    } else {
      const std::string normalized = normalizer_.Apply(whole.substr(piece.begin, piece.end - piece.begin));
      EncodeNormalized(normalized, piece.begin == 0, options.parse_special, &ids);
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
  const Json json = base::ParseJson(text, file);
  return std::make_unique<JsonTokenizer>(JsonView(json, file), rules);
}

}  // namespace hydrant::tokenizer
