// SPDX-License-Identifier: Apache-2.0
#include "cli/terminal/option_names.h"

#include <array>
#include <cctype>

namespace hydrant::cli {
namespace {

// Where the library's options are declared, or taken.
constexpr std::array<std::string_view, 23> kOwners = {
    "AcceptOptions",    "BeamOptions",         "ChatMessage",      "ConvertOptions",    "EngineOptions",
    "EvalLogits",       "GenerationRequest",   "LookupOptions",    "PerplexityOptions", "RandomModel",
    "RenderChat",       "RespellOptions",      "SamplingOptions",  "StepOptions",       "StopOptions",
    "Tokenize",         "TrainHeadsOptions",   "RunOptions",       "HeadShape",         "Recipe",
    "TokenizerOptions", "TrainMedusa2Options", "TrainBaseOptions",
};

struct Spelling {
  std::string_view option, flag;
};

// Flags that are not the option's name with dashes.
constexpr std::array<Spelling, 26> kSpellings{{
    {"AcceptOptions::rule", "--accept"},
    {"ChatMessage::system", "--system"},
    {"BeamOptions::width", "--beam-width"},
    {"BeamOptions::length", "--beam-length"},
    {"ConvertOptions::replace", "--force"},
    {"LookupOptions::max_tokens", "--lookup"},
    {"LookupOptions::max_match", "--lookup-max-match"},
    {"LookupOptions::min_match", "--lookup-min"},
    {"LookupOptions::rule", "--lookup-rule"},
    {"RenderChat::template_name", "--template"},
    {"Tokenize::add_bos", "--add-bos"},
    {"RunOptions::replace", "--force"},
    {"RunOptions::row_tokens", "--seq-len"},
    {"RunOptions::rows", "--batch-size"},
    {"RunOptions::template_name", "--template"},
    {"RunOptions::learns_prompts", "--learn"},
    {"TrainHeadsOptions::heads", "--arch"},
    {"HeadShape::arch", "--arch"},
    {"HeadShape::num_heads", "--heads"},
    {"HeadShape::num_layers", "--layers"},
    {"HeadShape::hidden_layer_offset", "--hidden-offset"},
    {"Recipe::peak_rate", "--lr"},
    {"Recipe::label_weight", "--label-loss"},
    {"Recipe::teacher_weight", "--teacher-loss"},
    {"HeadShape::shared_lm_head", "--lm-head shared"},
    {"Recipe::reconstruction_weight", "--reconstruction-loss"},
}};

bool IsWord(char c) { return std::isalnum(static_cast<unsigned char>(c)) != 0 || c == '_'; }

// The owner that the text so far ends with, as a word of its own; empty: none.
std::string_view OwnerBefore(std::string_view text) {
  for (const std::string_view owner : kOwners) {
    if (!text.ends_with(owner)) continue;
    const std::string_view before = text.substr(0, text.size() - owner.size());
    if (before.empty() || !IsWord(before.back())) return owner;
  }
  return {};
}

std::string FlagOf(std::string_view option, std::string_view field) {
  for (const Spelling& spelling : kSpellings) {
    if (option == spelling.option) return std::string(spelling.flag);
  }
  std::string flag = "--" + std::string(field);
  for (char& c : flag) {
    if (c == '_') c = '-';
  }
  return flag;
}

}  // namespace

std::string WithFlags(std::string_view text) {
  std::string out;
  for (size_t at = 0; at < text.size();) {
    const std::string_view owner = text.substr(at).starts_with("::") ? OwnerBefore(text.substr(0, at)) : "";
    size_t end = at + 2;
    while (end < text.size() && IsWord(text[end])) ++end;
    if (owner.empty() || end == at + 2) {
      out += text[at++];
      continue;
    }
    out.resize(out.size() - owner.size());
    out += FlagOf(text.substr(at - owner.size(), owner.size() + end - at), text.substr(at + 2, end - at - 2));
    at = end;
  }
  return out;
}

std::vector<std::string> WithFlags(std::vector<std::string> texts) {
  for (std::string& text : texts) text = WithFlags(text);
  return texts;
}

}  // namespace hydrant::cli
