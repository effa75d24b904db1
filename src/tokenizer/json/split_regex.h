// SPDX-License-Identifier: Apache-2.0
// The split pattern of a pre-tokenizer. The pattern comes from a file and the text from a user, so steps, depth and
// memory of a match are limited.
#pragma once

#include <cstddef>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

namespace hydrant::tokenizer {

struct TextRange {
  size_t begin;
  size_t end;
};

class SplitRegex {
 public:
  // `file` names the file in errors. Throws FileError for a pattern that does not compile.
  SplitRegex(const std::string& pattern, const std::string& file);

  // Matches and the stretches between them, in order, none empty; together they are the text ("Isolated").
  // `text` must be well-formed UTF-8. Throws UserError when a limit is hit.
  std::vector<TextRange> Split(std::string_view text) const;

 private:
  struct Compiled;  // the PCRE2 objects
  std::shared_ptr<const Compiled> compiled_;
  std::string file_;
};

}  // namespace hydrant::tokenizer
