// SPDX-License-Identifier: Apache-2.0
#include "load/other_kinds.h"

#include <algorithm>
#include <array>
#include <filesystem>
#include <fstream>
#include <optional>
#include <string_view>
#include <vector>

#include "base/json.h"
#include "base/paths.h"
#include "base/placeholder.h"
#include "checkpoint/tensor_source.h"
#include "draft/heads/head_tensors.h"

namespace hydrant::load {
namespace {

namespace fs = std::filesystem;
using base::Json;

constexpr const char* kTakesFolders =
    "Hydrant reads Hugging Face folders, config.json with .safetensors or .bin weights: "
    "hf download ORG/NAME --local-dir DIR";
constexpr const char* kRunsHeads =
    "this version runs Medusa, Hydra, Hydra++, EAGLE, EAGLE-3 and ReDrafter heads and MLP speculators "
    "(docs/formats.md)";

// --- Files ---

bool IsGguf(const fs::path& file) {
  std::array<char, 4> magic{};
  std::ifstream(file, std::ios::binary).read(magic.data(), magic.size());
  const std::string_view found(magic.data(), magic.size());
  // llama.cpp's format, and what came before it (numbers, so their letters stand backwards).
  return found == "GGUF" || found == "tjgg" || found == "fmgg" || found == "lmgg";
}

void RefuseFile(const std::string& path, Role role) {
  if (IsGguf(path) || path.ends_with(".gguf"))
    throw FileError(path, "is a GGUF file, which is not read", kTakesFolders);
  if (role == Role::kEither) return;
  const std::string parent = fs::path(path).parent_path().string();
  throw FileError(path, "is a file, expected a folder",
                  "name the folder that holds it: " + (parent.empty() ? std::string(".") : parent));
}

// --- Folders, by their files ---

struct FolderFiles {
  std::vector<std::string> names;

  explicit FolderFiles(const std::string& folder) {
    constexpr size_t kMost = 10'000;
    std::error_code error;
    for (fs::directory_iterator it(folder, error), end; !error && it != end && names.size() < kMost;
         it.increment(error)) {
      names.push_back(it->path().filename().string());
    }
    std::sort(names.begin(), names.end());
  }
  bool Has(std::string_view name) const { return std::find(names.begin(), names.end(), name) != names.end(); }
  // The first name that ends so; empty: none.
  std::string Ending(std::string_view end) const {
    const auto found = std::find_if(names.begin(), names.end(), [&](const auto& name) { return name.ends_with(end); });
    return found == names.end() ? "" : *found;
  }
  bool HasWeights() const {
    return !Ending(".safetensors").empty() || !Ending(".bin").empty() || !Ending(".pt").empty() ||
           !Ending(".index.json").empty();
  }
  // Nothing, or only what git and the download tool leave behind.
  bool IsEmpty() const {
    return std::all_of(names.begin(), names.end(),
                       [](const std::string& name) { return name.starts_with(".") || name == "README.md"; });
  }
};

struct OtherFormat {
  std::string_view file, what;
};
constexpr std::array<OtherFormat, 10> kOtherFormats = {{{"consolidated.00.pth", "Meta's original checkpoint"},
                                                        {"consolidated.safetensors", "Mistral's original checkpoint"},
                                                        {"tf_model.h5", "TensorFlow weights"},
                                                        {"flax_model.msgpack", "Flax weights"},
                                                        {"openvino_model.xml", "an OpenVINO model"},
                                                        {"rank0.engine", "a TensorRT-LLM engine"},
                                                        {"model.onnx", "an ONNX model"},
                                                        {"weights.npz", "MLX weights"},
                                                        {"model.msgpack", "Flax weights"},
                                                        {"model.onnx_data", "an ONNX model"}}};

// A folder of Hugging Face's cache holds the model one or two levels below.
void RefuseCacheFolder(const std::string& folder) {
  const fs::path snapshots = fs::path(folder) / "snapshots";
  const fs::path within = base::IsFolder(snapshots) ? snapshots : fs::path(folder);
  std::error_code error;
  for (fs::directory_iterator it(within, error), end; !error && it != end; it.increment(error)) {
    if (!base::IsThere(it->path() / "config.json")) continue;
    throw FileError(folder, "holds folders, and the model is in one of them", "name that: " + it->path().string());
  }
}

void RefuseByFiles(const std::string& folder, const FolderFiles& files, Role role) {
  if (files.IsEmpty()) {
    throw FileError(folder, "is an empty folder",
                    "fetch " + std::string(role == Role::kHeads ? "heads" : "the model") +
                        ": hf download ORG/NAME --local-dir " + folder);
  }
  if (files.HasWeights() && !files.Has("consolidated.safetensors")) return;
  if (files.Has("model.safetensors") || files.Has("model.safetensors.index.json")) return;
  if (const std::string gguf = files.Ending(".gguf"); !gguf.empty()) {
    throw FileError(folder, "holds a GGUF file (" + gguf + "), which is not read", kTakesFolders);
  }
  for (const OtherFormat& format : kOtherFormats) {
    if (!files.Has(format.file)) continue;
    throw FileError(folder,
                    "holds " + std::string(format.what) + " (" + std::string(format.file) + "), which is not read",
                    kTakesFolders);
  }
  const bool has_tokenizer = files.Has("tokenizer.json") || files.Has("tokenizer.model");
  if (!files.Has("config.json") && !has_tokenizer) RefuseCacheFolder(folder);
}

// --- Folders, by their configs and the names of their tensors ---

// Text of a key, "" for none; never throws.
std::string TextOf(const Json& config, const char* key) {
  const auto found = config.find(key);
  return found != config.end() && found->is_string() ? found->get<std::string>() : std::string();
}

Json ReadObject(const std::string& file) {
  try {
    Json json = base::IsThere(file) ? base::ReadJsonFile(file) : Json::object();
    return json.is_object() ? json : Json::object();
  } catch (const UserError&) {
    return Json::object();  // its reader says what is wrong
  }
}

struct Contents {
  Json config;
  std::vector<std::string> tensors;  // names; empty where they cannot be read

  explicit Contents(const std::string& folder) : config(ReadObject(folder + "/config.json")) {
    try {
      tensors = checkpoint::OpenHeadsFolder(folder)->Names();
    } catch (const UserError&) {
      tensors.clear();
    }
  }
  bool Any(std::string_view begin) const {
    return std::any_of(tensors.begin(), tensors.end(), [&](const auto& name) { return name.starts_with(begin); });
  }
  bool Has(std::string_view name) const { return std::find(tensors.begin(), tensors.end(), name) != tensors.end(); }
};

std::string Architectures(const Json& config) {
  const auto found = config.find("architectures");
  return found == config.end() ? std::string() : base::DumpJson(*found);
}

bool Contains(std::string_view text, std::string_view part) { return text.find(part) != std::string_view::npos; }

// Heads that are known and not run, or nothing. EAGLE heads under names that this version does not read are among them.
std::optional<std::string> OtherHeads(const Contents& c) {
  const std::string type = TextOf(c.config, "model_type"), architectures = Architectures(c.config);
  const std::string speculators = TextOf(c.config, "speculators_model_type");
  // EAGLE heads that are run, whole or damaged, and Hydra's eagle-attn: their own readers say what is wrong.
  const bool is_read = c.tensors.empty() || c.Any("midlayer.") || c.Any("layers.0.") || c.Has("fusion_fc.weight") ||
                       c.Any("attn.self_attn.") || c.config.contains("hydra_head_arch");
  if (!is_read && (c.config.contains("speculators_config") || !speculators.empty())) {
    const bool eagle = speculators.empty() || speculators.starts_with("eagle");
    const bool third = speculators == "eagle3" || c.config.contains("draft_vocab_size") || c.Has("d2t");
    return (third   ? "EAGLE-3 heads"
            : eagle ? "EAGLE heads"
                    : "heads of type " + speculators) +
           std::string(" in the layout of the speculators library");
  }
  const bool eagle = !is_read && (c.Has("fc.weight") || Contains(architectures, "Eagle") || type.starts_with("eagle"));
  if (eagle && (c.Has("d2t") || Contains(architectures, "Eagle3") || type == "eagle3")) return "EAGLE-3 heads";
  if (eagle) return "EAGLE heads";
  // Of a checkpoint for TensorRT-LLM. Apple's own files are run.
  if (c.Any("drafter.rnn_") || c.Any("drafter.layers.")) return "ReDrafter heads in the layout of TensorRT-LLM";
  return std::nullopt;
}

bool HoldsRunnableHeads(const std::string& folder) {
  try {
    return draft::HoldsHeads(folder);
  } catch (const UserError&) {
    return false;
  }
}

void RefuseAdapter(const std::string& folder, bool has_heads) {
  const std::string file = folder + "/adapter_config.json";
  if (has_heads || !base::IsThere(file)) return;
  const std::string of = TextOf(ReadObject(file), "base_model_name_or_path");
  throw FileError(folder, "is a PEFT adapter (LoRA)" + (of.empty() ? "" : " of " + of) + ", not a whole model",
                  "merge it into its base (peft: merge_and_unload, then save_pretrained), and name the merged folder");
}

void RefuseHeadsAsBase(const std::string& folder, const Contents& c) {
  if (c.Any("model.")) return;  // a whole model with heads
  const char* const kind = c.config.contains("hydra_head_arch")                        ? "Hydra"
                           : c.config.contains("exit_dim")                             ? "ReDrafter"
                           : c.Has("fc.weight")                                        ? "EAGLE"
                           : c.Has("speculator.emb.0.weight") || c.Has("emb.0.weight") ? "MLP speculator"
                                                                                       : "Medusa";
  const std::string of = TextOf(c.config, "base_model_name_or_path");
  throw FileError(folder, std::string("holds ") + kind + " heads, expected a base model",
                  "name it with EngineOptions::draft, and its base" + (of.empty() ? "" : " (" + of + ")") +
                      " with EngineOptions::model");
}

void RefuseBaseAsHeads(const std::string& folder, const Contents& c) {
  const auto layers = c.config.find("num_hidden_layers");
  if (layers == c.config.end() || !(c.Any("model.layers.") || c.Has("model.embed_tokens.weight"))) return;
  throw FileError(
      folder,
      "is a base model (" + TextOf(c.config, "model_type") + ", " + base::DumpJson(*layers) +
          " layers), expected draft heads",
      "name it with EngineOptions::model; EngineOptions::draft takes heads, or a draft model that has the same tokens");
}

void RefuseFolder(const std::string& folder, Role role) {
  RefuseByFiles(folder, FolderFiles(folder), role);
  const Contents contents(folder);
  if (const auto other = OtherHeads(contents)) {
    throw FileError(folder, "holds " + *other + ", which are not run", kRunsHeads);
  }
  const bool has_heads = HoldsRunnableHeads(folder);
  RefuseAdapter(folder, has_heads);
  if (role == Role::kBase && has_heads) RefuseHeadsAsBase(folder, contents);
  if (role == Role::kHeads && !has_heads) RefuseBaseAsHeads(folder, contents);
}

}  // namespace

void RefuseOtherKind(const std::string& path, Role role) {
  std::error_code error;
  if (base::IsFolder(path)) {
    RefuseFolder(path, role);
  } else if (fs::is_regular_file(path, error)) {
    RefuseFile(path, role);
  } else if (!base::IsThere(path)) {
    const char* what = role == Role::kEither ? "there is no such file or folder" : "there is no such folder";
    throw FileError(path, what, base::MissingPathHint(path));
  }
}

}  // namespace hydrant::load
