// SPDX-License-Identifier: Apache-2.0
#include "train/write_heads.h"

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <list>
#include <map>
#include <memory>
#include <optional>
#include <system_error>

#include "base/json.h"
#include "checkpoint/safetensors_writer.h"
#include "checkpoint/tensor_source.h"
#include "checkpoint/torch_zip_writer.h"
#include "draft/heads/draft_vocab.h"
#include "draft/heads/head_kind.h"
#include "draft/heads/medusa_weights.h"
#include "hydrant/error.h"
#include "tensor/tensor.h"

namespace hydrant::train {
namespace {

using base::Json;

// 1e-05 rather than 9.999999747378752e-06.
double ShortDouble(float value) {
  char text[32];
  std::snprintf(text, sizeof(text), "%.6g", static_cast<double>(value));
  return std::strtod(text, nullptr);
}

// EAGLE's is the config of a Llama model with one layer.
Json EagleConfig(const draft::HeadsInfo& info, const model::ModelConfig& base, int64_t num_drafted) {
  const bool is_third = info.shared_lm_head;
  const model::ModelConfig& layer = *info.layer;
  Json config = {{"architectures", {is_third ? "LlamaForCausalLMEagle3" : "LlamaForCausalLMEagle"}},
                 {"model_type", "llama"},
                 {"vocab_size", layer.vocab_size},
                 {"hidden_size", layer.hidden_size},
                 {"intermediate_size", layer.intermediate_size},
                 {"num_hidden_layers", 1},
                 {"num_attention_heads", layer.num_heads},
                 {"num_key_value_heads", layer.num_kv_heads},
                 {"head_dim", layer.head_dim},
                 {"hidden_act", "silu"},
                 {"max_position_embeddings", layer.max_positions},
                 {"rms_norm_eps", ShortDouble(layer.rms_norm_eps)},
                 {"rope_theta", layer.rope.theta},
                 {"tie_word_embeddings", false}};
  // What a base's config says of rope scaling holds for the layer, too.
  const Json source = base.file.empty() ? Json() : base::ReadJsonFile(base.file);
  if (source.contains("rope_scaling")) config["rope_scaling"] = source["rope_scaling"];
  if (!is_third) {
    config["bias"] = true;
    return config;
  }
  config["draft_vocab_size"] = num_drafted > 0 ? num_drafted : layer.vocab_size;
  config["eagle_aux_hidden_state_layer_ids"] = info.hidden_layers;
  config["eagle_aux_hidden_state_layer_ids_are"] = "inputs";
  return config;
}

Json RedrafterConfig(const draft::HeadsInfo& info, const model::ModelConfig& base) {
  return {{"vocab_size", base.vocab_size},
          {"hidden_size", base.hidden_size},
          {"exit_dim", info.exit_size > 0 ? info.exit_size : 2 * base.hidden_size},
          {"num_draft_layers", info.num_layers},
          {"rnn", info.is_recurrent}};
}

bool IsVllm(const draft::HeadsInfo& info) { return info.kind == &draft::kMedusaKind && info.has_token_map; }

// vLLM's MedusaConfig; max_paths and topk are its own defaults.
Json VllmConfig(const draft::HeadsInfo& info, const model::ModelConfig& base, const WriteHeadsOptions& options) {
  Json config = {{"architectures", {"MedusaModel"}},
                 {"model_type", "medusa"},
                 {"hidden_size", base.hidden_size},
                 {"vocab_size", base.vocab_size},
                 {"num_heads", info.num_heads},
                 {"num_hidden_layers", info.num_layers},
                 {"max_paths", 64},
                 {"topk", 10},
                 {"truncated_vocab_size", options.draft_vocab.size()},
                 {"medusa_fc_bias", info.block_bias},
                 {"torch_dtype", TorchTypeName(options.dtype)}};
  if (!options.base.empty()) config["base_model_name_or_path"] = options.base;
  return config;
}

Json ConfigOf(const draft::HeadsInfo& info, const model::ModelConfig& base, const WriteHeadsOptions& options) {
  const std::string kind = info.kind->name;
  if (kind == "eagle") {
    return EagleConfig(info, base, static_cast<int64_t>(options.draft_vocab.size()));
  }
  if (kind == "redrafter") return RedrafterConfig(info, base);
  if (IsVllm(info)) return VllmConfig(info, base, options);
  Json config = {{kind + "_num_heads", info.num_heads}, {kind + "_num_layers", info.num_layers}};
  if (!options.base.empty()) config["base_model_name_or_path"] = options.base;
  if (kind != "hydra") return config;
  config["hydra_head_arch"] = info.rows->name;
  config["grounded_heads"] = info.sequentially_dependent;
  config["hidden_state_offset"] = info.hidden_layer_offset;
  constexpr double kPublishedTheta = 10000;
  if (info.rope_theta != kPublishedTheta) config["hydra_ext"] = {{"version", 1}, {"rope_theta", info.rope_theta}};
  return config;
}

std::string FileNameOf(const draft::HeadsInfo& info, bool is_torch) {
  const std::string kind = info.kind->name;
  if (kind == "eagle" || kind == "redrafter" || IsVllm(info))
    return is_torch ? "pytorch_model.bin" : "model.safetensors";
  return kind + "_lm_head" + (is_torch ? ".pt" : ".safetensors");
}

template <typename T>
checkpoint::TorchTensor Named(const char* name, DType dtype, std::vector<T> values) {
  auto owner = std::make_shared<std::vector<T>>(std::move(values));
  const auto count = static_cast<int64_t>(owner->size());
  return {name, {reinterpret_cast<const uint8_t*>(owner->data()), dtype, {count}, owner}};
}

// EAGLE-3's map: d2t[j] + j is the token of row j, and t2d says of each token whether it has a row. vLLM's has the
// tokens themselves.
std::vector<checkpoint::TorchTensor> MapOf(const draft::HeadsInfo& info, const std::vector<int32_t>& draft_vocab,
                                           int64_t vocab_size) {
  if (!info.has_token_map) return {};
  if (IsVllm(info)) {
    return {Named("token_map", DType::kI64, std::vector<int64_t>(draft_vocab.begin(), draft_vocab.end()))};
  }
  std::vector<int64_t> offsets;
  std::vector<uint8_t> has_row(static_cast<size_t>(vocab_size));
  for (const int32_t token : draft_vocab) {
    offsets.push_back(token - static_cast<int64_t>(offsets.size()));
    has_row[static_cast<size_t>(token)] = 1;
  }
  return {Named("d2t", DType::kI64, std::move(offsets)), Named("t2d", DType::kBool, std::move(has_row))};
}

// Rows for all tokens in place of those of a pruned lm head, where the layout has no map: others are zeros under a bias
// that is never picked.
class AllRows {
 public:
  AllRows(const draft::HeadsInfo& info, const std::vector<int32_t>& tokens, int64_t vocab_size)
      : tokens_(tokens), vocab_size_(vocab_size) {
    for (int32_t head = 0; head < info.num_heads; ++head) {
      names_.push_back(draft::NameOf(info, draft::kLmHead, head, info.num_layers));
    }
  }

  TrainedTensor Of(const TrainedTensor& tensor) {
    const bool is_bias = tensor.name.ends_with(".bias");
    const std::string layer = tensor.name.substr(0, tensor.name.rfind('.'));
    if (std::ranges::find(names_, layer) == names_.end()) return tensor;
    const size_t width = is_bias ? 1 : static_cast<size_t>(tensor.shape[1]);
    std::vector<float>& all =
        rows_.emplace_back(static_cast<size_t>(vocab_size_) * width, is_bias ? draft::kPrunedBias : 0.0F);
    for (size_t i = 0; i < tokens_.size(); ++i) {
      std::copy_n(tensor.data + i * width, width, all.data() + static_cast<size_t>(tokens_[i]) * width);
    }
    TrainedTensor whole = tensor;
    whole.shape[0] = vocab_size_;
    whole.data = all.data();
    return whole;
  }

 private:
  const std::vector<int32_t>& tokens_;
  int64_t vocab_size_;
  std::vector<std::string> names_;
  std::list<std::vector<float>> rows_;
};

void WriteAsTorch(const std::string& path, std::span<const TrainedTensor> tensors, DType dtype,
                  const std::vector<checkpoint::TorchTensor>& more) {
  std::vector<checkpoint::TorchTensor> all;
  for (const TrainedTensor& tensor : tensors) {
    const TensorView view = ViewOf(tensor, dtype);
    all.push_back({tensor.name, view});
    for (const std::string& repeat : tensor.repeats) all.push_back({repeat, view});
  }
  all.insert(all.end(), more.begin(), more.end());
  checkpoint::WriteTorchZip(path, all);
}

// Repeats are names in the metadata, as safetensors.torch.save_model writes them, or tensors for a reader that knows no
// ties.
void WriteAsSafetensors(const std::string& path, std::span<const TrainedTensor> tensors, DType dtype, bool knows_ties,
                        const std::vector<checkpoint::TorchTensor>& more) {
  std::vector<checkpoint::TensorEntry> entries;
  std::map<std::string, std::string, std::less<>> metadata = {{"format", "pt"}};
  for (const TrainedTensor& tensor : tensors) {
    entries.push_back({tensor.name, dtype, tensor.shape});
    for (const std::string& repeat : tensor.repeats) {
      if (knows_ties) {
        metadata[repeat] = tensor.name;
      } else {
        entries.push_back({repeat, dtype, tensor.shape});
      }
    }
  }
  for (const checkpoint::TorchTensor& tensor : more)
    entries.push_back({tensor.name, tensor.view.dtype, tensor.view.shape});
  checkpoint::SafetensorsWriter writer(path, entries, metadata);
  for (const TrainedTensor& tensor : tensors) {
    const TensorView view = ViewOf(tensor, dtype);
    for (size_t times = knows_ties ? 1 : 1 + tensor.repeats.size(); times > 0; --times) {
      writer.Write(view.data, view.num_bytes());
    }
  }
  for (const checkpoint::TorchTensor& tensor : more) writer.Write(tensor.view.data, tensor.view.num_bytes());
  writer.Finish();
}

}  // namespace

std::string WriteHeads(const draft::HeadsInfo& info, const model::ModelConfig& base,
                       std::span<const TrainedTensor> tensors, const WriteHeadsOptions& options) {
  MakeFolder(options.folder);
  const bool is_torch = options.file == HeadFile::kTorch;
  std::string name = FileNameOf(info, is_torch);
  const std::string path = options.folder + "/" + name;
  const std::vector<checkpoint::TorchTensor> map = MapOf(info, options.draft_vocab, base.vocab_size);
  std::optional<AllRows> all_rows;
  if (!options.draft_vocab.empty() && !info.has_token_map) {
    all_rows.emplace(info, options.draft_vocab, base.vocab_size);
  }
  std::vector<TrainedTensor> whole;
  for (const TrainedTensor& tensor : tensors) whole.push_back(all_rows ? all_rows->Of(tensor) : tensor);
  if (is_torch) {
    WriteAsTorch(path, whole, options.dtype, map);
  } else {
    WriteAsSafetensors(path, whole, options.dtype, !IsVllm(info), map);
  }
  WriteText(options.folder + "/config.json", ConfigOf(info, base, options).dump(2) + "\n");
  for (const std::string& other : checkpoint::HeadFilesIn(options.folder)) {
    std::error_code error;
    if (other != name && !std::filesystem::remove(options.folder + "/" + other, error)) {
      throw FileError(options.folder + "/" + other, "of a former run cannot be removed: " + error.message());
    }
  }
  return name;
}

}  // namespace hydrant::train
