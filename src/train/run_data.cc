// SPDX-License-Identifier: Apache-2.0
#include "train/run_data.h"

#include <algorithm>

#include "draft/heads/draft_vocab.h"
#include "hydrant/error.h"
#include "train/evaluation.h"

namespace hydrant::train {
namespace {

constexpr int32_t kLeast = 4;  // tokens of a segment: one to predict from, the root, and two more

TokenData ReadTokens(const TextModel& model, const RunDataOptions& options) {
  ReadOptions read;
  read.template_name = model.chat.name;
  read.template_tokens = model.chat.tokens;
  read.pool = model.pool;
  read.warn = options.warn;
  read.progress = options.progress;
  TokenData data = ReadTokenData(options.files, *model.tokenizer, read);
  const int32_t largest = *std::ranges::max_element(data.tokens);
  if (largest < model.vocab_size) return data;
  throw FileError(model.name, "the tokenizer gives token " + std::to_string(largest) + ", and the model has " +
                                  std::to_string(model.vocab_size) + " tokens");
}

void LearnAll(TokenData& data) {
  std::ranges::fill(data.learned, 1);
  size_t first = 0;  // of a document: nothing stands before it
  for (const int64_t end : data.ends) {
    if (first < data.learned.size()) data.learned[first] = 0;
    first = static_cast<size_t>(end);
  }
}

}  // namespace

int64_t RunData::StepsOf(int32_t epochs) const {
  int64_t steps = 0;
  for (int32_t epoch = 0; epoch < epochs; ++epoch) steps += order->steps(epoch);
  return steps;
}

std::vector<int32_t> RunData::DraftVocab(int32_t count, int64_t vocab_size) const {
  if (count == 0) return {};
  std::vector<int32_t> learned;
  for (size_t i = 0; i < data.tokens.size(); ++i) {
    if (data.learned[i] != 0) learned.push_back(data.tokens[i]);
  }
  return draft::MostFrequentTokens(learned, count, vocab_size);
}

RunData ReadRunData(const load::LoadedModel& base, const RunDataOptions& options) {
  const std::string& folder = base.options.model;
  const std::string& name = options.template_name;
  return ReadRunData(
      {.name = folder,
       .tokenizer = base.tokenizer.get(),
       .chat = name.empty() ? tokenizer::ReadFolderTemplate(folder)
                            : tokenizer::FolderTemplate{name, tokenizer::ReadTemplateTokens(folder, name)},
       .vocab_size = base.weights.config.vocab_size,
       .pool = base.pool.get()},
      options);
}

RunData ReadRunData(const TextModel& model, const RunDataOptions& options) {
  RunData run;
  run.data = ReadTokens(model, options);
  if (options.learns_prompts) LearnAll(run.data);
  std::vector<Segment> segments = CutSegments(run.data, options.row_tokens, kLeast);
  run.held_out = HoldOut(segments, options.held_out);
  segments = ChooseSegments(segments, options.tokens, options.seed);
  if (segments.empty()) {
    throw FileError(options.files.front(), "has no text of " + std::to_string(kLeast) + " tokens with any to learn",
                    "give longer texts");
  }
  run.order = std::make_unique<BatchOrder>(std::move(segments), options.row_tokens, options.rows, options.seed);
  return run;
}

}  // namespace hydrant::train
