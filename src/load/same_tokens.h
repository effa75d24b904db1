// SPDX-License-Identifier: Apache-2.0
// Whether two models mean the same tokens by the same ids.
#pragma once

#include <string>

#include "tokenizer/tokenizer.h"

namespace hydrant::load {

// The first id at which they differ, in words ("token 5 is "a", expected "b""); empty: they have the same tokens. An id
// without a token in one of them differs from one that has one.
std::string TokenDifference(const tokenizer::Tokenizer& found, const tokenizer::Tokenizer& expected);

// Throws FileError where the draft model's folder has other tokens than the base's, or one of them has no tokenizer and
// their vocabularies differ in size.
void CheckSameTokens(const std::string& draft, int64_t draft_vocab, const std::string& base, int64_t base_vocab);

}  // namespace hydrant::load
