// SPDX-License-Identifier: Apache-2.0
// tokenizer.model: the library encodes; special tokens and decoding are ours.
#include <sentencepiece_processor.h>

#include <algorithm>
#include <unordered_map>
#include <unordered_set>
#include <utility>

#include "base/json.h"
#include "hydrant/error.h"
#include "tokenizer/decoder.h"
#include "tokenizer/loaders.h"
#include "tokenizer/sentencepiece/sentencepiece_model.h"
#include "tokenizer/utf8.h"

namespace hydrant::tokenizer {
namespace {

// The text up to here goes through the library at once; it counts in int.
constexpr size_t kMaxStretchBytes = size_t{1} << 28;

std::string Checked(std::string_view stretch) {
  if (stretch.size() > kMaxStretchBytes) {
    throw UserError("the text has " + std::to_string(stretch.size()) + " bytes", "shorten the text");
  }
  return std::string(stretch);
}

void CheckStatus(const sentencepiece::util::Status& status) {
  if (!status.ok()) throw UserError(std::string("the text cannot be tokenized: ") + status.message());
}

class SentencePieceTokenizer final : public Tokenizer {
 public:
  SentencePieceTokenizer(SentencePieceModel model, const std::string& file, const ConfigRules& rules);

  std::vector<int32_t> Encode(std::string_view text, const EncodeOptions& options) const override;
  std::string Decode(std::span<const int32_t> ids, bool skip_special) const override;
  std::string TokenBytes(int32_t id, bool is_first) const override;

  int32_t vocab_size() const override { return static_cast<int32_t>(entries_.size()); }
  bool IsSpecial(int32_t id) const override { return InRange(id) && entries_[static_cast<size_t>(id)].special; }
  int32_t bos_id() const override { return bos_id_; }
  bool adds_bos() const override { return adds_bos_; }
  std::string TokenText(int32_t id) const override {
    return IsSpecial(id) ? entries_[static_cast<size_t>(id)].bytes : "";
  }
  int32_t IdOfToken(std::string_view text) const override;

 private:
  struct Entry {
    std::string bytes;
    bool special = false;
    bool has_space = false;  // began with U+2581
  };

  bool InRange(int32_t id) const { return id >= 0 && id < vocab_size(); }
  void AddPiece(const SentencePieceModel::Piece& piece);
  void AddToken(const AddedToken& token, const SentencePieceModel& model, size_t most, const std::string& file);
  void WarnOfId(const AddedToken& token, const SentencePieceModel& model);
  int32_t NextId() const;
  void AddSpecial(const SpecialToken& special);
  void FindPieces(const SentencePieceModel& model);
  void ChooseBos(const SentencePieceModel& model, const ConfigRules& rules);
  void WarnOfTheRest(const ConfigRules& rules);
  std::vector<int32_t> EncodeAlone(std::string_view text, bool parse_special) const;
  std::vector<int32_t> EncodeAsFolder(std::string_view text, bool parse_special) const;
  std::vector<std::string> PiecesAfterUnknown(const std::string& stretch) const;
  int32_t IdOfPiece(const std::string& piece) const;

  sentencepiece::SentencePieceProcessor processor_;
  std::vector<Entry> entries_;  // by id
  AddedTokenFinder added_tokens_;
  std::unordered_map<std::string, int32_t> added_ids_;  // of what added_tokens_ finds
  std::unordered_set<int32_t> roles_;                   // tokens with a role, such as EOS (all_special_tokens)
  bool as_folder_;                                      // transformers' slow LlamaTokenizer, else the library alone
  bool legacy_;
  bool prefix_space_ = true;  // not legacy: a space of our own before the text, and none else
  bool parses_special_;
  std::string added_tokens_file_;  // in warnings
  std::string unknown_text_ = "<unk>";
  size_t unknown_length_ = 0;  // pieces of it
  bool strips_first_space_;
  int32_t bos_id_ = -1;
  bool adds_bos_ = false;
};

SentencePieceTokenizer::SentencePieceTokenizer(SentencePieceModel model, const std::string& file,
                                               const ConfigRules& rules)
    : as_folder_(rules.of_folder),
      legacy_(!as_folder_ || (rules.legacy && rules.class_of != TokenizerClass::kCodeLlama)),
      parses_special_(!as_folder_ || !rules.split_special_tokens) {
  added_tokens_file_ = rules.added_tokens_file;
  warnings_ = rules.warnings;
  notes_ = rules.notes;
  // As the library: the space of the dummy prefix is dropped where it put one.
  strips_first_space_ = model.add_dummy_prefix || model.remove_extra_whitespaces;
  if (!legacy_) {
    if (rules.class_of != TokenizerClass::kCodeLlama) {
      prefix_space_ = rules.add_prefix_space.value_or(!rules.prefix_space_is_null);
    }
    strips_first_space_ = prefix_space_ || model.remove_extra_whitespaces;
    model.add_dummy_prefix = false;
  }
  const auto status = processor_.LoadFromSerializedProto(Serialize(model));
  if (!status.ok()) throw FileError(file, std::string("the SentencePiece library refuses it: ") + status.message());
  for (const SentencePieceModel::Piece& piece : model.pieces) AddPiece(piece);
  const size_t most = 2 * (model.pieces.size() + rules.added_tokens.size()) + 100'000;
  for (const AddedToken& token : rules.added_tokens) {
    AddToken(as_folder_ ? rules.WithFlagsOfRole(token, true) : token, model, most, file);
  }
  if (as_folder_) {
    for (const SpecialToken& special : rules.special_tokens) AddSpecial(special);
  }
  const bool is_llama = rules.class_of == TokenizerClass::kLlama || rules.class_of == TokenizerClass::kCodeLlama;
  if (!as_folder_ || !is_llama) FindPieces(model);
  ChooseBos(model, rules);
  if (const SpecialToken* unknown = rules.Special("unk_token")) unknown_text_ = unknown->token.content;
  std::vector<int> unknown_ids;
  if (processor_.Encode(unknown_text_, &unknown_ids).ok()) unknown_length_ = unknown_ids.size();
  if (const SpecialToken* eos = rules.Special("eos_token")) {
    eos_id_ = IdOfToken(eos->token.content);
    eos_file_ = eos->file;
  }
  WarnOfTheRest(rules);
}

void SentencePieceTokenizer::AddPiece(const SentencePieceModel::Piece& piece) {
  Entry& entry = entries_.emplace_back();
  if (piece.type == PieceType::kByte) {
    entry.bytes = std::string(1, static_cast<char>(static_cast<uint8_t>(ParseByteToken(piece.text))));
  } else if (piece.type == PieceType::kControl || piece.type == PieceType::kUnknown) {
    entry = {piece.text, true, false};
  } else {
    entry = {ReplaceAll(piece.text, kWordBoundary, " "), false, piece.text.starts_with(kWordBoundary)};
  }
}

// Tokens beside the model, such as the <pad> of a fine-tuned model, and in place of its pieces, as transformers takes
// them. `most`: the largest id.
void SentencePieceTokenizer::AddToken(const AddedToken& token, const SentencePieceModel& model, size_t most,
                                      const std::string& file) {
  const auto index = static_cast<size_t>(token.id);
  if (index < model.pieces.size() && model.pieces[index].text == token.content) {  // the piece itself, listed again
    entries_[index].special = entries_[index].special || token.special;
    const bool is_text =
        model.pieces[index].type != PieceType::kControl && model.pieces[index].type != PieceType::kUnknown;
    if (is_text && !as_folder_) return;
  } else {
    if (index > most) {
      throw FileError(file, "has " + std::to_string(model.pieces.size()) + " pieces, but an added token has id " +
                                std::to_string(token.id));
    }
    if (as_folder_) WarnOfId(token, model);
    if (index >= entries_.size()) entries_.resize(index + 1);
    entries_[index] = {token.content, token.special, false};
  }
  added_tokens_.Add(token, token.content);
  added_ids_.emplace(token.content, token.id);
}

// Where transformers' numbers depend on what else is listed.
void SentencePieceTokenizer::WarnOfId(const AddedToken& token, const SentencePieceModel& model) {
  const int32_t other = IdOfToken(token.content);
  std::string problem;
  if (other >= 0) {
    problem = "and " + std::to_string(other) + " as well";
  } else if (static_cast<size_t>(token.id) > std::max(entries_.size(), model.pieces.size())) {
    problem = "which leaves a gap behind " + std::to_string(entries_.size() - 1);
  }
  if (problem.empty()) return;
  warnings_.push_back(added_tokens_file_ + ": added token " + base::DumpJson(token.content) + " has id " +
                      std::to_string(token.id) + ", " + problem +
                      ": the id listed here is used; transformers may number it, or tokens after it, otherwise");
}

// transformers counts the tokens that there are: the next id may lie in a gap.
int32_t SentencePieceTokenizer::NextId() const {
  const auto used = [](const Entry& entry) { return !entry.bytes.empty(); };
  auto id = static_cast<int32_t>(std::count_if(entries_.begin(), entries_.end(), used));
  while (id < vocab_size() && used(entries_[static_cast<size_t>(id)])) ++id;
  return id;
}

// A token with a role: the added one, else a piece, else a new one behind all others.
void SentencePieceTokenizer::AddSpecial(const SpecialToken& special) {
  AddedToken token = special.token;
  const auto known = added_ids_.find(token.content);
  token.id = known != added_ids_.end() ? known->second : IdOfToken(token.content);
  if (token.id < 0) {
    if (special.is_default) return;
    token.id = NextId();
    if (token.id == vocab_size()) entries_.emplace_back();
    entries_[static_cast<size_t>(token.id)] = {token.content, true, false};
  }
  entries_[static_cast<size_t>(token.id)].special = true;
  roles_.insert(token.id);
  if (known != added_ids_.end()) return;
  added_tokens_.Add(token, token.content);
  added_ids_.emplace(token.content, token.id);
}

// Text of control pieces counts as these pieces. (The Llama classes know only what the config names, and their
// defaults.)
void SentencePieceTokenizer::FindPieces(const SentencePieceModel& model) {
  for (size_t id = 0; id < model.pieces.size(); ++id) {
    const SentencePieceModel::Piece& piece = model.pieces[id];
    if (piece.type != PieceType::kControl && piece.type != PieceType::kUnknown) continue;
    added_tokens_.Add({.id = static_cast<int32_t>(id), .content = piece.text, .special = true}, piece.text);
  }
}

void SentencePieceTokenizer::ChooseBos(const SentencePieceModel& model, const ConfigRules& rules) {
  for (size_t id = 0; id < model.pieces.size(); ++id) {
    const SentencePieceModel::Piece& piece = model.pieces[id];
    if (piece.type == PieceType::kControl && piece.text == model.bos_piece) bos_id_ = static_cast<int32_t>(id);
  }
  if (as_folder_) {
    if (rules.IsNull("bos_token")) bos_id_ = -1;
    const SpecialToken* named = rules.Special("bos_token");
    const int32_t named_id = named == nullptr ? -1 : IdOfToken(named->token.content);
    if (named_id >= 0) bos_id_ = named_id;
  }
  adds_bos_ = rules.add_bos_token.value_or(true) && bos_id_ >= 0;
}

void SentencePieceTokenizer::WarnOfTheRest(const ConfigRules& rules) {
  const auto warn = [&](const std::string& text) { warnings_.push_back(rules.file + ": " + text); };
  if (rules.add_eos_token) warnings_.push_back(EosNotAdded(rules.file));
  if (rules.samples) warn("'sp_model_kwargs.enable_sampling' is true and not followed: a text has one list of ids");
  if (!as_folder_) return;
  if (rules.class_of == TokenizerClass::kOther || rules.class_of == TokenizerClass::kQwen2) {
    warn("'tokenizer_class' is " + base::DumpJson(rules.class_name) +
         ": tokenizer.model is read as LlamaTokenizer reads it, and ids may differ");
  }
  if (legacy_ && rules.add_prefix_space.has_value() && !*rules.add_prefix_space && strips_first_space_) {
    warn("'add_prefix_space' is false and has no effect without \"legacy\": false, as in transformers' LlamaTokenizer");
  }
}

int32_t SentencePieceTokenizer::IdOfToken(std::string_view text) const {
  const std::string content(text);
  const auto added = added_ids_.find(content);
  if (added != added_ids_.end()) return added->second;
  const int32_t id = processor_.PieceToId(content);
  const bool is_known = id >= 0 && id < processor_.GetPieceSize() && processor_.IdToPiece(id) == content;
  return is_known ? id : -1;
}

std::vector<int32_t> SentencePieceTokenizer::Encode(std::string_view text, const EncodeOptions& options) const {
  std::vector<int32_t> ids;
  if (options.add_bos) {
    if (bos_id_ < 0) throw UserError("the tokenizer has no BOS token", "encode without Tokenize::add_bos");
    ids.push_back(bos_id_);
  }
  const std::vector<int32_t> text_ids =
      as_folder_ ? EncodeAsFolder(text, options.parse_special) : EncodeAlone(text, options.parse_special);
  ids.insert(ids.end(), text_ids.begin(), text_ids.end());
  return ids;
}

std::vector<int32_t> SentencePieceTokenizer::EncodeAlone(std::string_view text, bool parse_special) const {
  std::vector<int32_t> ids;
  for (const AddedTokenFinder::Piece& piece : added_tokens_.Split(text, parse_special)) {
    if (piece.id >= 0) {
      ids.push_back(piece.id);
      continue;
    }
    const std::string_view stretch = text.substr(piece.begin, piece.end - piece.begin);
    std::vector<int> stretch_ids;
    CheckStatus(processor_.Encode(Checked(stretch), &stretch_ids));
    ids.insert(ids.end(), stretch_ids.begin(), stretch_ids.end());
  }
  return ids;
}

// LlamaTokenizer.tokenize (models/llama/tokenization_llama.py).
std::vector<int32_t> SentencePieceTokenizer::EncodeAsFolder(std::string_view text, bool parse_special) const {
  std::vector<int32_t> ids;
  std::string whole = ReplaceInvalid(text);
  if (whole.empty()) return ids;
  if (!legacy_) {
    whole = ReplaceAll(whole, kWordBoundary, " ");
    if (prefix_space_) whole.insert(0, kWordBoundary);
  }
  std::vector<AddedTokenFinder::SlowPiece> parts = {{-1, whole}};
  if (parses_special_) parts = added_tokens_.SplitSlowly(whole, parse_special);
  for (AddedTokenFinder::SlowPiece& part : parts) {  // white space beside a token may have hidden another
    const auto token = parses_special_ && part.id < 0 ? added_ids_.find(part.text) : added_ids_.end();
    if (token != added_ids_.end() && (parse_special || !IsSpecial(token->second))) part.id = token->second;
  }
  bool begins_with_space_alone = false;
  const auto put = [&](int32_t id, bool is_space, bool is_role) {
    // The space before the text is none before a token with a role.
    if (!legacy_ && begins_with_space_alone && ids.size() == 1 && is_role) ids.clear();
    if (ids.empty()) begins_with_space_alone = is_space;
    ids.push_back(id);
  };
  for (const AddedTokenFinder::SlowPiece& part : parts) {
    if (part.id >= 0) {
      put(part.id, false, roles_.contains(part.id));
      continue;
    }
    for (const std::string& piece : PiecesAfterUnknown(part.text)) {
      const int32_t id = IdOfPiece(piece);  // an unknown piece has that of <unk>, and is not its text
      put(id, piece == kWordBoundary, roles_.contains(id) && IdOfToken(piece) == id);
    }
  }
  return ids;
}

// Without the dummy prefix the library drops white space at the front of a text, so it is shown the unknown token's
// text before it, and the pieces of that are taken off.
std::vector<std::string> SentencePieceTokenizer::PiecesAfterUnknown(const std::string& stretch) const {
  std::vector<std::string> pieces;
  const bool hides = !legacy_ && (stretch.starts_with(kWordBoundary) || stretch.starts_with(' '));
  CheckStatus(processor_.Encode(Checked(hides ? unknown_text_ + stretch : stretch), &pieces));
  if (hides && pieces.size() >= unknown_length_) {
    pieces.erase(pieces.begin(), pieces.begin() + static_cast<std::ptrdiff_t>(unknown_length_));
  }
  return pieces;
}

int32_t SentencePieceTokenizer::IdOfPiece(const std::string& piece) const {
  const auto added = added_ids_.find(piece);
  return added != added_ids_.end() ? added->second : processor_.PieceToId(piece);
}

std::string SentencePieceTokenizer::Decode(std::span<const int32_t> ids, bool skip_special) const {
  std::string bytes;
  bool is_first = true;
  for (const int32_t id : ids) {
    if (!InRange(id)) {
      throw UserError("token id " + std::to_string(id) + " is outside the vocabulary of " +
                      std::to_string(vocab_size()) + " tokens");
    }
    if (skip_special && IsSpecial(id)) continue;
    bytes += TokenBytes(id, is_first);
    is_first = false;
  }
  return ReplaceInvalid(bytes);
}

std::string SentencePieceTokenizer::TokenBytes(int32_t id, bool is_first) const {
  if (!InRange(id)) return "";
  const Entry& entry = entries_[static_cast<size_t>(id)];
  if (is_first && strips_first_space_ && entry.has_space) return entry.bytes.substr(1);
  return entry.bytes;
}

}  // namespace

std::unique_ptr<Tokenizer> LoadSentencePiece(std::string_view bytes, const std::string& file,
                                             const ConfigRules& rules) {
  return std::make_unique<SentencePieceTokenizer>(ParseSentencePieceModel(bytes, file), file, rules);
}

}  // namespace hydrant::tokenizer
