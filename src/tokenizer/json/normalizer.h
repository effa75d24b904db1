// SPDX-License-Identifier: Apache-2.0
// The "normalizer" of a tokenizer.json: what happens to text before it is split.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "base/json_fwd.h"

namespace hydrant::tokenizer {

// Unicode normalization form C. Canonical ordering sorts each run of marks, so that a long run is not quadratic.
std::string ToNfc(std::string_view text);

class Normalizer {
 public:
  // Accepts NFC, Prepend, Replace of a plain string, and a Sequence of them; null = nothing. Others throw FileError.
  static Normalizer Parse(const base::JsonView& json);

  // Of well-formed text. Throws UserError where the steps multiply its size.
  std::string Apply(std::string_view text) const;
  bool empty() const { return steps_.empty(); }

 private:
  enum class Kind { kNfc, kPrepend, kReplace };
  struct Step {
    Kind kind;
    std::string from;  // kReplace
    std::string to;    // kReplace, kPrepend
  };

  void Add(const base::JsonView& json);

  std::vector<Step> steps_;
};

}  // namespace hydrant::tokenizer
