// SPDX-License-Identifier: Apache-2.0
#include "cli/commands/inspect_sections.h"
#include "cli/terminal/option_names.h"

#include <fmt/core.h>

#include <algorithm>
#include <functional>
#include <map>
#include <memory>
#include <set>
#include <vector>

#include "base/json.h"
#include "base/paths.h"
#include "checkpoint/head_names.h"
#include "checkpoint/packed_tensors.h"
#include "convert/respelled_tensors.h"
#include "draft/heads/base_copies.h"
#include "draft/heads/head_kind.h"
#include "hydrant/error.h"
#include "kernels/packed.h"
#include "load/end_of_turn.h"
#include "model/packed_file.h"
#include "model/weights.h"
#include "tokenizer/chat/chat_template.h"
#include "tokenizer/tokenizer.h"
#include "tree/parse.h"

namespace hydrant::cli {
namespace {

using base::Json;
using NameFilter = std::function<bool(const std::string&)>;

// "w4a8" or "bf16".
std::string TypeOf(const checkpoint::StoredTensor& tensor) {
  return tensor.packed ? tensor.packed->format : NameOf(tensor.view.dtype);
}

// What a converted file says of itself; null for other files.
Json PackedJson(const checkpoint::TensorSource& source) {
  const auto text = [&source](const char* key) {
    const auto found = source.metadata().find(key);
    return found == source.metadata().end() ? Json() : Json(found->second);
  };
  const Json number = text(checkpoint::kLayoutKey);
  if (number.is_null()) return {};
  const auto layout =
      number == checkpoint::kLinesLayout ? kernels::PackedLayout::kLines : kernels::PackedLayout::kInterleaved;
  return {{"layout", NameOf(layout)},
          {"source", text(checkpoint::kSourceKey)},
          {"source_hash", text(checkpoint::kSourceHashKey)}};
}

// What `run` would refuse in packed tensors: sizes, alignment, scales, dictionary.
void CheckPacked(const checkpoint::TensorSource& source, const NameFilter& wanted) {
  for (const auto& [name, tensor] : source.tensors()) {
    if (tensor.packed && wanted(name)) static_cast<void>(model::PackedFromFile(tensor, name, tensor.packed->slices));
  }
}

// Parameters, bytes and dtypes of the tensors that `wanted` names, each storage once, and the groups that share one.
struct Sizes {
  uint64_t tensors = 0, parameters = 0, bytes = 0;
  std::map<std::string, uint64_t> parameters_by_dtype;
  std::vector<std::vector<std::string>> tied;
};

Sizes Measure(const checkpoint::TensorSource& source, const NameFilter& wanted) {
  Sizes sizes;
  std::map<uint64_t, std::vector<std::string>> by_storage;
  for (const auto& [name, tensor] : source.tensors()) {
    if (!wanted(name)) continue;
    ++sizes.tensors;
    std::vector<std::string>& names = by_storage[tensor.storage_id];
    names.push_back(name);
    if (names.size() > 1) continue;
    uint64_t count = 1;
    for (const int64_t extent : tensor.shape()) count *= static_cast<uint64_t>(extent);
    sizes.parameters += count;
    sizes.bytes += tensor.bytes();
    sizes.parameters_by_dtype[TypeOf(tensor)] += count;
  }
  for (const auto& [storage, names] : by_storage) {
    if (names.size() > 1) sizes.tied.push_back(names);
  }
  return sizes;
}

void AddSizes(const Sizes& sizes, Section& section) {
  section.Add("tensors", sizes.tensors);
  section.Add("parameters", sizes.parameters);
  section.Add("bytes", sizes.bytes);
  section.Add("dtypes", sizes.parameters_by_dtype);
}

Json RopeJson(const model::RopeConfig& rope) {
  switch (rope.type) {
    case model::RopeType::kDefault: return {{"type", "default"}, {"theta", rope.theta}};
    case model::RopeType::kLinear: return {{"type", "linear"}, {"theta", rope.theta}, {"factor", rope.factor}};
    case model::RopeType::kLlama3: break;
  }
  return {{"type", "llama3"},
          {"theta", rope.theta},
          {"factor", rope.factor},
          {"low_freq_factor", rope.low_freq_factor},
          {"high_freq_factor", rope.high_freq_factor},
          {"original_max_positions", rope.original_max_positions}};
}

void AddConfig(const model::ModelConfig& config, Section& section) {
  section.Add("family", model::NameOf(config.family));
  section.Add("vocab_size", config.vocab_size);
  section.Add("hidden_size", config.hidden_size);
  section.Add("intermediate_size", config.intermediate_size);
  section.Add("num_layers", config.num_layers);
  section.Add("num_heads", config.num_heads);
  section.Add("num_kv_heads", config.num_kv_heads);
  section.Add("head_dim", config.head_dim);
  section.Add("max_positions", config.max_positions);
  section.Add("sliding_window", config.sliding_window > 0 ? Json(config.sliding_window) : Json());
  section.Add("rope", RopeJson(config.rope));
  section.Add("tied_embeddings", config.tied_embeddings);
  section.Add("qkv_bias", config.qkv_bias);
  section.Add("o_bias", config.o_bias);
  section.Add("mlp_bias", config.mlp_bias);
  section.Add("qk_norm", config.qk_norm);
  section.Add("bos_token_id", config.bos_token_id >= 0 ? Json(config.bos_token_id) : Json());
}

void AddHeads(const draft::HeadsInfo& info, Section& section) {
  section.Add("drafter", info.name);
  section.Add(info.kind->layout_word, info.layout);
  section.Add("spelling", info.rows->spelling == nullptr ? Json() : Json(info.rows->spelling));
  section.Add("config_file", info.config_file.empty() ? Json() : Json(info.config_file));
  section.Add("weights_file", info.weights_file);
  section.Add("num_heads", info.num_heads);
  section.Add("num_layers", info.num_layers);
  section.Add("grounded", info.sequentially_dependent);
  section.Add("lm_heads", info.own_lm_heads     ? "one per head"
                          : info.shared_lm_head ? "one for all heads"
                                                : "the base's");
  section.Add("lm_head_bias", info.lm_head_bias);
  section.Add("grows_trees", info.grows_trees);
  section.Add("token_map", info.has_token_map);
  section.Add("hidden_state_offset", info.hidden_layer_offset);
  for (const auto& fact : info.facts) {
    std::visit([&](auto value) { section.Add(fact.first, value); }, fact.second);
  }
  section.Add("base_model_name", info.base_model.empty() ? Json() : Json(info.base_model));
}

// Those of the base that the heads are for, as far as their file tells.
void AddBaseSizes(const draft::HeadsFile& heads, Section& section) {
  model::ModelConfig base;
  try {
    base = convert::BaseBySizes(heads).config;
  } catch (const UserError&) {  // null
  }
  section.Add("base_hidden_size", base.hidden_size > 0 ? Json(base.hidden_size) : Json());
  section.Add("base_vocab_size", base.vocab_size > 1 ? Json(base.vocab_size) : Json());
}

// The chat template's name, null for none; an unknown one is described, not refused: the tokenizer is fine without.
Json TemplateOf(const std::string& folder) {
  try {
    const std::string name = tokenizer::ReadFolderTemplate(folder).name;
    return name.empty() ? Json() : Json(name);
  } catch (const UserError& e) {
    return fmt::format("not recognised ({})", WithFlags(e.what()));
  }
}

// What ends a reply: the ids, and each with what names it.
void AddEndOfTurn(const std::string& folder, const model::ModelConfig& config, Section& section) {
  std::unique_ptr<tokenizer::Tokenizer> tokenizer;
  if (tokenizer::HasTokenizer(folder)) tokenizer = tokenizer::LoadTokenizer(folder);
  const load::EndOfTurn end = load::FindEndOfTurn(config, tokenizer.get(), folder);
  std::vector<int32_t> ids;
  Json named_by = Json::object();
  for (const EosToken& token : end.tokens) {
    if (!token.template_only) ids.push_back(token.id);
    std::string names;
    for (const std::string& name : token.named_by) names += (names.empty() ? "" : " and ") + name;
    named_by[fmt::format("{} {}", token.id, token.text)] = names;
  }
  section.Add("eos_token_ids", ids);
  section.Add("eos_named_by", named_by);
  section.Add("eos_warnings", WithFlags(end.warnings));
}

}  // namespace

Section BaseSection(const std::string& folder) {
  const model::ModelWeights weights = model::LoadModelWeights(folder);
  const auto source = checkpoint::OpenModelFolder(folder);
  const std::set<std::string> unused(weights.unused_tensors.begin(), weights.unused_tensors.end());
  Section section{"base", {}};
  AddConfig(weights.config, section);
  AddEndOfTurn(folder, weights.config, section);
  section.Add("config_file", weights.config.file);
  section.Add("weights_file", weights.file);
  section.Add("num_files", source->files().size());
  Sizes sizes = Measure(*source, [&unused](const std::string& name) { return !unused.contains(name); });
  AddSizes(sizes, section);
  if (weights.config.tied_embeddings && !weights.lm_head.packed)
    sizes.tied.push_back({"lm_head.weight", "model.embed_tokens.weight"});
  section.Add("tied", sizes.tied);
  section.Add("unused", weights.unused_tensors);
  section.Add("packed", PackedJson(*source));
  section.Add("warnings", WithFlags(weights.warnings));
  return section;
}

Section HeadsSection(const std::string& folder, bool with_base) {
  draft::HeadsFile heads = draft::OpenHeads(folder);
  if (with_base) draft::CheckBaseOf(heads, model::LoadModelWeights(folder));
  std::vector<std::string> unused, copies;
  const bool is_alone =
      heads.info.rows->is_alone ||
      std::ranges::none_of(heads.tensors->tensors(), checkpoint::IsHeadTensor, [](const auto& t) { return t.first; });
  // Some layouts have names without a prefix, and nothing else in their files.
  const auto is_head = [&](const std::string& name) { return is_alone || checkpoint::IsHeadTensor(name); };
  const auto copied = [&](const std::string& name) {
    return draft::IsBaseTensor(name) && !(heads.info.shared_lm_head && name == "lm_head.weight");
  };
  const std::vector<std::string> not_used = draft::UnusedNames(heads.info);
  const auto used = [&](const std::string& name) {
    return is_head(name) && !copied(name) && std::ranges::find(not_used, name) == not_used.end();
  };
  for (const auto& [name, tensor] : heads.tensors->tensors()) {
    if (is_head(name) && !used(name)) (copied(name) ? copies : unused).push_back(name);
  }
  CheckPacked(*heads.tensors, used);
  const Sizes sizes = Measure(*heads.tensors, used);
  Section section{"heads", {}};
  AddHeads(heads.info, section);
  AddBaseSizes(heads, section);
  AddSizes(sizes, section);
  section.Add("tied", sizes.tied);
  section.Add("base_copies", copies);
  section.Add("unused", unused);
  section.Add("packed", PackedJson(*heads.tensors));
  const std::string trees = folder + "/trees.json";
  const bool has_trees = base::IsThere(trees);
  if (has_trees) tree::ReadTreeFile(trees);  // as `run` reads it
  section.Add("trees", has_trees ? Json(trees) : Json());
  section.Add("warnings", WithFlags(heads.info.warnings));
  return section;
}

Section TokenizerSection(const std::string& path) {
  const bool is_folder = base::IsFolder(path);
  std::string file = path;
  if (is_folder) file += base::IsThere(path + "/tokenizer.json") ? "/tokenizer.json" : "/tokenizer.model";
  const auto tokenizer = tokenizer::LoadTokenizer(path);
  Section section{"tokenizer", {}};
  section.Add("file", file);
  section.Add("kind", file.ends_with(".json") ? "tokenizer.json (BPE)" : "SentencePiece");
  section.Add("vocab_size", tokenizer->vocab_size());
  const int32_t bos = tokenizer->bos_id();
  section.Add("bos_id", bos >= 0 ? Json(bos) : Json());
  section.Add("bos_token", bos >= 0 ? Json(tokenizer->TokenText(bos)) : Json());
  section.Add("adds_bos", tokenizer->adds_bos());
  section.Add("warnings", WithFlags(tokenizer->warnings()));
  section.Add("not_followed", tokenizer->notes());
  if (is_folder) section.Add("chat_template", TemplateOf(path));
  return section;
}

Section TensorsSection(const checkpoint::TensorSource& source) {
  const auto all = [](const std::string&) { return true; };
  CheckPacked(source, all);
  const Sizes sizes = Measure(source, all);
  Section section{"tensors", {}};
  section.Add("file", source.display_name());
  section.Add("num_files", source.files().size());
  AddSizes(sizes, section);
  section.Add("tied", sizes.tied);
  section.Add("packed", PackedJson(source));
  return section;
}

Json TensorListJson(const checkpoint::TensorSource& source) {
  Json list = Json::array();
  for (const auto& [name, tensor] : source.tensors()) {
    list.push_back({{"name", name}, {"dtype", TypeOf(tensor)}, {"shape", tensor.shape()}});
  }
  return list;
}

std::string TensorListText(const checkpoint::TensorSource& source) {
  std::string text;
  for (const auto& [name, tensor] : source.tensors()) {
    const std::string quoted = base::DumpJson(Json(name));  // escapes what a terminal must not see
    text += fmt::format("{:5} {:20} {}\n", TypeOf(tensor), ShapeString(tensor.shape()),
                        quoted.substr(1, quoted.size() - 2));
  }
  return text;
}

}  // namespace hydrant::cli
