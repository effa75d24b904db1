// SPDX-License-Identifier: Apache-2.0
#include "load/same_tokens.h"

#include <algorithm>
#include <memory>

#include "base/json.h"
#include "hydrant/error.h"

namespace hydrant::load {
namespace {

std::string Shown(const tokenizer::Tokenizer& tokenizer, int32_t id) {
  if (id >= tokenizer.vocab_size()) return "no token";
  const std::string text = tokenizer.IsSpecial(id) ? tokenizer.TokenText(id) : tokenizer.TokenBytes(id, false);
  return base::DumpJson(text.substr(0, 40)) + (tokenizer.IsSpecial(id) ? " (special)" : "");
}

}  // namespace

std::string TokenDifference(const tokenizer::Tokenizer& found, const tokenizer::Tokenizer& expected) {
  const int32_t count = std::max(found.vocab_size(), expected.vocab_size());
  for (int32_t id = 0; id < count; ++id) {
    const std::string a = Shown(found, id), b = Shown(expected, id);
    if (a != b) return "token " + std::to_string(id) + " is " + a + ", expected " + b;
  }
  return "";
}

void CheckSameTokens(const std::string& draft, int64_t draft_vocab, const std::string& base, int64_t base_vocab) {
  const char* const hint = "a draft model needs the tokenizer of its base: take one of the same family";
  if (tokenizer::HasTokenizer(draft) && tokenizer::HasTokenizer(base)) {
    const auto found = tokenizer::LoadTokenizer(draft), expected = tokenizer::LoadTokenizer(base);
    const std::string difference = TokenDifference(*found, *expected);
    if (!difference.empty()) throw FileError(draft, difference + " (as in " + base + ")", hint);
    return;
  }
  if (draft_vocab == base_vocab) return;
  throw FileError(draft,
                  "its vocabulary has " + std::to_string(draft_vocab) + " tokens, expected " +
                      std::to_string(base_vocab) + " as in " + base +
                      ", and without tokenizers in both folders nobody can tell whether they agree",
                  hint);
}

}  // namespace hydrant::load
