// SPDX-License-Identifier: Apache-2.0
// Files of texts to measure a model on, as token ids.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "load/loaded_model.h"

namespace hydrant::cli {

struct TextOptions {
  std::string file;            // empty: stdin
  std::string split = "auto";  // none | blank | jsonl; auto: jsonl by the name, else none
  std::string field;           // of JSONL; empty: "text", else "conversations", else "messages"
  int64_t max_tokens = 0;      // that will be used; 0: all
};

// The texts of a file, each with a BOS where the tokenizer adds one. JSONL: one object a line; the field holds a text,
// or a list of messages ({"role", "content"} or {"from", "value"}), which the model's own chat template renders. Throws
// UserError.
std::vector<std::vector<int32_t>> ReadTexts(const load::LoadedModel& loaded, const TextOptions& options);

// The parts of a text between blank lines, without line ends around them.
std::vector<std::string> SplitAtBlankLines(const std::string& text);

}  // namespace hydrant::cli
