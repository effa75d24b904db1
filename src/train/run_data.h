// SPDX-License-Identifier: Apache-2.0
// The text of a run: read, cut into segments, some of them held out, the others in the order of their batches.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "load/loaded_model.h"
#include "tokenizer/chat/chat_template.h"
#include "train/data/batches.h"
#include "train/data/segments.h"
#include "train/data/token_data.h"

namespace hydrant::train {

struct RunDataOptions {
  std::vector<std::string> files;
  std::string template_name = {};  // of conversations; empty: the base's own
  bool learns_prompts = false;     // of conversations not the replies alone are learned, but every token
  int64_t tokens = 0;              // of an epoch at least; 0: all
  int32_t row_tokens = 256;        // the longest segment
  int32_t rows = 8;                // of a batch
  int32_t held_out = 0;            // segments
  uint64_t seed = 1;
  std::function<void(double share)> progress = {};  // may throw to end the work
  std::function<void(const std::string& text)> warn = {};
};

struct RunData {
  TokenData data;
  std::vector<Segment> held_out;
  std::unique_ptr<BatchOrder> order;

  // Steps of the first `epochs` epochs.
  int64_t StepsOf(int32_t epochs) const;
  // So many of the tokens that are learned most often, ascending; 0: none, which means all.
  std::vector<int32_t> DraftVocab(int32_t count, int64_t vocab_size) const;
};

// Whose tokens the text becomes.
struct TextModel {
  std::string name;  // in errors
  const tokenizer::Tokenizer* tokenizer = nullptr;
  tokenizer::FolderTemplate chat;  // of conversations
  int64_t vocab_size = 0;
  base::ThreadPool* pool = nullptr;
};

// Throws UserError, as ReadTokenData does, too: for text with nothing to learn, and for a tokenizer of other tokens
// than the model's. Takes the template from `model`.
RunData ReadRunData(const TextModel& model, const RunDataOptions& options);
// With the tokenizer of the loaded base.
RunData ReadRunData(const load::LoadedModel& base, const RunDataOptions& options);

}  // namespace hydrant::train
