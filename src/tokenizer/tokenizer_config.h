// SPDX-License-Identifier: Apache-2.0
// What the files beside a tokenizer say about it: tokenizer_config.json, special_tokens_map.json, added_tokens.json,
// and of config.json the class. Which of them counts is as in transformers 4.46
// (PreTrainedTokenizerBase._from_pretrained).
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "tokenizer/added_tokens.h"

namespace hydrant::tokenizer {

// Classes of transformers that change ids; kOther: a name that is none of them; kUnknown: no file names one.
enum class TokenizerClass : uint8_t { kUnknown, kOther, kLlama, kCodeLlama, kQwen2 };

// A token that has a role, such as "eos_token".
struct SpecialToken {
  std::string key;
  AddedToken token;         // id -1: the tokenizer finds it, or numbers it
  std::string file;         // that names it; empty: the class does
  bool is_default = false;  // of the class: counts where the vocabulary has it
  bool has_flags = false;   // written as an object, which says how the token is found
};

// Everything may be absent.
struct ConfigRules {
  std::string file = {};  // tokenizer_config.json; in warnings
  TokenizerClass class_of = TokenizerClass::kUnknown;
  std::string class_name = {};

  // A folder is named, not the tokenizer file in it.
  bool of_folder = false;
  bool has_model_file = false;  // the folder has a tokenizer.model

  std::optional<bool> add_bos_token = {};
  bool add_eos_token = false;
  // transformers' Llama classes: true = every stretch between special tokens begins with a space of its own.
  bool legacy = true;
  std::optional<bool> add_prefix_space = {};
  bool prefix_space_is_null = false;  // written as null, which is no absence to the slow Llama class
  bool split_special_tokens = false;  // text of special tokens is ordinary text

  // added_tokens_decoder, else added_tokens.json; by id.
  std::vector<AddedToken> added_tokens = {};
  std::string added_tokens_file = {};
  bool added_tokens_have_flags = false;
  // In transformers' order: bos, eos, unk, sep, pad, cls, mask, additional ones, CodeLlama's for infilling.
  std::vector<SpecialToken> special_tokens = {};
  std::vector<std::string> null_keys = {};  // such as "bos_token": null, which is no absence

  bool samples = false;  // sp_model_kwargs.enable_sampling
  std::vector<std::string> warnings = {}, notes = {};

  // Null where the key is absent.
  const SpecialToken* Special(std::string_view key) const;
  bool IsNull(std::string_view key) const;
  bool IsSpecial(std::string_view content) const;
  // One of added_tokens, found as its role has it where that counts: an object beside added_tokens.json, and the
  // defaults of classes that make objects of them (Qwen2, and the Llama classes' slow tokenizers).
  AddedToken WithFlagsOfRole(AddedToken listed, bool slow) const;
};

// The warning for add_eos_token.
std::string EosNotAdded(const std::string& file);

// The text of a tokenizer_config.json. Throws FileError for values of a wrong type.
ConfigRules ParseConfigRules(std::string_view text, const std::string& file);
// All files of the folder. Throws FileError.
ConfigRules ReadConfigRules(const std::string& folder);

}  // namespace hydrant::tokenizer
