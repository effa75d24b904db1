// SPDX-License-Identifier: Apache-2.0
#include "draft/heads/base_names.h"

#include <algorithm>
#include <array>
#include <cctype>
#include <set>
#include <string_view>

namespace hydrant::draft {
namespace {

using Words = std::set<std::string>;

// Say nothing about which model it is.
constexpr std::array<std::string_view, 45> kNoise = {
    "model", "models", "base",    "main",  "latest",  "snapshot", "snapshots", "checkpoint", "ckpt",
    "out",   "output", "outputs", "final", "merged",  "tmp",      "temp",      "test",       "weights",
    "hf",    "target", "llm",     "data",  "default", "local",    "new",       "old",        "copy",
    "my",    "f16",    "fp16",    "bf16",  "f32",     "fp32",     "w4a8",      "w8a8",       "w8a16",
    "w4a16", "int4",   "int8",    "4bit",  "8bit",    "packed",   "converted", "pytorch",    "safetensors"};

// Where one name has such a word and the other lacks it, they are different models; further words are only more exact.
constexpr std::array<std::string_view, 16> kVariants = {"chat", "instruct", "it",  "sft", "dpo", "rlhf", "code", "math",
                                                        "4k",   "8k",       "16k", "32k", "64k", "128k", "200k", "1m"};

struct FamilyWord {
  std::string_view word, family;
};
constexpr std::array<FamilyWord, 7> kFamilyWords = {{{"vicuna", "llama"},
                                                     {"tinyllama", "llama"},
                                                     {"llama", "llama"},
                                                     {"mixtral", "mixtral"},
                                                     {"mistral", "mistral"},
                                                     {"zephyr", "mistral"},
                                                     {"qwen", "qwen"}}};

template <typename Words>
bool Holds(const Words& words, std::string_view word) {
  return std::find(words.begin(), words.end(), word) != words.end();
}

bool IsDigit(char c) { return c >= '0' && c <= '9'; }

bool IsHash(const std::string& word) {
  return word.size() >= 7 && std::any_of(word.begin(), word.end(), IsDigit) &&
         std::all_of(word.begin(), word.end(), [](char c) { return IsDigit(c) || (c >= 'a' && c <= 'f'); });
}

// The last part of a path; of Hugging Face's cache (models--lmsys--vicuna-7b-v1.3/snapshots/3f39fbd) the model's name.
std::string LastPart(std::string path) {
  constexpr std::string_view kCache = "models--";
  if (const size_t cache = path.rfind(kCache); cache != std::string::npos) {
    const std::string name = path.substr(cache, path.find('/', cache) - cache);
    return name.substr(name.rfind("--") + 2);
  }
  while (!path.empty() && path.back() == '/') path.pop_back();
  return path.substr(path.rfind('/') + 1);
}

Words WordsOf(const std::string& path) {
  Words words;
  std::string word;
  const auto add = [&] {
    while (!word.empty() && word.back() == '.') word.pop_back();
    const bool number_behind_checkpoint =
        words.empty() && std::all_of(word.begin(), word.end(), IsDigit) && word.size() > 2;
    if (word.size() > 1 && !Holds(kNoise, word) && !IsHash(word) && !number_behind_checkpoint) words.insert(word);
    if (word.size() == 1 && IsDigit(word[0]) && !words.empty()) words.insert(word);  // the 2 of Llama 2
    word.clear();
  };
  for (const char c : LastPart(path)) {
    if (std::isalnum(static_cast<unsigned char>(c)) != 0 || c == '.') {
      word += static_cast<char>(std::tolower(static_cast<unsigned char>(c)));
    } else {
      add();
    }
  }
  add();
  return words;
}

std::string FamilyOf(const Words& words) {
  std::string family;
  for (const std::string& word : words) {
    for (const FamilyWord& known : kFamilyWords) {
      if (word.find(known.word) == std::string::npos) continue;
      if (!family.empty() && family != known.family) return "";
      family = known.family;
      break;
    }
  }
  return family;
}

// Two names agree if one of them only adds words, and no added word makes it another model.
bool Agree(const Words& a, const Words& b) {
  const Words &less = a.size() <= b.size() ? a : b, &more = a.size() <= b.size() ? b : a;
  for (const std::string& word : less) {
    if (!more.contains(word)) return false;
  }
  return std::all_of(more.begin(), more.end(),
                     [&](const std::string& word) { return less.contains(word) || !Holds(kVariants, word); });
}

// "7b", "1.1b", "14m".
bool IsSize(const std::string& word) {
  return word.size() > 1 && (word.back() == 'b' || word.back() == 'm') && IsDigit(word.front()) &&
         std::all_of(word.begin(), word.end() - 1, [](char c) { return IsDigit(c) || c == '.'; });
}

bool LooksLikeAModel(const Words& words) {
  return !FamilyOf(words).empty() || (words.size() > 1 && std::any_of(words.begin(), words.end(), IsSize));
}

bool IsLocalPath(const std::string& name) {
  return name.starts_with("/") || name.starts_with(".") || name.starts_with("~") ||
         std::count(name.begin(), name.end(), '/') > 1;
}

}  // namespace

std::optional<std::string> DifferentBase(const std::string& named_by_heads, const BaseNames& base) {
  const Words named = WordsOf(named_by_heads);
  if (named.empty()) return std::nullopt;
  std::optional<std::string> different;
  const auto agrees = [&](const std::string& name, bool says_something) {
    const Words words = WordsOf(name);
    if (words.empty()) return false;
    if (Agree(named, words)) return true;
    if (!different && (says_something || LooksLikeAModel(words))) different = name;
    return false;
  };
  if (agrees(base.name_or_path, !IsLocalPath(base.name_or_path))) return std::nullopt;
  for (const std::string& folder : base.folders) {
    if (agrees(folder, false)) return std::nullopt;
  }
  const std::string family = FamilyOf(named);
  if (!different && !family.empty() && !base.family.starts_with(family)) return "a model of type " + base.family;
  return different;
}

}  // namespace hydrant::draft
