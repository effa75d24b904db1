// SPDX-License-Identifier: Apache-2.0
// Lines of training data that a tokenizer is made from.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <span>
#include <string>
#include <vector>

namespace hydrant::train {

struct SentenceOptions {
  size_t most_bytes = size_t{16} << 20;  // of all lines together
  uint64_t seed = 1;
  // Conversations are rendered by this template, without BOS and EOS. Empty: each message is a text.
  std::string template_name = {};
  std::function<void(double share)> progress = {};  // may throw to end the work
};

// Longer lines are cut between words: the trainer leaves out lines of more than 4192 bytes.
inline constexpr size_t kMostSentenceBytes = 4096;

// Lines of files in the forms of documents.h, in their order: all of them, or so many drawn without repetition that
// they have most_bytes or fewer. The same lines for equal files on every machine. Left out are empty lines, and those
// that a tokenizer cannot have pieces of: what is no UTF-8, and NUL. Throws FileError, also for files without a line.
std::vector<std::string> ReadSentences(std::span<const std::string> files, const SentenceOptions& options);

}  // namespace hydrant::train
