// SPDX-License-Identifier: Apache-2.0
#include "tokenizer/json/pre_tokenizer.h"

#include "base/json.h"
#include "hydrant/error.h"
#include "tokenizer/json/byte_level.h"
#include "tokenizer/utf8.h"

namespace hydrant::tokenizer {
namespace {

constexpr size_t kMaxPreTokenizers = 8;

// What ByteLevel with use_regex splits by: GPT-2's contractions, words, numbers, signs and space.
constexpr const char* kGpt2Pattern = R"('s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+)";

bool BoolOr(const base::JsonView& json, std::string_view key, bool otherwise) {
  return json.Has(key) ? json.At(key).Bool() : otherwise;
}

}  // namespace

PreTokenizer PreTokenizer::Parse(const base::JsonView& json) {
  PreTokenizer pre_tokenizer;
  if (!json.is_null()) pre_tokenizer.Add(json);
  return pre_tokenizer;
}

void PreTokenizer::Add(const base::JsonView& json) {
  if (steps_.size() >= kMaxPreTokenizers) json.Fail("at most " + std::to_string(kMaxPreTokenizers) + " pre-tokenizers");
  const base::JsonView type = json.At("type");
  const std::string name = type.String();
  if (name == "Sequence") {
    const base::JsonView members = json.At("pretokenizers");
    for (size_t i = 0; i < members.Size(); ++i) Add(members.At(i));
  } else if (name == "Split") {
    AddSplit(json);
  } else if (name == "ByteLevel") {
    AddByteLevel(json);
  } else if (name == "Metaspace") {
    AddMetaspace(json);
  } else {
    type.Fail("Split, ByteLevel, Metaspace or Sequence", "this pre-tokenizer is not supported");
  }
}

void PreTokenizer::AddSplit(const base::JsonView& json) {
  if (json.At("behavior").String() != "Isolated") json.At("behavior").Fail("\"Isolated\"");
  if (BoolOr(json, "invert", false)) json.At("invert").Fail("false");
  const base::JsonView pattern = json.At("pattern");
  if (!pattern.Has("Regex")) pattern.Fail("{\"Regex\": pattern}");
  Step step{.kind = Kind::kSplit, .regex = SplitRegex(pattern.At("Regex").String(), json.file()), .replacement = {}};
  steps_.push_back(std::move(step));
}

void PreTokenizer::AddByteLevel(const base::JsonView& json) {
  Step step{.kind = Kind::kByteLevel, .regex = std::nullopt, .replacement = {}};
  step.add_prefix_space = BoolOr(json, "add_prefix_space", true);
  if (BoolOr(json, "use_regex", true)) step.regex = SplitRegex(kGpt2Pattern, json.file());
  steps_.push_back(std::move(step));
}

void PreTokenizer::AddMetaspace(const base::JsonView& json) {
  if (BoolOr(json, "split", true)) {
    throw FileError(json.file(), "'" + json.path() + ".split' is true or absent, expected false",
                    "only Metaspace as Llama tokenizers have it is supported");
  }
  Step step{.kind = Kind::kMetaspace, .regex = std::nullopt, .replacement = json.At("replacement").String()};
  if (step.replacement.empty() || NextChar(step.replacement).size != step.replacement.size()) {
    json.At("replacement").Fail("one character");
  }
  const std::string scheme = json.Has("prepend_scheme") ? json.At("prepend_scheme").String() : "always";
  if (scheme == "first") {
    step.prepend = Prepend::kFirst;
  } else if (scheme == "always") {
    step.prepend = Prepend::kAlways;
  } else if (scheme != "never") {
    json.At("prepend_scheme").Fail("\"first\", \"always\" or \"never\"");
  }
  steps_.push_back(std::move(step));
}

void PreTokenizer::Split(std::string_view text, bool at_start, const Sink& sink) const {
  if (!text.empty()) Run(0, text, at_start, sink);
}

void PreTokenizer::Run(size_t step_idx, std::string_view text, bool at_start, const Sink& sink) const {
  if (step_idx == steps_.size()) return sink(text);
  const Step& step = steps_[step_idx];
  if (step.kind == Kind::kSplit) {
    RunRegex(step_idx, text, at_start, sink);
  } else if (step.kind == Kind::kByteLevel) {
    std::string whole(text);
    if (step.add_prefix_space && !whole.starts_with(' ')) whole.insert(0, 1, ' ');
    if (step.regex.has_value()) return RunRegex(step_idx, whole, at_start, sink);
    Run(step_idx + 1, BytesToLetters(whole), at_start, sink);
  } else {
    std::string spaced = ReplaceAll(text, " ", step.replacement);
    const bool wanted = step.prepend == Prepend::kAlways || (step.prepend == Prepend::kFirst && at_start);
    if (wanted && !spaced.starts_with(step.replacement)) spaced.insert(0, step.replacement);
    Run(step_idx + 1, spaced, at_start, sink);
  }
}

void PreTokenizer::RunRegex(size_t step_idx, std::string_view text, bool at_start, const Sink& sink) const {
  const Step& step = steps_[step_idx];
  for (const TextRange& range : step.regex->Split(text)) {
    const std::string_view part = text.substr(range.begin, range.end - range.begin);
    const bool part_at_start = at_start && range.begin == 0;
    if (step.kind == Kind::kByteLevel) {
      Run(step_idx + 1, BytesToLetters(part), part_at_start, sink);
    } else {
      Run(step_idx + 1, part, part_at_start, sink);
    }
  }
}

}  // namespace hydrant::tokenizer
