// SPDX-License-Identifier: Apache-2.0
#include "train/tokenizer/train_tokenizer.h"

#include <sentencepiece_trainer.h>

#include <cstddef>
#include <string>
#include <unordered_map>
#include <vector>

#include "hydrant/error.h"

namespace hydrant::train {
namespace {

class Sentences : public sentencepiece::SentenceIterator {
 public:
  explicit Sentences(const std::vector<std::string>& lines) : lines_(lines) {}

  bool done() const override { return next_ == lines_.size(); }
  void Next() override { ++next_; }
  const std::string& value() const override { return lines_[next_]; }
  sentencepiece::util::Status status() const override { return {}; }

 private:
  const std::vector<std::string>& lines_;
  size_t next_ = 0;
};

// What Llama-2's tokenizer.model says in its trainer_spec and normalizer_spec. One thread, and no drawing of lines: the
// library draws them anew each time.
std::unordered_map<std::string, std::string> Settings(int32_t vocab_size) {
  return {{"model_type", "bpe"},
          {"vocab_size", std::to_string(vocab_size)},
          {"character_coverage", "0.99995"},
          {"byte_fallback", "true"},
          {"split_digits", "true"},
          {"allow_whitespace_only_pieces", "true"},
          {"normalization_rule_name", "identity"},
          {"remove_extra_whitespaces", "false"},
          {"add_dummy_prefix", "true"},
          {"unk_id", "0"},
          {"bos_id", "1"},
          {"eos_id", "2"},
          {"pad_id", "-1"},
          {"num_threads", "1"},
          {"minloglevel", "2"}};
}

[[noreturn]] void FailAsTrainer(int32_t vocab_size, const std::string& says) {
  const std::string wanted = "TokenizerOptions::vocab_size is " + std::to_string(vocab_size) + ", and the text ";
  constexpr std::string_view kMost = "value <= ";
  if (const size_t at = says.find(kMost); at != std::string::npos) {
    const size_t begin = at + kMost.size(), end = says.find_first_not_of("0123456789", begin);
    throw UserError(wanted + "gives " + says.substr(begin, end - begin) + " tokens at most",
                    "give more text, or choose a smaller number");
  }
  if (says.find("vocab_size") != std::string::npos) {
    throw UserError(wanted + "has more different characters than fit beside the 259 tokens that every tokenizer has",
                    "choose a larger number");
  }
  throw UserError("no tokenizer can be made from the text: " + says);
}

}  // namespace

std::string TrainTokenizer(std::span<const std::string> files, const TokenizerOptions& options) {
  if (options.vocab_size < kLeastVocabSize || options.vocab_size > kMostVocabSize) {
    throw UserError("TokenizerOptions::vocab_size is " + std::to_string(options.vocab_size) + ", expected " +
                    std::to_string(kLeastVocabSize) + " to " + std::to_string(kMostVocabSize));
  }
  const std::vector<std::string> lines = ReadSentences(files, options.sentences);
  Sentences sentences(lines);
  std::string model;
  const sentencepiece::util::Status status =
      sentencepiece::SentencePieceTrainer::Train(Settings(options.vocab_size), &sentences, &model);
  if (!status.ok()) FailAsTrainer(options.vocab_size, status.message());
  return model;
}

}  // namespace hydrant::train
