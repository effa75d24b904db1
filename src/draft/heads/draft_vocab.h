// SPDX-License-Identifier: Apache-2.0
// A smaller vocabulary for drafting: lm heads keep only the outputs of tokens that are worth drafting. The base model
// still chooses from all tokens, so the text stays the same; a token outside is never drafted, which costs accepted
// tokens, and an lm head costs as many bytes as it has outputs (docs/algorithms/hydra_heads.md).
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "model/weights.h"

namespace hydrant::draft {

// Reads a JSON array of token ids; returns them ascending. Throws FileError: not an array of integers, an id that is no
// token, one that stands twice, none at all.
std::vector<int32_t> ReadDraftVocab(const std::string& file, int64_t vocab_size);

// The `count` most frequent tokens of a text, ascending; among equals the lower ids. All of them where it has fewer.
std::vector<int32_t> MostFrequentTokens(std::span<const int32_t> text, int64_t count, int64_t vocab_size);

// How layouts without a token map hold pruned lm heads: this bias under a row of zeros (docs/formats.md). bf16 makes
// -9984 of it, which is read as the same.
inline constexpr float kPrunedBias = -1e4F, kLargestPrunedBias = -9984;

// The tokens [V'] that at least one of the lm heads [V, D] drafts, ascending; nothing: each of them drafts all.
std::optional<std::vector<int32_t>> UnprunedTokens(std::span<model::Linear* const> lm_heads);

// Cuts lm heads to the outputs of some tokens. Heads that share a matrix share the cut one. A packed matrix becomes
// lines of 8 bits with the same integers, because two outputs that share 4-bit tables may be separated.
class LmHeadCutter {
 public:
  explicit LmHeadCutter(std::span<const int32_t> tokens) : tokens_(tokens) {}
  void Cut(model::Linear& lm_head);
  // Bytes of the matrices that were cut, and bytes of the matrices that came of them. Each matrix counts once.
  uint64_t bytes_before() const { return bytes_before_; }
  uint64_t bytes_after() const { return bytes_after_; }

 private:
  TensorView CutFloats(const TensorView& weight) const;
  std::shared_ptr<const quant::PackedWeight> CutPacked(const quant::PackedWeight& weight) const;

  std::span<const int32_t> tokens_;
  uint64_t bytes_before_ = 0, bytes_after_ = 0;
  // By what was cut, which stays alive here: its address is the key.
  std::map<const uint8_t*, std::pair<TensorView, TensorView>> floats_;
  std::map<std::shared_ptr<const quant::PackedWeight>, std::shared_ptr<const quant::PackedWeight>> packed_;
};

}  // namespace hydrant::draft
