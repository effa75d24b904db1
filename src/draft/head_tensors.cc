// SPDX-License-Identifier: Apache-2.0
#include "draft/head_tensors.h"

#include <algorithm>
#include <array>
#include <cstring>
#include <optional>
#include <set>
#include <string_view>

#include "base/json.h"
#include "base/paths.h"
#include "checkpoint/head_names.h"
#include "hydrant/error.h"
#include "model/contradictions.h"

namespace hydrant::draft {
namespace {

constexpr int32_t kMaxHeads = 64;
constexpr int32_t kMaxLayers = 64;

// Matches `name` against `pattern`, in which each '#' stands for a number; returns the numbers.
std::optional<std::vector<int32_t>> Match(std::string_view name, std::string_view pattern) {
  std::vector<int32_t> numbers;
  size_t n = 0;
  for (const char c : pattern) {
    if (c != '#') {
      if (n >= name.size() || name[n] != c) return std::nullopt;
      ++n;
      continue;
    }
    const size_t begin = n;
    int32_t value = 0;
    while (n < name.size() && name[n] >= '0' && name[n] <= '9' && n - begin < 5) value = value * 10 + (name[n++] - '0');
    if (n == begin) return std::nullopt;
    numbers.push_back(value);
  }
  if (n != name.size()) return std::nullopt;
  return numbers;
}

std::string Fill(std::string_view pattern, int32_t first, int32_t second = 0) {
  std::string text;
  bool is_first = true;
  for (const char c : pattern) {
    if (c != '#') {
      text += c;
    } else {
      text += std::to_string(is_first ? first : second);
      is_first = false;
    }
  }
  return text;
}

// How one tool spells Medusa heads (docs/formats.md). '#' = head, then layer. `lm_head` carries the number of layers as
// its second number where it has one.
struct MedusaSpelling {
  const char* layout;
  const char* block;
  const char* lm_head;
  const char* shared_lm_head;  // null: none
  const char* token_map;       // null: none
  bool bias_optional;
};

constexpr std::array<MedusaSpelling, 6> kMedusaSpellings{{
    {"a", "#.#.linear", "#.#", nullptr, nullptr, false},
    {"b", "medusa_head.#.#.linear", "medusa_head.#.#", nullptr, nullptr, false},
    {"d", "blocks.#.layers.#", "lm_heads.#", "lm_head", "token_map", true},
    {"d", "medusa_heads.blocks.#.layers.#", "medusa_heads.lm_heads.#", "medusa_heads.lm_head", "medusa_heads.token_map",
     true},
    {"e", "medusa_heads.#.medusa_layers.#.linear", "medusa_heads.#.lm_head", nullptr, nullptr, false},
    {"f", "base_model.model.medusa_head.#.#.linear", "base_model.model.medusa_head.#.#", nullptr, nullptr, false},
}};

// Hydra's two spellings: Dropout takes the even places of prefix-mlp's Sequential.
struct HydraSpelling {
  HeadKind kind;
  const char* arch;
  const char* block;  // '#' = head, index in the Sequential
  const char* lm_head;
  int32_t first_index, index_step;
};

constexpr std::array<HydraSpelling, 2> kHydraSpellings{{
    {HeadKind::kHydraMlp, "mlp", "hydra_mlp.#.#.linear", "hydra_lm_head.#", 0, 1},
    {HeadKind::kHydraPrefixMlp, "prefix-mlp", "hydra_mlp.#.#.linear", "hydra_lm_head.#.1", 1, 2},
}};

struct Counts {
  int32_t heads = 0;
  int32_t max_layer = -1;      // largest layer number of a block
  int32_t lm_head_layer = -1;  // second number of the lm heads, -1 when they have none
  bool has_lm_head = false;
};

Counts Count(const checkpoint::TensorSource& tensors, const std::string& block, const std::string& lm_head) {
  Counts counts;
  for (const auto& [name, tensor] : tensors.tensors()) {
    if (const auto numbers = Match(name, block + ".weight")) {
      counts.heads = std::max(counts.heads, (*numbers)[0] + 1);
      counts.max_layer = std::max(counts.max_layer, (*numbers)[1]);
    } else if (const auto lm = Match(name, lm_head + ".weight")) {
      counts.heads = std::max(counts.heads, (*lm)[0] + 1);
      counts.has_lm_head = true;
      if (lm->size() > 1) counts.lm_head_layer = std::max(counts.lm_head_layer, (*lm)[1]);
    }
  }
  return counts;
}

void CheckCounts(const HeadsInfo& info) {
  if (info.num_heads < 1 || info.num_heads > kMaxHeads || info.num_layers < 0 || info.num_layers > kMaxLayers) {
    throw FileError(info.weights_file, "names " + std::to_string(info.num_heads) + " heads of " +
                                           std::to_string(info.num_layers) + " layers; at most " +
                                           std::to_string(kMaxHeads) + " heads of " + std::to_string(kMaxLayers) +
                                           " layers are run");
  }
}

// A count in the config that differs from the keys is worth a word, not a refusal: released configs are wrong
// (docs/formats.md: they say 2 heads where the file has 4).
void WarnIfDifferent(const base::JsonView& config, const char* key, int64_t found, HeadsInfo& info) {
  if (!config.Has(key)) return;
  const int64_t stated = config.At(key).Int(0, 1 << 20);
  if (stated == found) return;
  info.warnings.push_back(info.config_file + ": '" + key + "' is " + std::to_string(stated) + ", but " +
                          info.weights_file + " holds " + std::to_string(found) + "; the weights are right");
}

bool ResolveMedusa(const checkpoint::TensorSource& tensors, const std::optional<base::JsonView>& config,
                   HeadsFile& file) {
  for (const MedusaSpelling& spelling : kMedusaSpellings) {
    const Counts counts = Count(tensors, spelling.block, spelling.lm_head);
    if (counts.heads == 0 || counts.max_layer < 0) continue;
    HeadsInfo& info = file.info;
    info.kind = HeadKind::kMedusa;
    info.name = "medusa";
    info.layout = spelling.layout;
    info.num_heads = counts.heads;
    // With deduplicated files a tied block's names are missing, but the lm head keeps its place in the Sequential.
    info.num_layers = counts.lm_head_layer >= 0 ? counts.lm_head_layer : counts.max_layer + 1;
    info.own_lm_heads = counts.has_lm_head;
    info.shared_lm_head = !counts.has_lm_head && spelling.shared_lm_head != nullptr &&
                          tensors.Find(std::string(spelling.shared_lm_head) + ".weight") != nullptr;
    if (info.layout == "a" && !counts.has_lm_head) info.layout = "c";
    info.block_bias = !spelling.bias_optional || tensors.Find(Fill(spelling.block, 0, 0) + ".bias") != nullptr;
    info.has_token_map = spelling.token_map != nullptr && tensors.Find(spelling.token_map) != nullptr;
    if (config) {
      for (const char* key : {"medusa_num_heads", "num_medusa_heads"}) {
        WarnIfDifferent(*config, key, info.num_heads, info);
      }
      for (const char* key : {"medusa_num_layers", "num_medusa_layers"}) {
        WarnIfDifferent(*config, key, info.num_layers, info);
      }
    }
    const int32_t layers = info.num_layers;
    file.names.block = [&spelling](int32_t head, int32_t layer) { return Fill(spelling.block, head, layer); };
    const bool shared = info.shared_lm_head;
    file.names.lm_head = [&spelling, layers, shared](int32_t head) {
      return shared ? std::string(spelling.shared_lm_head) : Fill(spelling.lm_head, head, layers);
    };
    if (info.has_token_map) file.names.token_map = spelling.token_map;
    CheckCounts(info);
    return true;
  }
  return false;
}

// Layers by the keys. A safetensors file without the tied names (and without metadata that says so) holds the input
// block and one more; then the config's count stands, since released trainers repeat that one block (docs/formats.md).
int32_t HydraLayers(const HydraSpelling& spelling, const Counts& counts, const base::JsonView& config,
                    HeadsInfo& info) {
  const int32_t by_keys = (counts.max_layer - spelling.first_index) / spelling.index_step + 1;
  const bool drops_tied_names = info.weights_file.ends_with(".safetensors");
  if (config.Has("hydra_num_layers")) {
    const auto stated = static_cast<int32_t>(config.At("hydra_num_layers").Int(1, kMaxLayers));
    if (drops_tied_names && by_keys == 2 && stated > 2) return stated;
    WarnIfDifferent(config, "hydra_num_layers", by_keys, info);
  }
  return by_keys;
}

const HydraSpelling& HydraSpellingOf(const base::JsonView& config) {
  const base::JsonView arch = config.At("hydra_head_arch");
  const std::string name = arch.String();
  for (const HydraSpelling& spelling : kHydraSpellings) {
    if (name == spelling.arch) return spelling;
  }
  arch.Fail("\"mlp\" or \"prefix-mlp\"", name == "cross-attn" || name == "eagle-attn"
                                             ? "hydra_head_arch " + name + " is known but not run by this version"
                                             : "this version does not know heads of this architecture");
}

void ReadHydraExtension(const base::JsonView& config, HeadsInfo& info) {
  if (!config.Has("hydra_ext")) return;
  const base::JsonView ext = config.At("hydra_ext");
  if (!ext.is_object()) ext.Fail("an object");
  // Options that change the mathematics belong to an architecture of their own; prefix-mlp takes these two.
  const std::set<std::string, std::less<>> neutral{"version", "base_bits", "template_hash", "vocab_hash"};
  for (const auto& [key, value] : ext.raw().items()) {
    if (key == "rope_theta") {
      info.rope_theta = ext.At(key).Number();
      if (info.rope_theta < 1) ext.At(key).Fail("a number of at least 1");
    } else if (key == "num_key_value_heads") {
      info.num_kv_heads = ext.At(key).Int(1, 1 << 20);
    } else if (!neutral.contains(key)) {
      ext.At(key).Fail(
          "to be absent (this version runs published Hydra++ heads with 'rope_theta' and "
          "'num_key_value_heads' only)");
    }
  }
}

// What the config says, or whether the first head's input block has a residual connection.
bool IsSequentiallyDependent(const checkpoint::TensorSource& tensors, const HydraSpelling& spelling,
                             const base::JsonView& config) {
  const std::string residual = Fill("hydra_mlp.#.#.res_connection.weight", 0, spelling.first_index);
  const bool dependent =
      config.Has("grounded_heads") ? config.At("grounded_heads").Bool() : tensors.Find(residual) != nullptr;
  if (spelling.kind == HeadKind::kHydraPrefixMlp && !dependent) {
    config.At("grounded_heads")
        .Fail("true (ungrounded prefix-mlp heads are not supported by their authors' code either)");
  }
  return dependent;
}

bool ResolveHydra(const checkpoint::TensorSource& tensors, const std::optional<base::JsonView>& config,
                  HeadsFile& file) {
  const bool has_keys = std::any_of(tensors.tensors().begin(), tensors.tensors().end(),
                                    [](const auto& entry) { return entry.first.starts_with("hydra_mlp."); });
  const bool has_arch = config && config->Has("hydra_head_arch");
  if (!has_keys && !has_arch) return false;
  HeadsInfo& info = file.info;
  if (!has_arch) {
    throw FileError(info.weights_file,
                    "holds Hydra heads, but there is no config.json with 'hydra_head_arch' beside it",
                    "put the config.json that was published with the heads into the same folder");
  }
  const HydraSpelling& spelling = HydraSpellingOf(*config);
  const Counts counts = Count(tensors, spelling.block, spelling.lm_head);
  info.kind = spelling.kind;
  info.layout = spelling.arch;
  info.name = spelling.kind == HeadKind::kHydraPrefixMlp ? "hydra++" : "hydra";
  info.num_heads = counts.heads;
  if (counts.heads == 0 || counts.max_layer < spelling.first_index) {
    throw FileError(info.weights_file, "holds no tensor '" + Fill(spelling.block, 0, spelling.first_index) +
                                           ".weight', which " + info.config_file + " ('hydra_head_arch': \"" +
                                           spelling.arch + "\") calls for");
  }
  info.num_layers = HydraLayers(spelling, counts, *config, info);
  info.lm_head_bias = true;
  WarnIfDifferent(*config, "hydra_num_heads", info.num_heads, info);
  info.sequentially_dependent = IsSequentiallyDependent(tensors, spelling, *config);
  if (config->Has("hidden_state_offset")) {
    info.hidden_layer_offset = config->At("hidden_state_offset").Int(0, 4096);
  }
  ReadHydraExtension(*config, info);
  file.names.block = [&spelling](int32_t head, int32_t layer) {
    return Fill(spelling.block, head, spelling.first_index + layer * spelling.index_step);
  };
  file.names.lm_head = [&spelling](int32_t head) { return Fill(spelling.lm_head, head); };
  CheckCounts(info);
  return true;
}

// Whether the blocks after the first (Medusa) or after the input block (Hydra) of head 0 are one block: absent names,
// one storage, or equal bytes.
bool BlocksAreTied(const HeadsFile& file) {
  const int32_t first = file.info.sequentially_dependent ? 1 : 0;
  if (file.info.num_layers < first + 2) return false;
  const checkpoint::StoredTensor* reference = file.tensors->Find(file.names.block(0, first) + ".weight");
  if (reference == nullptr) return false;
  for (int32_t layer = first + 1; layer < file.info.num_layers; ++layer) {
    const checkpoint::StoredTensor* block = file.tensors->Find(file.names.block(0, layer) + ".weight");
    if (block == nullptr || block->storage_id == reference->storage_id) continue;
    if (block->packed) return false;  // converted files name what is tied
    if (block->view.dtype != reference->view.dtype || block->view.shape != reference->view.shape) return false;
    if (std::memcmp(block->view.data, reference->view.data, block->view.num_bytes()) != 0) return false;
  }
  return true;
}

// The prefix layer's own table, by its length: the heads' config says nothing of head sizes.
void WarnOfRotaryTable(HeadsFile& file) {
  const std::string prefix = "prefix_embeding_layer.";  // the authors' spelling
  const auto* table = file.tensors->Find(prefix + "layers.0.self_attn.rotary_emb.inv_freq");
  if (table == nullptr) return;
  const model::RopeConfig rope{.theta = file.info.rope_theta};
  const std::string says =
      "rope base " + base::DumpJson(file.info.rope_theta) + " ('hydra_ext.rope_theta', else 10000)";
  const std::string text = model::RotaryWarning(*file.tensors, prefix, rope, 2 * table->view.num_elements(), says);
  if (!text.empty()) file.info.warnings.push_back(text);
}

std::string ConfigPath(const std::string& folder) {
  const std::string path = folder + "/config.json";
  return base::IsThere(path) ? path : std::string();
}

}  // namespace

HeadsFile OpenHeads(const std::string& folder) {
  HeadsFile file;
  file.info.config_file = ConfigPath(folder);
  base::Json config;
  std::optional<base::JsonView> view;
  if (!file.info.config_file.empty()) {
    config = base::ReadJsonFile(file.info.config_file);
    view.emplace(config, file.info.config_file);
    if (view->Has("hydra_head_arch")) HydraSpellingOf(*view);  // refuse an unknown architecture before its weights
    if (view->Has("base_model_name_or_path")) file.info.base_model = view->At("base_model_name_or_path").String();
  }
  file.tensors = checkpoint::OpenHeadsFolder(folder);
  file.info.weights_file = file.tensors->display_name();
  checkpoint::RefuseNonZeroLora(*file.tensors);
  if (!ResolveHydra(*file.tensors, view, file) && !ResolveMedusa(*file.tensors, view, file)) {
    throw FileError(
        file.info.weights_file, "holds no Medusa or Hydra heads",
        "--draft takes a folder with hydra_lm_head.pt, medusa_lm_head.pt or one of the layouts of docs/formats.md");
  }
  file.info.tied_blocks = BlocksAreTied(file);
  WarnOfRotaryTable(file);
  return file;
}

bool HoldsHeads(const std::string& folder) {
  const std::string config_file = ConfigPath(folder);
  if (!config_file.empty()) {
    const base::Json config = base::ReadJsonFile(config_file);
    if (config.is_object() && config.contains("hydra_head_arch")) return true;
  }
  const auto tensors = checkpoint::OpenHeadsFolder(folder);
  HeadsFile file;
  file.info.weights_file = tensors->display_name();
  return ResolveMedusa(*tensors, std::nullopt, file);
}

}  // namespace hydrant::draft
