// SPDX-License-Identifier: Apache-2.0
// A new tokenizer from text, as Llama's is: SentencePiece BPE with byte fallback.
#pragma once

#include <cstdint>
#include <span>
#include <string>

#include "train/tokenizer/sentences.h"

namespace hydrant::train {

struct TokenizerOptions {
  int32_t vocab_size = 4096;  // unk 0, bos 1, eos 2, the 256 bytes, and pieces
  SentenceOptions sentences = {};
};

// The three, the bytes, and one piece.
inline constexpr int32_t kLeastVocabSize = 260;
inline constexpr int32_t kMostVocabSize = 1 << 20;

// The content of tokenizer.model. Settings are Llama-2's: digits one by one, a space before each text, nothing
// normalized, pieces of blanks allowed. The same files and options give the same bytes. Throws UserError, also where
// the text gives fewer or needs more pieces than vocab_size.
std::string TrainTokenizer(std::span<const std::string> files, const TokenizerOptions& options);

}  // namespace hydrant::train
