// SPDX-License-Identifier: Apache-2.0
#include "convert/respell.h"

#include <algorithm>
#include <array>
#include <chrono>
#include <filesystem>
#include <map>
#include <memory>
#include <tuple>
#include <utility>

#include "base/atomic_file.h"
#include "base/json.h"
#include "base/mapped_file.h"
#include "base/output_folder.h"
#include "checkpoint/content_hash.h"
#include "checkpoint/head_names.h"
#include "checkpoint/rank_files.h"
#include "checkpoint/safetensors_writer.h"
#include "checkpoint/torch_zip_writer.h"
#include "convert/copied_files.h"
#include "convert/respelled_config.h"
#include "convert/respelled_tensors.h"
#include "draft/heads/base_copies.h"
#include "hydrant/error.h"
#include "load/other_kinds.h"

namespace hydrant::convert {
namespace {

enum class Container : uint8_t {
  kTorch,       // one PyTorch zip file; tied tensors share a storage
  kTiedFile,    // one safetensors file; further names of a tied tensor stand in its metadata
  kPlainFile,   // one safetensors file with every name: for readers that do not know such metadata
  kPlainRanks,  // one such file for each rank
};

// One layout as files.
struct Format {
  std::string_view name;
  std::string_view spelling;  // HeadLayout::spelling; empty: the kind's first
  Container container;
  std::string_view file;  // empty: the kind's own name
};

constexpr std::array<Format, 6> kFormats = {{
    {"medusa-a", "medusa-a", Container::kTorch, "medusa_lm_head.pt"},
    {"medusa-b", "medusa-b", Container::kPlainFile, "model.safetensors"},
    {"vllm", "vllm", Container::kPlainFile, "model.safetensors"},
    {"tensorrt-llm", draft::kRankSpelling, Container::kPlainRanks, ""},
    {"hydra", "hydra", Container::kTorch, "hydra_lm_head.pt"},
    {"safetensors", "", Container::kTiedFile, ""},
}};

constexpr auto kNames = [] {
  std::array<std::string_view, kFormats.size()> names;
  for (size_t i = 0; i < names.size(); ++i) names[i] = kFormats[i].name;
  return names;
}();

constexpr int64_t kMostRanks = 64;

const Format& FormatOf(const RespellOptions& options) {
  for (const Format& format : kFormats) {
    if (format.name == options.layout) return format;
  }
  throw UserError("RespellOptions::layout is '" + options.layout + "'", "such as RespellOptions::layout medusa-a");
}

void CheckOptions(const RespellOptions& options, const Format& format) {
  if (options.tp < 1 || options.tp > kMostRanks) {
    throw UserError("RespellOptions::tp is " + std::to_string(options.tp) + ", expected 1 to " +
                    std::to_string(kMostRanks));
  }
  if (options.tp > 1 && format.container != Container::kPlainRanks) {
    throw UserError("RespellOptions::tp is for layout tensorrt-llm, and the layout is " + options.layout,
                    "leave it out: other layouts hold whole tensors");
  }
  if (format.name == "medusa-b" && options.model.empty()) {
    throw UserError("layout medusa-b is a whole model with its heads",
                    "name the base with RespellOptions::model, or take layout medusa-a, which is the heads alone");
  }
}

void Look(const RespellOptions& options, double share) {
  if (options.progress) options.progress(share);
  if (options.stop != nullptr && *options.stop) throw Stopped();
}

// --- Reading ---

struct Read {
  std::unique_ptr<draft::HeadWeights> heads;
  model::ModelWeights base;
  std::unique_ptr<checkpoint::TensorSource> base_tensors;  // null: no base is written
  RespelledHeads respelled;
};

// Kinds that no tool spells anew keep their names and their config.
bool KeepsNames(const draft::HeadsInfo& info) { return info.kind->layouts.front().spelling == nullptr; }

// The spelling that the layout has of such heads; null: none.
const draft::HeadLayout* RowsIn(const draft::HeadsInfo& info, const Format& format) {
  if (!format.spelling.empty()) return draft::Respelled(*info.kind, *info.rows, format.spelling);
  if (KeepsNames(info)) return info.rows;
  return draft::Respelled(*info.kind, *info.rows, info.kind->layouts.front().spelling);
}

const draft::HeadLayout& RowsFor(const draft::HeadsInfo& info, const Format& format) {
  if (const draft::HeadLayout* rows = RowsIn(info, format)) return *rows;
  std::string others;
  for (const Format& other : kFormats) {
    if (RowsIn(info, other) != nullptr) others += (others.empty() ? "" : ", ") + std::string(other.name);
  }
  throw FileError(
      info.weights_file, "holds " + info.name + " heads, which layout " + std::string(format.name) + " cannot hold",
      (others.find(',') == std::string::npos ? "the layout of such heads: " : "layouts of such heads: ") + others);
}

void ReadAll(const RespellOptions& options, const Format& format, Read& read) {
  draft::HeadsFile file = load::ReadAs(load::Role::kHeads, options.in, [&] { return draft::OpenHeads(options.in); });
  const Respelling to{.layout = options.layout, .rows = &RowsFor(file.info, format), .file = file.info.weights_file};
  if (options.model.empty()) {
    read.base = BaseBySizes(file);
  } else {
    read.base = load::ReadAs(load::Role::kBase, options.model, [&] { return model::LoadModelWeights(options.model); });
    draft::CheckBaseOf(file, read.base);
  }
  read.heads = draft::LoadHeads(std::move(file), read.base);
  read.respelled = Respell(*read.heads, read.base, to);
  if (format.name != "medusa-b") return;
  read.base_tensors = checkpoint::OpenModelFolder(options.model);
  for (const auto& [name, tensor] : read.base_tensors->tensors()) {
    if (checkpoint::IsHeadTensor(name)) continue;
    if (tensor.packed) {
      throw FileError(tensor.file, "tensor '" + name + "' is packed, expected floats for layout medusa-b",
                      "name the folder that it was converted from");
    }
    read.respelled.tensors.push_back({name, tensor.view});
  }
}

// --- Writing ---

using SameView = std::tuple<const uint8_t*, DType, std::vector<int64_t>>;

// Writes the tensors, or their parts, into one safetensors file.
void WriteFile(const std::string& path, const std::vector<const RespelledTensor*>& tensors,
               const checkpoint::Part& part, const std::map<std::string, std::string, std::less<>>& metadata,
               const RespellOptions& options) {
  std::vector<checkpoint::TensorEntry> entries;
  for (const RespelledTensor* tensor : tensors) {
    entries.push_back({tensor->name, tensor->view.dtype,
                       checkpoint::PartShape(tensor->view.shape, tensor->axis, part.count).value()});
  }
  checkpoint::SafetensorsWriter writer(path, entries, metadata);
  const std::vector<uint8_t> zeros(size_t{1} << 16);
  double done = 0;
  for (const RespelledTensor* tensor : tensors) {
    Look(options, done++ / static_cast<double>(tensors.size()));
    checkpoint::ForEachPiece(tensor->view, tensor->axis, part, [&](const uint8_t* bytes, size_t size) {
      if (bytes != nullptr) return writer.Write(bytes, size);
      for (; size > 0; size -= std::min(size, zeros.size())) writer.Write(zeros.data(), std::min(size, zeros.size()));
    });
  }
  writer.Finish();
}

void WriteTied(const std::string& path, const RespelledHeads& heads, const RespellOptions& options) {
  std::map<SameView, std::string> stored;
  std::vector<const RespelledTensor*> tensors;
  std::map<std::string, std::string, std::less<>> metadata = {{"format", "pt"}};
  for (const RespelledTensor& tensor : heads.tensors) {
    const auto [first, is_new] =
        stored.try_emplace({tensor.view.data, tensor.view.dtype, tensor.view.shape}, tensor.name);
    if (is_new) {
      tensors.push_back(&tensor);
    } else {
      metadata[tensor.name] = first->second;
    }
  }
  WriteFile(path, tensors, {}, metadata, options);
}

void WriteTorch(const std::string& path, const RespelledHeads& heads, const RespellOptions& options) {
  std::vector<checkpoint::TorchTensor> tensors;
  for (const RespelledTensor& tensor : heads.tensors) tensors.push_back({tensor.name, tensor.view});
  checkpoint::WriteTorchZip(path, tensors, {.look = [&options] { Look(options, 0); }});
}

// Every tensor can be cut into equal parts.
void CheckParts(const Read& read, int64_t tp) {
  for (const RespelledTensor& tensor : read.respelled.tensors) {
    if (checkpoint::PartShape(tensor.view.shape, tensor.axis, tp)) continue;
    const bool by_inputs = tensor.axis == checkpoint::ShardAxis::kInputs;
    throw FileError(read.heads->info.weights_file,
                    "tensor '" + tensor.name + "' is " + ShapeString(tensor.view.shape) + ", expected " +
                        (by_inputs ? "inputs" : "rows") + " that " + std::to_string(tp) + " ranks share evenly",
                    "choose a RespellOptions::tp that divides them");
  }
}

std::string FileName(const Format& format, const draft::HeadsInfo& info) {
  if (!format.file.empty()) return std::string(format.file);
  return KeepsNames(info) ? "model.safetensors" : std::string(info.kind->name) + "_lm_head.safetensors";
}

// The names of the files that it writes.
std::vector<std::string> WriteWeights(const Read& read, const Format& format, const RespellOptions& options,
                                      const std::string& folder) {
  const RespelledHeads& heads = read.respelled;
  const std::string name = FileName(format, heads.info), path = folder + "/" + name;
  std::vector<const RespelledTensor*> all;
  for (const RespelledTensor& tensor : heads.tensors) all.push_back(&tensor);
  switch (format.container) {
    case Container::kTorch: WriteTorch(path, heads, options); return {name};
    case Container::kTiedFile: WriteTied(path, heads, options); return {name};
    case Container::kPlainFile: WriteFile(path, all, {}, {{"format", "pt"}}, options); return {name};
    case Container::kPlainRanks: break;
  }
  std::vector<std::string> names;
  for (int64_t rank = 0; rank < options.tp; ++rank) {
    names.push_back(checkpoint::RankFileName(rank));
    WriteFile(folder + "/" + names.back(), all, {.rank = rank, .count = options.tp}, {{"format", "pt"}}, options);
  }
  return names;
}

void WriteJson(const std::string& path, const base::Json& json) {
  const std::string text = json.dump(2, ' ', false, base::Json::error_handler_t::replace) + "\n";
  base::AtomicFile output(path);
  output.Write(text.data(), text.size());
  output.Keep();
}

void WriteConfigs(const Read& read, const RespellOptions& options, const RespellReport& report,
                  const std::string& folder) {
  const ConfigFacts facts{.heads = &read.respelled,
                          .sizes = &read.base.config,
                          .source_file = read.heads->info.config_file,
                          .model_file = options.model.empty() ? "" : read.base.config.file,
                          .tp = options.tp};
  if (KeepsNames(read.heads->info)) {
    CopyFiles({{"config.json"}}, options.in, folder);
  } else {
    WriteJson(folder + "/config.json", ConfigOf(options.layout, facts));
  }
  WriteJson(folder + "/" + base::OutputFolder::kMark, {{"layout", options.layout},
                                                       {"weights_files", report.weights_files},
                                                       {"source", LastName(options.in)},
                                                       {"source_hash", report.source_hash}});
}

void CopyOthers(const Read& read, const RespellOptions& options, const std::string& folder) {
  CopyFiles(HeadFiles(), options.in, folder);
  if (read.base_tensors == nullptr) return;
  for (const char* name : ModelFiles()) {
    if (!std::filesystem::exists(folder + "/" + name)) CopyFiles({{name}}, options.model, folder);
  }
}

}  // namespace

std::span<const std::string_view> HeadLayoutNames() { return kNames; }

RespellReport RespellHeads(const RespellOptions& options) {
  const auto start = std::chrono::steady_clock::now();
  const Format& format = FormatOf(options);
  CheckOptions(options, format);
  load::RefuseOtherKind(options.in, load::Role::kEither);
  base::OutputFolder folder(options.out, options.replace, {options.in, options.model});
  for (const base::Leftover& leftover : folder.removed()) {
    if (options.on_removed) options.on_removed(leftover);
  }
  Read read;
  ReadAll(options, format, read);
  CheckParts(read, options.tp);

  RespellReport report;
  report.drafter = read.heads->info.name;
  report.source_hash = checkpoint::HashOfFiles(read.heads->tensors->files(), [&options] { Look(options, 0); });
  report.weights_files = WriteWeights(read, format, options, folder.path());
  CopyOthers(read, options, folder.path());
  WriteConfigs(read, options, report, folder.path());
  folder.Keep();

  report.num_tensors = static_cast<int64_t>(read.respelled.tensors.size());
  for (const RespelledTensor& tensor : read.respelled.tensors) report.bytes += tensor.view.num_bytes();
  report.left_out = std::move(read.respelled.left_out);
  report.warnings = read.heads->info.warnings;
  report.warnings.insert(report.warnings.end(), read.respelled.warnings.begin(), read.respelled.warnings.end());
  const bool is_ported = read.heads->info.name == "hydra++" && options.tp == 1;
  if (options.layout == "tensorrt-llm" && read.heads->info.kind->name == std::string_view("hydra") && !is_ported) {
    report.warnings.push_back(
        "no TensorRT-LLM is known to load these files: its port of Hydra takes Hydra++ heads of one rank; Hydrant "
        "reads them back");
  }
  report.seconds = std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
  return report;
}

}  // namespace hydrant::convert
