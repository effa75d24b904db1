// SPDX-License-Identifier: Apache-2.0
// For tests: sizes and a tokenizer of a model that trains in a second. Not SentencePiece's: in one program with
// libtorch its library finds another protobuf than its own.
#pragma once

#include <string>

#include "base/json.h"
#include "base/mapped_file.h"
#include "tests/test_data.h"
#include "train/base_config.h"

namespace hydrant::test {

inline constexpr int64_t kTinyTokens = 500;

// tokenizer.json: a committed one, cut to as many tokens.
inline std::string TinyTokenizer() {
  using base::Json;
  const std::string name = SourceDir() + "/tests/golden/tokenizers/own_bytelevel_qwen2/tokenizer.json";
  Json json = base::ParseJson(base::ReadTextFile(name), name);
  Json vocabulary = Json::object(), merges = Json::array();
  for (const auto& [token, id] : json["model"]["vocab"].items()) {
    if (id < kTinyTokens) vocabulary[token] = id;
  }
  for (const Json& merge : json["model"]["merges"]) {
    std::string joined =
        merge.is_array() ? merge[0].get<std::string>() + " " + merge[1].get<std::string>() : merge.get<std::string>();
    joined.erase(joined.find(' '), 1);
    if (vocabulary.contains(joined)) merges.push_back(merge);
  }
  json["model"]["vocab"] = vocabulary;
  json["model"]["merges"] = merges;
  json["added_tokens"] = Json::array();
  return base::DumpJson(json);
}

inline train::BaseShape TinyShape() {
  return {.vocab_size = kTinyTokens,
          .hidden_size = 32,
          .num_layers = 2,
          .num_heads = 4,
          .intermediate_size = 64,
          .max_positions = 64,
          .num_kv_heads = 2};
}

}  // namespace hydrant::test
