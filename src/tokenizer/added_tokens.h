// SPDX-License-Identifier: Apache-2.0
// Tokens that are found in the text before it is split into words, such as <|eot_id|>.
#pragma once

#include <array>
#include <cstdint>
#include <functional>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

namespace hydrant::tokenizer {

struct AddedToken {
  int32_t id = -1;
  std::string content;
  bool special = false;
  bool normalized = false;   // found after normalization
  bool lstrip = false;       // takes the white space before it
  bool rstrip = false;       // and after it
  bool single_word = false;  // not inside a word
};

// Longer texts are refused at load, so that finding them stays linear in the text.
inline constexpr size_t kMaxAddedTokenBytes = 512;

// Finds tokens in text: leftmost, then longest.
class AddedTokenFinder {
 public:
  // `content` as it stands in the text that is searched (normalized where the token is). The first of equals wins.
  void Add(const AddedToken& token, std::string_view content);
  bool empty() const { return tokens_.empty(); }

  // A piece of the text: a token, or (id -1) the text between tokens, which is never empty.
  struct Piece {
    int32_t id;
    size_t begin;
    size_t end;
  };
  // With `parse_special` false, special tokens are not tokens, but what they cover is not searched either (as in the
  // reference library).
  std::vector<Piece> Split(std::string_view text, bool parse_special) const;
  // The same as transformers' slow tokenizers have it (PreTrainedTokenizer.tokenize): white space beside a token that
  // strips it belongs to nobody, and a single word stands between spaces, not between signs. A text can come out in
  // several pieces of text.
  struct SlowPiece {
    int32_t id;
    std::string text;  // never empty
  };
  std::vector<SlowPiece> SplitSlowly(std::string_view text, bool parse_special) const;

 private:
  struct Match {
    const AddedToken* token = nullptr;
    size_t size = 0;
  };
  Match LongestAt(std::string_view text) const;
  // Tokens and what lies between them, whatever their flags say; the tokens of the former beside them (null for text).
  std::vector<SlowPiece> SplitPlainly(std::string_view text, bool parse_special,
                                      std::vector<const AddedToken*>* tokens) const;

  std::vector<AddedToken> tokens_;
  std::vector<int32_t> token_of_node_{-1};          // trie; node 0 is the root
  std::unordered_map<uint64_t, int32_t> children_;  // key: node and byte
  std::array<bool, 256> starts_{};                  // first bytes of the tokens
};

}  // namespace hydrant::tokenizer
