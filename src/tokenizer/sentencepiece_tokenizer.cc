// SPDX-License-Identifier: Apache-2.0
// tokenizer.model: the library encodes; special tokens and decoding are ours.
#include <sentencepiece_processor.h>

#include <algorithm>

#include "hydrant/error.h"
#include "tokenizer/decoder.h"
#include "tokenizer/loaders.h"
#include "tokenizer/sentencepiece_model.h"
#include "tokenizer/utf8.h"

namespace hydrant::tokenizer {
namespace {

// The text up to here goes through the library at once; it counts in int.
constexpr size_t kMaxStretchBytes = size_t{1} << 28;

class SentencePieceTokenizer : public Tokenizer {
 public:
  SentencePieceTokenizer(const SentencePieceModel& model, const std::string& file, const ConfigRules& rules)
      // As the library: the space of the dummy prefix is dropped where it put one.
      : strips_first_space_(model.add_dummy_prefix || model.remove_extra_whitespaces) {
    const auto status = processor_.LoadFromSerializedProto(Serialize(model));
    if (!status.ok()) throw FileError(file, std::string("the SentencePiece library refuses it: ") + status.message());
    for (size_t id = 0; id < model.pieces.size(); ++id) AddPiece(model.pieces[id], static_cast<int32_t>(id), model);
    const size_t most = 2 * (model.pieces.size() + rules.added_tokens.size()) + 100'000;
    for (const AddedToken& token : rules.added_tokens) AddToken(token, model, most, file);
    adds_bos_ = rules.add_bos_token.value_or(true) && bos_id_ >= 0;
  }

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

 private:
  struct Entry {
    std::string bytes;
    bool special = false;
    bool has_space = false;  // began with U+2581
  };

  bool InRange(int32_t id) const { return id >= 0 && id < vocab_size(); }
  void AddPiece(const SentencePieceModel::Piece& piece, int32_t id, const SentencePieceModel& model);
  void AddToken(const AddedToken& token, const SentencePieceModel& model, size_t most, const std::string& file);

  sentencepiece::SentencePieceProcessor processor_;
  std::vector<Entry> entries_;  // by id
  AddedTokenFinder added_tokens_;
  bool strips_first_space_;
  int32_t bos_id_ = -1;
  bool adds_bos_ = false;
};

void SentencePieceTokenizer::AddPiece(const SentencePieceModel::Piece& piece, int32_t id,
                                      const SentencePieceModel& model) {
  Entry& entry = entries_.emplace_back();
  if (piece.type == PieceType::kByte) {
    entry.bytes = std::string(1, static_cast<char>(static_cast<uint8_t>(ParseByteToken(piece.text))));
  } else if (piece.type == PieceType::kControl || piece.type == PieceType::kUnknown) {
    entry = {piece.text, true, false};
    added_tokens_.Add({.id = id, .content = piece.text, .special = true}, piece.text);
    if (piece.type == PieceType::kControl && piece.text == model.bos_piece) bos_id_ = id;
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
    return;
  }
  if (index > most) {
    throw FileError(file, "has " + std::to_string(model.pieces.size()) + " pieces, but an added token has id " +
                              std::to_string(token.id));
  }
  if (index >= entries_.size()) entries_.resize(index + 1);
  entries_[index] = {token.content, token.special, false};
  added_tokens_.Add(token, token.content);
}

std::vector<int32_t> SentencePieceTokenizer::Encode(std::string_view text, const EncodeOptions& options) const {
  std::vector<int32_t> ids;
  if (options.add_bos) {
    if (bos_id_ < 0) throw UserError("the tokenizer has no BOS token", "leave out --add-bos");
    ids.push_back(bos_id_);
  }
  for (const AddedTokenFinder::Piece& piece : added_tokens_.Split(text, options.parse_special)) {
    if (piece.id >= 0) {
      ids.push_back(piece.id);
      continue;
    }
    const std::string_view stretch = text.substr(piece.begin, piece.end - piece.begin);
    if (stretch.size() > kMaxStretchBytes) {
      throw UserError("the text has " + std::to_string(stretch.size()) + " bytes", "shorten the text");
    }
    std::vector<int> stretch_ids;
    const auto status = processor_.Encode({stretch.data(), stretch.size()}, &stretch_ids);
    if (!status.ok()) throw UserError(std::string("the text cannot be tokenized: ") + status.message());
    ids.insert(ids.end(), stretch_ids.begin(), stretch_ids.end());
  }
  return ids;
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
