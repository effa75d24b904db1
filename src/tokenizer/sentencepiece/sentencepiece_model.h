// SPDX-License-Identifier: Apache-2.0
// The content of a SentencePiece tokenizer.model (a protobuf message), read and checked by our own walker. The library
// trusts what it loads (table offsets, text in its maps), so it only ever sees Serialize() of a checked model.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace hydrant::tokenizer {

// Values as in the file format.
enum class PieceType : uint8_t { kNormal = 1, kUnknown = 2, kControl = 3, kUserDefined = 4, kUnused = 5, kByte = 6 };

struct SentencePieceModel {
  struct Piece {
    std::string text;
    float score = 0;
    PieceType type = PieceType::kNormal;
  };

  std::vector<Piece> pieces;  // by id
  bool is_bpe = false;        // else unigram
  bool byte_fallback = false;
  std::string bos_piece = "<s>";
  std::string charsmap;  // precompiled normalization table; may be empty
  bool add_dummy_prefix = true;
  bool remove_extra_whitespaces = true;
};

// Throws FileError.
SentencePieceModel ParseSentencePieceModel(std::string_view bytes, const std::string& file);

// The message with the checked fields and nothing else.
std::string Serialize(const SentencePieceModel& model);

}  // namespace hydrant::tokenizer
