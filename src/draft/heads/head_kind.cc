// SPDX-License-Identifier: Apache-2.0
#include "draft/heads/head_kind.h"

#include <algorithm>

#include "base/check.h"
#include "base/json.h"

namespace hydrant::draft {
namespace {

using checkpoint::Extent;
using checkpoint::Presence;
using checkpoint::TensorRow;

std::string Fill(std::string_view pattern, int32_t first, int32_t second) {
  std::string text;
  bool is_first = true;
  for (const char c : pattern) {
    if (c == '%') {
      text += std::to_string(second);
    } else if (c != '#') {
      text += c;
    } else {
      text += std::to_string(is_first ? first : second);
      is_first = false;
    }
  }
  return text;
}

Extent ExtentOf(Size size, const HeadPlace& place, const HeadsInfo& info, const model::ModelConfig& base,
                int64_t draft_rows) {
  const int32_t head = place.head;
  const model::ModelConfig& layer = place.layer_config != nullptr ? *place.layer_config : base;
  const std::string layer_file = layer.file == base.file ? "" : layer.file;
  switch (size) {
    case Size::kHiddenSize: return {base.hidden_size, "hidden_size"};
    case Size::kFirstInputs: {
      const int64_t slices = head + 2;
      return {slices * base.hidden_size, std::to_string(slices) + " * hidden_size"};
    }
    case Size::kVocabulary: return {base.vocab_size, "vocab_size"};
    case Size::kDraftRows: return {draft_rows, info.has_token_map ? "rows of the token map" : "vocab_size"};
    case Size::kTwoHidden: return {2 * base.hidden_size, "2 * hidden_size"};
    case Size::kThreeHidden: return {3 * base.hidden_size, "3 * hidden_size"};
    case Size::kExit: return {info.exit_size > 0 ? info.exit_size : 2 * base.hidden_size, "exit_dim", info.config_file};
    case Size::kQueryRows: return {layer.num_heads * layer.head_dim, "num_attention_heads * head_dim", layer_file};
    case Size::kKeyRows: return {layer.num_kv_heads * layer.head_dim, "num_key_value_heads * head_dim", layer_file};
    case Size::kInnerSize: return {layer.intermediate_size, "intermediate_size", layer_file};
    case Size::kStateInputs:
      if (head == 0) return {base.hidden_size, "hidden_size"};
      [[fallthrough]];
    case Size::kStateSize: return {layer.intermediate_size, "inner_dim", layer.file};
    case Size::kNone: break;
  }
  return {};
}

std::string NoteOn(const HeadTensor& tensor, int32_t head) {
  if (tensor.inputs != Size::kFirstInputs) return tensor.note;
  return "head " + std::to_string(head) + " sees the hidden state and " +
         (head == 0 ? std::string("one embedding") : std::to_string(head + 1) + " embeddings");
}

TensorRow WeightRow(const HeadTensor& tensor, const HeadPlace& place, const HeadsInfo& info,
                    const model::ModelConfig& base, int64_t draft_rows) {
  TensorRow row;
  row.name = NameOf(info, tensor, place.head, place.layer) + ".weight";
  for (const Size size : {tensor.outputs, tensor.inputs}) {
    if (size != Size::kNone) row.shape.push_back(ExtentOf(size, place, info, base, draft_rows));
  }
  row.shard = tensor.shard;
  row.note = NoteOn(tensor, place.head);
  if (place.tied_to != nullptr) row.tied_to = place.tied_to->name;
  return row;
}

TensorRow BiasRow(const HeadTensor& tensor, const TensorRow& weight, const HeadsInfo& info) {
  TensorRow row = weight;
  const auto to_bias = [](std::string& name) { name.replace(name.size() - 6, 6, "bias"); };  // "….weight"
  to_bias(row.name);
  if (!row.tied_to.empty()) to_bias(row.tied_to);
  row.shape.resize(1);
  row.note.clear();
  if (weight.shard == checkpoint::ShardAxis::kInputs) row.shard = checkpoint::ShardAxis::kReplicated;
  if (tensor.bias == Bias::kOptional && !info.block_bias) row.presence = Presence::kOptional;
  return row;
}

}  // namespace

const HeadTensor* HeadLayout::Find(std::string_view role) const {
  const auto found = std::ranges::find(tensors, role, &HeadTensor::role);
  return found == tensors.end() ? nullptr : &*found;
}

bool Match(std::string_view name, std::string_view pattern, std::vector<int32_t>& numbers) {
  numbers.clear();
  size_t n = 0;
  for (const char c : pattern) {
    if (c != '#' && c != '%') {
      if (n >= name.size() || name[n] != c) return false;
      ++n;
      continue;
    }
    const size_t begin = n;
    int32_t value = 0;
    while (n < name.size() && name[n] >= '0' && name[n] <= '9' && n - begin < 5) value = value * 10 + (name[n++] - '0');
    if (n == begin) return false;
    numbers.push_back(value);
  }
  return n == name.size();
}

std::string NameOf(const HeadsInfo& info, const HeadTensor& tensor, int32_t head, int32_t layer) {
  return Fill(tensor.name, head, info.rows->first_place + layer * info.rows->place_step);
}

std::string NameOf(const HeadsInfo& info, std::string_view role, int32_t head, int32_t layer) {
  const HeadTensor* tensor = info.rows->Find(role);
  HYDRANT_CHECK(tensor != nullptr);
  return NameOf(info, *tensor, head, layer);
}

HeadCounts CountHeads(const checkpoint::TensorSource& tensors, const HeadLayout& layout) {
  HeadCounts counts;
  std::vector<int32_t> numbers;
  const HeadTensor *block = layout.Find(kBlock), *lm_head = layout.Find(kLmHead);
  HYDRANT_CHECK(block != nullptr && lm_head != nullptr);
  const std::string block_pattern = std::string(block->name) + ".weight";
  const std::string lm_head_pattern = std::string(lm_head->name) + ".weight";
  for (const auto& [name, tensor] : tensors.tensors()) {
    if (Match(name, block_pattern, numbers)) {
      counts.heads = std::max(counts.heads, numbers[0] + 1);
      counts.max_place = std::max(counts.max_place, numbers[1]);
    } else if (Match(name, lm_head_pattern, numbers)) {
      counts.heads = std::max(counts.heads, numbers[0] + 1);
      counts.has_lm_head = true;
      if (numbers.size() > 1) counts.lm_head_place = std::max(counts.lm_head_place, numbers[1]);
    }
  }
  return counts;
}

std::vector<TensorRow> RowsOf(const HeadPlace& place, const HeadsInfo& info, const model::ModelConfig& base,
                              int64_t draft_rows) {
  const HeadTensor* tensor = info.rows->Find(place.role);
  HYDRANT_CHECK(tensor != nullptr);
  if (tensor->form == Form::kDecoderLayer) {
    return model::LayerRows(*place.layer_config, NameOf(info, *tensor, place.head, place.layer));
  }
  std::vector<TensorRow> rows = {WeightRow(*tensor, place, info, base, draft_rows)};
  if (tensor->bias != Bias::kNone) rows.push_back(BiasRow(*tensor, rows.front(), info));
  return rows;
}

std::vector<std::string> UnusedNames(const HeadsInfo& info) {
  std::vector<std::string> names;
  for (const HeadTensor& tensor : info.rows->tensors) {
    if (tensor.form == Form::kUnused) names.emplace_back(tensor.name);
  }
  names.insert(names.end(), info.repeats.begin(), info.repeats.end());
  return names;
}

const HeadLayout* Respelled(const HeadKind& kind, const HeadLayout& layout, std::string_view spelling) {
  // An lm head for all heads and a token map are of some files only, whatever their layout.
  const auto is_of_all = [](const HeadTensor& tensor) {
    return tensor.form != Form::kUnused && tensor.role != kSharedLmHead && tensor.role != kTokenMap;
  };
  const auto holds = [&](const HeadLayout& a, const HeadLayout& b) {
    return std::ranges::all_of(
        b.tensors, [&](const HeadTensor& tensor) { return !is_of_all(tensor) || a.Find(tensor.role) != nullptr; });
  };
  for (const HeadLayout& other : kind.layouts) {
    if (other.spelling == nullptr || other.spelling != spelling) continue;
    if (holds(other, layout) && holds(layout, other)) return &other;
  }
  return nullptr;
}

std::vector<model::Linear*> LinearsOf(HeadWeights& weights) {
  const bool own_lm_heads = weights.info.own_lm_heads || weights.info.shared_lm_head;
  std::vector<model::Linear*> linears;
  for (const HeadPlace& place : weights.Places()) {
    if (place.role == kLmHead && !own_lm_heads) continue;
    if (place.linear != nullptr) linears.push_back(place.linear);
    if (place.slices != nullptr) {
      for (model::Linear& slice : *place.slices) linears.push_back(&slice);
    }
    if (place.decoder_layer == nullptr) continue;
    for (model::Linear* linear : model::LinearsOf(*place.decoder_layer)) linears.push_back(linear);
  }
  return linears;
}

std::vector<model::Linear*> LmHeadsOf(HeadWeights& weights) {
  std::vector<model::Linear*> lm_heads;
  for (const HeadPlace& place : weights.Places()) {
    if (place.role == kLmHead || place.role == kSharedLmHead) lm_heads.push_back(place.linear);
  }
  return lm_heads;
}

void WarnIfDifferent(const base::JsonView& config, const char* key, int64_t found, HeadsInfo& info) {
  if (!config.Has(key)) return;
  const int64_t stated = config.At(key).Int(0, 1 << 20);
  if (stated == found) return;
  info.warnings.push_back(info.config_file + ": '" + key + "' is " + std::to_string(stated) + ", but " +
                          info.weights_file + " holds " + std::to_string(found) + "; the weights are right");
}

}  // namespace hydrant::draft
