// SPDX-License-Identifier: Apache-2.0
// The precompiled normalization table of a SentencePiece model. The library follows its offsets unchecked.
#pragma once

#include <string>
#include <string_view>

namespace hydrant::tokenizer {

// Walks the whole table: every step that any text can take must stay inside it, and end. Throws FileError.
void CheckCharsmap(std::string_view charsmap, const std::string& file);

}  // namespace hydrant::tokenizer
