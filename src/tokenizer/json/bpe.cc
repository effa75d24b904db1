// SPDX-License-Identifier: Apache-2.0
#include "tokenizer/json/bpe.h"

#include <algorithm>
#include <array>
#include <cstdio>
#include <limits>
#include <queue>

#include "base/json.h"
#include "hydrant/error.h"
#include "tokenizer/utf8.h"

namespace hydrant::tokenizer {
namespace {

uint64_t PairKey(int32_t left, int32_t right) {
  return (static_cast<uint64_t>(static_cast<uint32_t>(left)) << 32) | static_cast<uint32_t>(right);
}

// A merge that was possible when it was pushed. Lowest rank first, then leftmost.
struct Candidate {
  int32_t rank;
  int32_t position;
  int32_t id;

  bool operator>(const Candidate& other) const {
    return rank != other.rank ? rank > other.rank : position > other.position;
  }
};

bool IsTrue(const base::JsonView& json, std::string_view key) { return json.Has(key) && json.At(key).Bool(); }

void RefuseUnsupported(const base::JsonView& json) {
  if (json.Has("type") && json.At("type").String() != "BPE") {
    json.At("type").Fail("\"BPE\"", "this tokenizer model is not supported");
  }
  if (json.Has("dropout") && json.At("dropout").Number() != 0) json.At("dropout").Fail("null");
  for (const char* key : {"continuing_subword_prefix", "end_of_word_suffix"}) {
    if (json.Has(key) && !json.At(key).String().empty()) json.At(key).Fail("null or \"\"");
  }
}

}  // namespace

BpeModel BpeModel::Parse(const base::JsonView& json) {
  RefuseUnsupported(json);
  BpeModel model;
  model.ReadVocabulary(json.At("vocab"));
  model.ReadMerges(json.At("merges"));
  model.ReadUnknown(json);
  model.ignore_merges_ = IsTrue(json, "ignore_merges");
  return model;
}

void BpeModel::ReadVocabulary(const base::JsonView& vocab) {
  if (!vocab.is_object() || vocab.raw().empty()) vocab.Fail("an object of tokens and ids");
  // Ids may have holes, but the table of tokens must not outgrow the file.
  const auto limit = static_cast<int64_t>(2 * vocab.raw().size() + 100'000);
  ids_.reserve(vocab.raw().size());
  for (const auto& [token, id] : vocab.raw().items()) {
    if (!id.is_number_unsigned() || id.get<uint64_t>() >= static_cast<uint64_t>(limit)) {
      vocab.At(token).Fail("an id from 0 to " + std::to_string(limit - 1));
    }
    const auto index = id.get<size_t>();
    if (token.empty()) vocab.At(token).Fail("no token without text");
    if (index >= tokens_.size()) tokens_.resize(index + 1);
    if (!tokens_[index].empty()) vocab.At(token).Fail("an id that no other token has");
    tokens_[index] = token;
    ids_.emplace(token, static_cast<int32_t>(index));
  }
}

void BpeModel::ReadMerges(const base::JsonView& merges) {
  const size_t count = merges.Size();
  if (count > static_cast<size_t>(std::numeric_limits<int32_t>::max())) merges.Fail("fewer merges");
  merges_.reserve(count);
  for (size_t i = 0; i < count; ++i) {
    const base::Json& merge = merges.raw()[i];
    const auto rank = static_cast<int32_t>(i);
    if (merge.is_string()) {
      const std::string& text = merge.get_ref<const std::string&>();
      const size_t space = text.find(' ');
      if (space == std::string::npos || text.find(' ', space + 1) != std::string::npos) {
        merges.At(i).Fail("two tokens with one space between them");
      }
      const std::string_view view = text;
      AddMerge(merges, rank, view.substr(0, space), view.substr(space + 1));
    } else if (merge.is_array() && merge.size() == 2 && merge[0].is_string() && merge[1].is_string()) {
      AddMerge(merges, rank, merge[0].get_ref<const std::string&>(), merge[1].get_ref<const std::string&>());
    } else {
      merges.At(i).Fail("\"a b\" or [\"a\", \"b\"]");
    }
  }
}

void BpeModel::AddMerge(const base::JsonView& merges, int32_t rank, std::string_view left, std::string_view right) {
  const int32_t left_id = IdOf(left);
  const int32_t right_id = IdOf(right);
  std::string merged(left);
  merged += right;
  const int32_t merged_id = IdOf(merged);
  if (left_id < 0 || right_id < 0 || merged_id < 0) {
    constexpr size_t kShown = 100;
    const std::string missing((left_id < 0 ? left : right_id < 0 ? right : merged).substr(0, kShown));
    merges.At(static_cast<size_t>(rank)).Fail("tokens of the vocabulary (it has no " + base::DumpJson(missing) + ")");
  }
  // A pair that stands twice keeps its later rank, as in the reference library.
  merges_.insert_or_assign(PairKey(left_id, right_id), Merge{rank, merged_id});
}

void BpeModel::ReadUnknown(const base::JsonView& json) {
  fuse_unknown_ = IsTrue(json, "fuse_unk");
  if (json.Has("unk_token")) {
    unknown_id_ = IdOf(json.At("unk_token").String());
    if (unknown_id_ < 0) json.At("unk_token").Fail("a token of the vocabulary");
  }
  if (!IsTrue(json, "byte_fallback")) return;
  byte_ids_.resize(256);
  for (unsigned byte = 0; byte < 256; ++byte) {
    std::array<char, 8> name{};
    std::snprintf(name.data(), name.size(), "<0x%02X>", byte);
    byte_ids_[byte] = IdOf(name.data());
  }
}

int32_t BpeModel::IdOf(std::string_view token) const {
  const auto found = ids_.find(token);
  return found == ids_.end() ? -1 : found->second;
}

const BpeModel::Merge* BpeModel::FindMerge(int32_t left, int32_t right) const {
  const auto found = merges_.find(PairKey(left, right));
  return found == merges_.end() ? nullptr : &found->second;
}

void BpeModel::AppendCharacter(std::string_view character, bool* last_is_unknown, std::vector<Symbol>* symbols) const {
  const auto push = [symbols](int32_t id) { symbols->push_back({id, -1, -1}); };
  const bool after_unknown = *last_is_unknown;
  *last_is_unknown = false;
  const int32_t id = IdOf(character);
  if (id >= 0) return push(id);
  const bool has_bytes = !byte_ids_.empty() && std::all_of(character.begin(), character.end(), [this](char byte) {
    return byte_ids_[static_cast<uint8_t>(byte)] >= 0;
  });
  if (has_bytes) {
    for (const char byte : character) push(byte_ids_[static_cast<uint8_t>(byte)]);
  } else if (unknown_id_ >= 0) {
    if (!after_unknown || !fuse_unknown_) push(unknown_id_);
    *last_is_unknown = true;
  }
}

std::vector<BpeModel::Symbol> BpeModel::Characters(std::string_view word) const {
  std::vector<Symbol> symbols;
  symbols.reserve(word.size());
  bool last_is_unknown = false;
  while (!word.empty()) {
    const size_t size = NextChar(word).size;
    AppendCharacter(word.substr(0, size), &last_is_unknown, &symbols);
    word.remove_prefix(size);
  }
  for (size_t i = 0; i < symbols.size(); ++i) {
    symbols[i].previous = static_cast<int32_t>(i) - 1;
    symbols[i].next = i + 1 < symbols.size() ? static_cast<int32_t>(i + 1) : -1;
  }
  return symbols;
}

void BpeModel::MergeAll(std::vector<Symbol>* symbols) const {
  std::priority_queue<Candidate, std::vector<Candidate>, std::greater<>> queue;
  const auto at = [symbols](int32_t position) -> Symbol& { return (*symbols)[static_cast<size_t>(position)]; };
  const auto push = [&](int32_t left, int32_t right) {
    if (left < 0 || right < 0) return;
    const Merge* merge = FindMerge(at(left).id, at(right).id);
    if (merge != nullptr) queue.push({merge->rank, left, merge->id});
  };
  for (size_t i = 0; i + 1 < symbols->size(); ++i) push(static_cast<int32_t>(i), static_cast<int32_t>(i + 1));
  while (!queue.empty()) {
    const Candidate best = queue.top();
    queue.pop();
    Symbol& left = at(best.position);
    if (left.id < 0 || left.next < 0) continue;  // merged away, or nothing follows any more
    Symbol& right = at(left.next);
    const Merge* merge = FindMerge(left.id, right.id);
    if (merge == nullptr || merge->id != best.id) continue;  // one of the two has changed since
    left.id = best.id;
    left.next = right.next;
    right.id = -1;
    if (left.next >= 0) at(left.next).previous = best.position;
    push(left.previous, best.position);
    push(best.position, left.next);
  }
}

void BpeModel::Encode(std::string_view word, std::vector<int32_t>* ids) const {
  if (ignore_merges_) {
    const int32_t whole = IdOf(word);
    if (whole >= 0) return ids->push_back(whole);
  }
  if (word.size() > static_cast<size_t>(std::numeric_limits<int32_t>::max())) {
    throw UserError("the text has a word of " + std::to_string(word.size()) + " bytes", "shorten the text");
  }
  std::vector<Symbol> symbols = Characters(word);
  MergeAll(&symbols);
  for (const Symbol& symbol : symbols) {
    if (symbol.id >= 0) ids->push_back(symbol.id);
  }
}

}  // namespace hydrant::tokenizer
