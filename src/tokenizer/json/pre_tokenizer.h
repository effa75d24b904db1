// SPDX-License-Identifier: Apache-2.0
// The "pre_tokenizer" of a tokenizer.json: cuts text into the words that BPE works on.
#pragma once

#include <functional>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/json_fwd.h"
#include "tokenizer/json/split_regex.h"

namespace hydrant::tokenizer {

class PreTokenizer {
 public:
  // Accepts Split (a regex, isolated), ByteLevel, Metaspace that does not split, and a Sequence of them; null = the
  // text is one word. Others throw FileError.
  static PreTokenizer Parse(const base::JsonView& json);

  using Sink = std::function<void(std::string_view word)>;
  // `at_start` = `text` stands at the very beginning of the input, which Metaspace "first" asks for.
  void Split(std::string_view text, bool at_start, const Sink& sink) const;

 private:
  enum class Kind { kSplit, kByteLevel, kMetaspace };
  enum class Prepend { kNever, kFirst, kAlways };
  struct Step {
    Kind kind;
    std::optional<SplitRegex> regex;    // kSplit; kByteLevel with use_regex
    bool add_prefix_space = false;      // kByteLevel
    std::string replacement;            // kMetaspace: what stands for a space
    Prepend prepend = Prepend::kNever;  // kMetaspace
  };

  void Add(const base::JsonView& json);
  void AddSplit(const base::JsonView& json);
  void AddByteLevel(const base::JsonView& json);
  void AddMetaspace(const base::JsonView& json);
  void Run(size_t step_idx, std::string_view text, bool at_start, const Sink& sink) const;
  void RunRegex(size_t step_idx, std::string_view text, bool at_start, const Sink& sink) const;

  std::vector<Step> steps_;
};

}  // namespace hydrant::tokenizer
