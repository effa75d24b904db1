// SPDX-License-Identifier: Apache-2.0
// What heads are fitted to: documents as tokens, and which of the tokens may be learned.
#pragma once

#include <cstdint>
#include <functional>
#include <span>
#include <string>
#include <vector>

#include "base/thread_pool.h"
#include "tokenizer/chat/chat_template.h"
#include "tokenizer/tokenizer.h"

namespace hydrant::train {

struct TokenData {
  std::vector<int32_t> tokens;   // of all documents, one after another
  std::vector<uint8_t> learned;  // 1: the token may be the label of a loss
  std::vector<int64_t> ends;     // one past each document's last token

  bool operator==(const TokenData&) const = default;
};

// The same for equal data on every machine; for telling data apart, not for security.
uint64_t ContentHash(const TokenData& data);

struct ReadOptions {
  std::string template_name = {};                   // of conversations; empty: these are refused
  tokenizer::TemplateTokens template_tokens = {};   // what the template prints for BOS and EOS
  bool add_bos = true;                              // before texts, where the tokenizer adds it to prompts
  int64_t max_tokens = 0;                           // 0: all; else reading ends there, perhaps within a document
  base::ThreadPool* pool = nullptr;                 // null: the caller's thread alone; the tokens are the same
  std::function<void(double share)> progress = {};  // may throw to end the work
  std::function<void(const std::string& text)> warn =
      {};  // of documents that were left out, and of plain text under a name of JSON
};

inline constexpr int64_t kMostTokens = int64_t{1} << 31;  // they take 10 GB

// Reads files in the forms of documents.h. Of texts every token but a document's first is learned; one gets BOS before
// and EOS behind it where the tokenizer has these, and spells no special tokens. Of conversations the assistant's
// replies are learned, with the token that ends each; the template writes all special tokens, as it does for a server.
// A text or reply that is cut (documents.h) ends without such a token.
// Bytes that are no UTF-8 are read as the tokenizer reads them; JSON has none. Throws FileError, and UserError for an
// unknown template.
TokenData ReadTokenData(std::span<const std::string> files, const tokenizer::Tokenizer& tokenizer,
                        const ReadOptions& options);

}  // namespace hydrant::train
