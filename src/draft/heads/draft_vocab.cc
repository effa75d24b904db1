// SPDX-License-Identifier: Apache-2.0
#include "draft/heads/draft_vocab.h"

#include <algorithm>
#include <cstdlib>
#include <cstring>
#include <functional>
#include <new>
#include <utility>

#include "base/check.h"
#include "base/json.h"
#include "hydrant/error.h"
#include "quant/pack.h"

namespace hydrant::draft {
namespace {

// Zeroed bytes on a cache line, kept by what is made from them.
std::shared_ptr<uint8_t> Lines(int64_t bytes) {
  const auto size = static_cast<size_t>((bytes + kernels::kLineBytes - 1) / kernels::kLineBytes * kernels::kLineBytes);
  auto* memory = static_cast<uint8_t*>(std::aligned_alloc(static_cast<size_t>(kernels::kLineBytes), size));
  if (memory == nullptr) throw std::bad_alloc();
  std::memset(memory, 0, size);
  return {memory, [](uint8_t* p) { std::free(p); }};
}

bool IsPruned(const model::Linear& lm_head, int64_t token) {
  if (lm_head.bias[static_cast<size_t>(token)] > kLargestPrunedBias) return false;
  const auto is_zero = [](auto number) { return number == 0; };
  if (lm_head.packed) return std::ranges::all_of(quant::UnpackRow(lm_head.packed->matrix, token), is_zero);
  const size_t row = lm_head.weight.num_bytes() / static_cast<size_t>(lm_head.weight.shape[0]);
  return std::ranges::all_of(std::span(lm_head.weight.data + static_cast<size_t>(token) * row, row), is_zero);
}

}  // namespace

std::vector<int32_t> ReadDraftVocab(const std::string& file, int64_t vocab_size) {
  const base::Json json = base::ReadJsonFile(file);
  std::vector<int32_t> tokens;
  for (const int64_t token : base::JsonView(json, file).IntList(0, vocab_size - 1)) {
    tokens.push_back(static_cast<int32_t>(token));
  }
  if (tokens.empty()) throw FileError(file, "has no tokens, expected a JSON array of token ids");
  std::ranges::sort(tokens);
  const auto twice = std::ranges::adjacent_find(tokens);
  if (twice != tokens.end())
    throw FileError(file, "token " + std::to_string(*twice) + " stands twice", "each drafted token is listed once");
  return tokens;
}

std::vector<int32_t> MostFrequentTokens(std::span<const int32_t> text, int64_t count, int64_t vocab_size) {
  std::vector<int64_t> times(static_cast<size_t>(vocab_size), 0);
  for (const int32_t token : text) {  // a tokenizer may know more tokens than the model has rows for
    if (token >= 0 && token < vocab_size) ++times[static_cast<size_t>(token)];
  }
  std::vector<int32_t> tokens(static_cast<size_t>(vocab_size));
  for (size_t t = 0; t < tokens.size(); ++t) tokens[t] = static_cast<int32_t>(t);
  const auto times_of = [&](int32_t t) { return times[static_cast<size_t>(t)]; };
  std::erase_if(tokens, [&](int32_t t) { return times_of(t) == 0; });
  std::ranges::stable_sort(tokens, std::greater<>(), times_of);
  tokens.resize(std::min(static_cast<size_t>(count), tokens.size()));
  std::ranges::sort(tokens);
  return tokens;
}

std::optional<std::vector<int32_t>> UnprunedTokens(std::span<model::Linear* const> lm_heads) {
  const auto has_none = [](const model::Linear* lm_head) { return lm_head->bias.empty(); };
  if (lm_heads.empty() || std::ranges::any_of(lm_heads, has_none)) return std::nullopt;
  std::vector<int32_t> tokens;
  const auto vocab_size = static_cast<int32_t>(lm_heads.front()->outputs());
  for (int32_t token = 0; token < vocab_size; ++token) {
    const auto drafts = [token](const model::Linear* lm_head) { return !IsPruned(*lm_head, token); };
    if (std::ranges::any_of(lm_heads, drafts)) tokens.push_back(token);
  }
  if (static_cast<int64_t>(tokens.size()) == vocab_size) return std::nullopt;
  return tokens;
}

TensorView LmHeadCutter::CutFloats(const TensorView& weight) const {
  const auto row = weight.num_bytes() / static_cast<size_t>(weight.shape[0]);
  const std::shared_ptr<uint8_t> memory = Lines(static_cast<int64_t>(row * tokens_.size()));
  for (size_t i = 0; i < tokens_.size(); ++i) {
    std::memcpy(memory.get() + i * row, weight.data + static_cast<size_t>(tokens_[i]) * row, row);
  }
  TensorView cut = weight;
  cut.data = memory.get();
  cut.shape[0] = static_cast<int64_t>(tokens_.size());
  cut.owner = memory;
  return cut;
}

std::shared_ptr<const quant::PackedWeight> LmHeadCutter::CutPacked(const quant::PackedWeight& weight) const {
  const kernels::PackedMatrix& from = weight.matrix;
  auto cut = std::make_shared<quant::PackedWeight>();
  cut->format = quant::HasTwoPlanes(weight.format) ? quant::WeightFormat::kW8A16 : quant::WeightFormat::kW8A8;
  kernels::PackedMatrix& to = cut->matrix;
  to.outputs = static_cast<int64_t>(tokens_.size());
  to.inputs = from.inputs;
  const int64_t panel_bytes = to.num_panels() * to.panel_bytes();
  const std::shared_ptr<uint8_t> memory = Lines(panel_bytes + to.num_panels() * kernels::kPanelOutputs * 4);
  auto* scales = reinterpret_cast<float*>(memory.get() + panel_bytes);
  for (size_t i = 0; i < tokens_.size(); ++i) {
    quant::PlaceRowW8(to, static_cast<int64_t>(i), quant::UnpackRow(from, tokens_[i]), memory.get());
    scales[i] = from.row_scales[tokens_[i]];
  }
  to.panels = memory.get();
  to.row_scales = scales;
  cut->owner = memory;
  return cut;
}

void LmHeadCutter::Cut(model::Linear& lm_head) {
  const uint64_t before = lm_head.bytes();
  bool is_new = false;
  if (lm_head.packed) {
    auto& cut = packed_[lm_head.packed];
    is_new = !cut;
    if (is_new) cut = CutPacked(*lm_head.packed);
    lm_head.packed = cut;
  } else {
    HYDRANT_CHECK(lm_head.num_inputs < 0);
    const auto [entry, added] = floats_.try_emplace(lm_head.weight.data);
    is_new = added;
    if (is_new) entry->second = {lm_head.weight, CutFloats(lm_head.weight)};
    lm_head.weight = entry->second.second;
  }
  if (is_new) {
    bytes_before_ += before;
    bytes_after_ += lm_head.bytes();
  }
  if (lm_head.bias.empty()) return;
  std::vector<float> bias;
  for (const int32_t token : tokens_) bias.push_back(lm_head.bias[static_cast<size_t>(token)]);
  lm_head.bias = std::move(bias);
}

}  // namespace hydrant::draft
