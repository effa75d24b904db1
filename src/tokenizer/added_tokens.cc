// SPDX-License-Identifier: Apache-2.0
#include "tokenizer/added_tokens.h"

#include <algorithm>

#include "base/check.h"
#include "tokenizer/utf8.h"

namespace hydrant::tokenizer {
namespace {

uint64_t EdgeKey(int32_t node, char byte) {
  return (static_cast<uint64_t>(static_cast<uint32_t>(node)) << 8) | static_cast<uint8_t>(byte);
}

}  // namespace

void AddedTokenFinder::Add(const AddedToken& token, std::string_view content) {
  HYDRANT_CHECK(!content.empty());
  starts_[static_cast<uint8_t>(content[0])] = true;
  int32_t node = 0;
  for (const char byte : content) {
    const auto [edge, inserted] =
        children_.try_emplace(EdgeKey(node, byte), static_cast<int32_t>(token_of_node_.size()));
    if (inserted) token_of_node_.push_back(-1);
    node = edge->second;
  }
  int32_t& slot = token_of_node_[static_cast<size_t>(node)];
  if (slot >= 0) return;
  slot = static_cast<int32_t>(tokens_.size());
  tokens_.push_back(token);
}

AddedTokenFinder::Match AddedTokenFinder::LongestAt(std::string_view text) const {
  Match longest;
  if (!starts_[static_cast<uint8_t>(text[0])]) return longest;
  int32_t node = 0;
  for (size_t i = 0; i < text.size(); ++i) {
    const auto edge = children_.find(EdgeKey(node, text[i]));
    if (edge == children_.end()) break;
    node = edge->second;
    const int32_t token = token_of_node_[static_cast<size_t>(node)];
    if (token >= 0) longest = {&tokens_[static_cast<size_t>(token)], i + 1};
  }
  return longest;
}

std::vector<AddedTokenFinder::Piece> AddedTokenFinder::Split(std::string_view text, bool parse_special) const {
  std::vector<Piece> pieces;
  size_t done = 0;  // pieces reach to here
  size_t search = 0;
  while (search < text.size() && !tokens_.empty()) {
    const Match match = LongestAt(text.substr(search));
    if (match.token == nullptr) {
      ++search;
      continue;
    }
    size_t begin = search;
    size_t end = search + match.size;
    search = end;
    if (match.token->special && !parse_special) continue;
    if (match.token->single_word && (EndsWithWordChar(text.substr(0, begin)) || StartsWithWordChar(text.substr(end)))) {
      continue;
    }
    if (match.token->lstrip && begin > done) begin -= TrailingSpace(text.substr(done, begin - done));
    // (The token may begin in white space that the one before took: the library finds it there all the same.)
    if (match.token->rstrip) end += LeadingSpace(text.substr(end));
    if (begin > done) pieces.push_back({-1, done, begin});
    pieces.push_back({match.token->id, begin, end});
    done = end;
  }
  if (done < text.size()) pieces.push_back({-1, done, text.size()});
  return pieces;
}

std::vector<AddedTokenFinder::SlowPiece> AddedTokenFinder::SplitPlainly(std::string_view text, bool parse_special,
                                                                        std::vector<const AddedToken*>* tokens) const {
  std::vector<SlowPiece> pieces;
  const auto put = [&](const AddedToken* token, std::string_view part) {
    if (part.empty()) return;
    pieces.push_back({token == nullptr ? -1 : token->id, std::string(part)});
    tokens->push_back(token);
  };
  size_t done = 0;
  for (size_t search = 0; search < text.size() && !tokens_.empty();) {
    const Match match = LongestAt(text.substr(search));
    const size_t begin = search;
    search += match.token == nullptr ? 1 : match.size;
    if (match.token == nullptr || (match.token->special && !parse_special)) continue;
    put(nullptr, text.substr(done, begin - done));
    put(match.token, text.substr(begin, match.size));
    done = search;
  }
  put(nullptr, text.substr(done));
  return pieces;
}

std::vector<AddedTokenFinder::SlowPiece> AddedTokenFinder::SplitSlowly(std::string_view text,
                                                                       bool parse_special) const {
  std::vector<const AddedToken*> tokens;
  std::vector<SlowPiece> pieces = SplitPlainly(text, parse_special, &tokens);
  const auto becomes = [&](size_t i, std::string changed) {
    if (changed == pieces[i].text) return;
    pieces[i] = {-1, std::move(changed)};
    tokens[i] = nullptr;
  };
  for (size_t i = 0; i < pieces.size(); ++i) {
    const AddedToken* token = tokens[i];
    if (token == nullptr) continue;
    const bool has_left = i > 0 && !pieces[i - 1].text.empty();
    const bool has_right = i + 1 < pieces.size() && !pieces[i + 1].text.empty();
    const std::string left = has_left ? pieces[i - 1].text : "";
    const std::string right = has_right ? pieces[i + 1].text : "";
    if (token->rstrip && has_right) becomes(i + 1, std::string(StripLeftLikePython(right)));
    if (token->lstrip && has_left) becomes(i - 1, std::string(StripRightLikePython(left)));
    if (!token->single_word) continue;
    const std::string own = pieces[i].text;
    if (has_left && left.back() != ' ') {
      becomes(i - 1, pieces[i - 1].text + own);
      becomes(i, "");
    } else if (has_right && right.front() != ' ') {
      becomes(i + 1, own + pieces[i + 1].text);
      becomes(i, "");
    }
  }
  std::erase_if(pieces, [](const SlowPiece& piece) { return piece.text.empty(); });
  return pieces;
}

}  // namespace hydrant::tokenizer
