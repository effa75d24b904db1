// SPDX-License-Identifier: Apache-2.0
#include "tokenizer/sentencepiece/sentencepiece_model.h"

#include <bit>
#include <bitset>
#include <cmath>
#include <optional>
#include <unordered_set>

#include "base/json.h"
#include "hydrant/error.h"
#include "tokenizer/decoder.h"
#include "tokenizer/sentencepiece/charsmap.h"
#include "tokenizer/sentencepiece/protobuf.h"
#include "tokenizer/utf8.h"

namespace hydrant::tokenizer {
namespace {

// Published vocabularies have up to 262144 pieces of up to 48 bytes; the library recurses over parts of unused pieces.
constexpr size_t kMaxPieces = size_t{1} << 22;
constexpr size_t kMaxPieceBytes = 512;
constexpr float kMaxScore = 1e9F;  // sums of scores over a text stay finite

// Field numbers of the message and its parts.
namespace field {
constexpr uint32_t kPieces = 1, kTrainer = 2, kNormalizer = 3, kDenormalizer = 5;
constexpr uint32_t kPieceText = 1, kPieceScore = 2, kPieceType = 3;
constexpr uint32_t kModelType = 3, kSuffixSpace = 24, kByteFallback = 35, kUnkId = 40, kBosId = 41, kEosId = 42,
                   kPadId = 43, kBosPiece = 46;
constexpr uint32_t kCharsmap = 2, kAddDummyPrefix = 3, kRemoveExtra = 4, kEscape = 5;
}  // namespace field

constexpr uint64_t kUnigram = 1;
constexpr uint64_t kBpe = 2;

class Parser {
 public:
  explicit Parser(const std::string& file) : file_(file) {}

  SentencePieceModel Parse(std::string_view bytes) {
    ProtoReader reader(bytes, file_);
    ProtoField item;
    while (reader.Next(&item)) {
      if (item.number == field::kPieces) ReadPiece(Bytes(item));
      if (item.number == field::kTrainer) ReadTrainer(Bytes(item));
      if (item.number == field::kNormalizer) ReadNormalizer(Bytes(item));
      if (item.number == field::kDenormalizer) RefuseDenormalizer(Bytes(item));
    }
    CheckPieces();
    CheckIds();
    CheckCharsmap(model_.charsmap, file_);
    return std::move(model_);
  }

 private:
  [[noreturn]] void Fail(const std::string& problem, const std::string& hint = {}) const {
    throw FileError(file_, problem, hint);
  }
  void Expect(const ProtoField& item, WireType type) const {
    if (item.type != type) {
      ProtoReader({}, file_).Fail("field " + std::to_string(item.number) +
                                  " has another type than in SentencePiece models");
    }
  }
  std::string_view Bytes(const ProtoField& item) const {
    Expect(item, WireType::kBytes);
    return item.bytes;
  }
  uint64_t Number(const ProtoField& item) const {
    Expect(item, WireType::kVarint);
    return item.value;
  }
  bool Flag(const ProtoField& item) const { return Number(item) != 0; }
  std::string PieceName(size_t id) const {
    return "piece " + std::to_string(id) + " (" + base::DumpJson(model_.pieces[id].text) + ")";
  }

  void ReadPiece(std::string_view bytes);
  void ReadTrainer(std::string_view bytes);
  void ReadNormalizer(std::string_view bytes);
  void RefuseDenormalizer(std::string_view bytes) const;
  void CheckPieces() const;
  void CheckPiece(size_t id) const;
  void CheckIds() const;

  const std::string& file_;
  SentencePieceModel model_;
  struct NamedId {
    const char* name;
    uint32_t field;
    std::optional<uint64_t> value;
  };
  std::vector<NamedId> ids_ = {{"unk_id", field::kUnkId, {}},
                               {"bos_id", field::kBosId, {}},
                               {"eos_id", field::kEosId, {}},
                               {"pad_id", field::kPadId, {}}};
};

void Parser::ReadPiece(std::string_view bytes) {
  if (model_.pieces.size() >= kMaxPieces) Fail("has more than " + std::to_string(kMaxPieces) + " pieces");
  SentencePieceModel::Piece& piece = model_.pieces.emplace_back();
  const size_t id = model_.pieces.size() - 1;
  ProtoReader reader(bytes, file_);
  ProtoField item;
  while (reader.Next(&item)) {
    if (item.number == field::kPieceText) piece.text = Bytes(item);
    if (item.number == field::kPieceScore) {
      Expect(item, WireType::kFixed32);
      piece.score = std::bit_cast<float>(static_cast<uint32_t>(item.value));
    }
    if (item.number == field::kPieceType) {
      if (Number(item) < 1 || Number(item) > 6) {
        Fail("piece " + std::to_string(id) + " has type " + std::to_string(Number(item)) + ", expected 1 to 6");
      }
      piece.type = static_cast<PieceType>(item.value);
    }
  }
}

void Parser::ReadTrainer(std::string_view bytes) {
  ProtoReader reader(bytes, file_);
  ProtoField item;
  while (reader.Next(&item)) {
    switch (item.number) {
      case field::kModelType:
        if (Number(item) != kUnigram && Number(item) != kBpe) {
          Fail("'trainer_spec.model_type' is " + std::to_string(Number(item)) + ", expected 1 (unigram) or 2 (BPE)");
        }
        model_.is_bpe = item.value == kBpe;
        break;
      case field::kSuffixSpace:
        if (Flag(item)) Fail("'trainer_spec.treat_whitespace_as_suffix' is true, expected false");
        break;
      case field::kByteFallback: model_.byte_fallback = Flag(item); break;
      case field::kBosPiece: model_.bos_piece = Bytes(item); break;
      default:
        for (NamedId& id : ids_) {
          if (item.number == id.field) id.value = Number(item);
        }
    }
  }
}

void Parser::ReadNormalizer(std::string_view bytes) {
  ProtoReader reader(bytes, file_);
  ProtoField item;
  while (reader.Next(&item)) {
    if (item.number == field::kCharsmap) model_.charsmap = Bytes(item);
    if (item.number == field::kAddDummyPrefix) model_.add_dummy_prefix = Flag(item);
    if (item.number == field::kRemoveExtra) model_.remove_extra_whitespaces = Flag(item);
    if (item.number == field::kEscape && !Flag(item)) {
      Fail("'normalizer_spec.escape_whitespaces' is false, expected true");
    }
  }
}

// Rules that the library applies to decoded text.
void Parser::RefuseDenormalizer(std::string_view bytes) const {
  ProtoReader reader(bytes, file_);
  ProtoField item;
  while (reader.Next(&item)) {
    if (item.number == field::kCharsmap && !Bytes(item).empty()) {
      Fail(
          "has a 'denormalizer_spec.precompiled_charsmap', expected none (what changes decoded text is not supported)");
    }
  }
}

void Parser::CheckPiece(size_t id) const {
  const SentencePieceModel::Piece& piece = model_.pieces[id];
  if (piece.text.empty() || piece.text.size() > kMaxPieceBytes) {
    Fail("piece " + std::to_string(id) + " has " + std::to_string(piece.text.size()) +
         " bytes of text, expected 1 to " + std::to_string(kMaxPieceBytes));
  }
  // The library's trie throws on NUL.
  if (!IsValidUtf8(piece.text) || piece.text.find('\0') != std::string::npos) {
    Fail(PieceName(id) + " is not valid text (UTF-8 without NUL)");
  }
  if (!std::isfinite(piece.score) || std::fabs(piece.score) > kMaxScore) Fail(PieceName(id) + " has no usable score");
  if (piece.type == PieceType::kByte && !model_.byte_fallback) {
    Fail(PieceName(id) + " is a byte, but 'trainer_spec.byte_fallback' is false");
  }
  if (piece.type == PieceType::kByte && ParseByteToken(piece.text) < 0) {
    Fail(PieceName(id) + " is a byte, expected text such as <0x0A>");
  }
}

void Parser::CheckPieces() const {
  if (model_.pieces.empty()) ProtoReader({}, file_).Fail("has no pieces");
  std::unordered_set<std::string_view> texts;
  std::bitset<256> bytes;
  size_t num_unknown = 0;
  size_t num_normal = 0;
  for (size_t id = 0; id < model_.pieces.size(); ++id) {
    CheckPiece(id);
    const SentencePieceModel::Piece& piece = model_.pieces[id];
    if (!texts.insert(piece.text).second) Fail(PieceName(id) + " stands twice");
    if (piece.type == PieceType::kByte) bytes.set(static_cast<size_t>(ParseByteToken(piece.text)));
    num_unknown += piece.type == PieceType::kUnknown ? 1 : 0;
    num_normal += piece.type == PieceType::kNormal ? 1 : 0;
  }
  if (num_unknown != 1) Fail("has " + std::to_string(num_unknown) + " unknown pieces, expected one");
  if (num_normal == 0) Fail("has no normal pieces");
  if (model_.byte_fallback && !bytes.all()) {
    Fail("has pieces for " + std::to_string(bytes.count()) + " bytes, expected all 256 ('trainer_spec.byte_fallback')");
  }
}

void Parser::CheckIds() const {
  for (const NamedId& id : ids_) {
    // -1 (sign-extended) means that there is none.
    if (!id.value.has_value() || *id.value == ~uint64_t{0} || *id.value < model_.pieces.size()) continue;
    Fail(std::string("'trainer_spec.") + id.name + "' is " + std::to_string(static_cast<int64_t>(*id.value)) +
         ", expected -1 or the id of one of " + std::to_string(model_.pieces.size()) + " pieces");
  }
}

}  // namespace

SentencePieceModel ParseSentencePieceModel(std::string_view bytes, const std::string& file) {
  return Parser(file).Parse(bytes);
}

std::string Serialize(const SentencePieceModel& model) {
  ProtoWriter message;
  for (const SentencePieceModel::Piece& piece : model.pieces) {
    ProtoWriter part;
    part.Bytes(field::kPieceText, piece.text);
    part.Float(field::kPieceScore, piece.score);
    part.Number(field::kPieceType, static_cast<uint64_t>(piece.type));
    message.Bytes(field::kPieces, part.message());
  }
  ProtoWriter trainer;
  trainer.Number(field::kModelType, model.is_bpe ? kBpe : kUnigram);
  trainer.Number(field::kByteFallback, model.byte_fallback ? 1 : 0);
  message.Bytes(field::kTrainer, trainer.message());
  ProtoWriter normalizer;
  normalizer.Bytes(field::kCharsmap, model.charsmap);
  normalizer.Number(field::kAddDummyPrefix, model.add_dummy_prefix ? 1 : 0);
  normalizer.Number(field::kRemoveExtra, model.remove_extra_whitespaces ? 1 : 0);
  message.Bytes(field::kNormalizer, normalizer.message());
  return message.message();
}

}  // namespace hydrant::tokenizer
