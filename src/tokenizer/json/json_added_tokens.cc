// SPDX-License-Identifier: Apache-2.0
#include "tokenizer/json/json_added_tokens.h"

#include <algorithm>
#include <unordered_map>
#include <utility>

#include "base/json.h"
#include "hydrant/error.h"

namespace hydrant::tokenizer {
namespace {

using base::JsonView;

bool Flag(const JsonView& json, std::string_view key, bool otherwise) {
  return json.Has(key) ? json.At(key).Bool() : otherwise;
}

class Joiner {
 public:
  Joiner(const BpeModel& vocabulary, std::vector<std::string>* warnings)
      : vocabulary_(vocabulary), warnings_(warnings) {
    num_tokens_ = std::count_if(vocabulary.tokens().begin(), vocabulary.tokens().end(),
                                [](const std::string& token) { return !token.empty(); });
  }

  void ReadOwn(const JsonView& json, int64_t max_id);
  void AddListed(const AddedToken& token, const ConfigRules& rules, int64_t max_id);
  void AddSpecial(const SpecialToken& special);
  std::vector<AddedToken> Take() { return std::move(tokens_); }

 private:
  bool IsTaken(int32_t id) const {
    const auto index = static_cast<size_t>(id);
    return by_id_.contains(id) || (index < vocabulary_.tokens().size() && !vocabulary_.tokens()[index].empty());
  }
  // As the tokenizers library numbers a token that it does not know.
  int32_t NextId() const {
    int64_t id = std::max<int64_t>(num_tokens_, max_added_id_ + 1);
    while (IsTaken(static_cast<int32_t>(id))) ++id;
    return static_cast<int32_t>(id);
  }
  void Put(const AddedToken& token) {
    by_content_.emplace(token.content, tokens_.size());
    by_id_.emplace(token.id, tokens_.size());
    max_added_id_ = std::max<int64_t>(max_added_id_, token.id);
    tokens_.push_back(token);
  }
  void Warn(const ConfigRules& rules, const AddedToken& token, const std::string& problem) {
    warnings_->push_back(rules.added_tokens_file + ": added token " + base::DumpJson(token.content) + " has id " +
                         std::to_string(token.id) + ", " + problem);
  }

  const BpeModel& vocabulary_;
  std::vector<std::string>* warnings_;
  int64_t num_tokens_ = 0;
  int64_t max_added_id_ = -1;
  std::vector<AddedToken> tokens_;
  std::unordered_map<std::string, size_t> by_content_;
  std::unordered_map<int32_t, size_t> by_id_;
};

// One of the tokenizer.json itself.
void Joiner::ReadOwn(const JsonView& json, int64_t max_id) {
  AddedToken token;
  token.id = static_cast<int32_t>(json.At("id").Int(0, max_id));
  token.content = json.At("content").String();
  token.special = Flag(json, "special", false);
  token.normalized = Flag(json, "normalized", !token.special);
  token.lstrip = Flag(json, "lstrip", false);
  token.rstrip = Flag(json, "rstrip", false);
  token.single_word = Flag(json, "single_word", false);
  if (token.content.empty() || token.content.size() > kMaxAddedTokenBytes) json.At("content").Fail("1 to 512 bytes");
  const int32_t known = vocabulary_.IdOf(token.content);
  const auto index = static_cast<size_t>(token.id);
  const bool taken = index < vocabulary_.tokens().size() && !vocabulary_.tokens()[index].empty() && known != token.id;
  if ((known >= 0 && known != token.id) || taken) json.At("id").Fail("the id that the vocabulary gives to this token");
  if (by_content_.contains(token.content)) json.At("content").Fail("a token that was not added before");
  Put(token);
}

void Joiner::AddListed(const AddedToken& listed, const ConfigRules& rules, int64_t max_id) {
  AddedToken token = listed;
  const auto known = by_content_.find(token.content);
  if (known != by_content_.end()) {
    AddedToken& own = tokens_[known->second];
    if (own.id != token.id) Warn(rules, token, "but " + std::to_string(own.id) + " in tokenizer.json, which is used");
    token.id = own.id;
    token.special = token.special || own.special;
    own = token;
    return;
  }
  const int32_t own_id = vocabulary_.IdOf(token.content);
  if (own_id >= 0) {
    if (own_id != token.id) Warn(rules, token, "but " + std::to_string(own_id) + " in tokenizer.json, which is used");
    token.id = own_id;
  } else if (token.id > max_id) {
    throw FileError(rules.added_tokens_file,
                    "added token " + base::DumpJson(token.content) + " has id " + std::to_string(token.id) +
                        ", but the vocabulary of tokenizer.json has " + std::to_string(num_tokens_) + " tokens");
  } else if (const auto other = by_id_.find(token.id); other != by_id_.end()) {
    Warn(rules, token,
         "which is " + base::DumpJson(tokens_[other->second].content) +
             " in tokenizer.json: both texts "
             "are taken for it, and it is printed by the first");
  } else if (IsTaken(token.id)) {
    Warn(rules, token,
         "which is " + base::DumpJson(vocabulary_.tokens()[static_cast<size_t>(token.id)]) +
             " in the vocabulary of tokenizer.json: its text is taken for that token");
  } else if (const int32_t next = NextId(); next != token.id) {
    Warn(rules, token,
         "which is used; transformers' fast tokenizers would leave no gap and make it " + std::to_string(next));
  }
  Put(token);
}

void Joiner::AddSpecial(const SpecialToken& special) {
  AddedToken token = special.token;
  const auto known = by_content_.find(token.content);
  if (known != by_content_.end()) {
    tokens_[known->second].special = true;
    return;
  }
  token.id = vocabulary_.IdOf(token.content);
  if (token.id < 0 && special.is_default) return;
  if (token.id < 0) token.id = NextId();
  Put(token);
}

}  // namespace

std::vector<AddedToken> JoinAddedTokens(const JsonView& list, const BpeModel& vocabulary, const ConfigRules& rules,
                                        std::vector<std::string>* warnings) {
  Joiner joiner(vocabulary, warnings);
  const size_t own = list.is_null() ? 0 : list.Size();
  // The table must not outgrow the files.
  const auto max_id =
      static_cast<int64_t>(2 * (vocabulary.tokens().size() + own + rules.added_tokens.size()) + 100'000);
  for (size_t i = 0; i < own; ++i) joiner.ReadOwn(list.At(i), max_id);
  for (const AddedToken& token : rules.added_tokens)
    joiner.AddListed(rules.WithFlagsOfRole(token, false), rules, max_id);
  for (const SpecialToken& special : rules.special_tokens) joiner.AddSpecial(special);
  return joiner.Take();
}

}  // namespace hydrant::tokenizer
