// SPDX-License-Identifier: Apache-2.0
#include "convert/convert.h"

#include <algorithm>
#include <chrono>
#include <filesystem>
#include <fstream>
#include <map>
#include <memory>
#include <utility>
#include <vector>

#include "base/atomic_file.h"
#include "base/json.h"
#include "base/mapped_file.h"
#include "base/output_folder.h"
#include "base/thread_pool.h"
#include "checkpoint/content_hash.h"
#include "checkpoint/packed_tensors.h"
#include "checkpoint/safetensors_writer.h"
#include "convert/copied_files.h"
#include "draft/heads/base_copies.h"
#include "draft/heads/head_kind.h"
#include "hydrant/error.h"
#include "kernels/kernels.h"
#include "load/folder_kind.h"
#include "load/other_kinds.h"
#include "model/linear_packer.h"
#include "model/weights.h"
#include "quant/dictionary.h"
#include "quant/pack.h"

namespace hydrant::convert {
namespace {

namespace fs = std::filesystem;
using checkpoint::StoredTensor;
using quant::WeightFormat;

// Data begin here in the file, and panels follow each other in whole lines.
constexpr uint64_t kDataAlignment = 4096;

// One matrix of the source and what is written for it.
struct PackedOutput {
  std::string name;
  std::vector<const model::Linear*> slices;  // by first input
  WeightFormat format = WeightFormat::kW8A8;

  kernels::PackedMatrix ShapeIn(kernels::PackedLayout layout) const {
    kernels::PackedMatrix matrix;
    matrix.type = kernels::TypeIn(layout, quant::Is4Bit(format));
    matrix.outputs = slices.front()->weight.shape[0];
    matrix.inputs = slices.front()->weight.shape[1] / static_cast<int64_t>(slices.size());
    return matrix;
  }
  uint64_t floats() const { return slices.front()->weight.num_bytes(); }
};

struct RawOutput {
  std::string name;
  TensorView view;
};

// Everything that goes into the file.
class Plan {
 public:
  // All slices of a matrix come one after another; layers of the same floats are one output and further names of it.
  void AddLinear(const model::Linear& linear, WeightFormat format) {
    if (linear.packed) {
      throw FileError(linear.file, "tensor '" + linear.name + "' is packed already, expected floats",
                      "convert the folder that this one was made from");
    }
    linear_names_[linear.name] = linear.weight.data;
    const auto [found, is_new] = by_data_.emplace(linear.weight.data, packed_.size());
    if (is_new) packed_.push_back({.name = linear.name, .slices = {}, .format = format});
    PackedOutput& output = packed_[found->second];
    for (const model::Linear* slice : output.slices) {
      if (slice->first_input == linear.first_input) return;
    }
    output.slices.push_back(&linear);
    const int64_t inputs = linear.num_inputs < 0 ? linear.weight.shape[1] : linear.num_inputs;
    output.format = quant::FormatFor(format, inputs);
  }

  // What is neither packed nor a further name of something packed.
  void AddOthers(const checkpoint::TensorSource& source, const std::vector<std::string>& names) {
    std::map<uint64_t, std::string> stored;
    for (const std::string& name : names) {
      const StoredTensor* tensor = source.Find(name);
      const auto linear = linear_names_.find(name);
      if (linear != linear_names_.end()) {
        const std::string& canonical = packed_[by_data_.at(linear->second)].name;
        if (canonical != name) aliases_[name] = canonical;
        continue;
      }
      const auto [first, is_new] = stored.emplace(tensor->storage_id, name);
      if (!is_new) {
        aliases_[name] = first->second;
      } else {
        raw_.push_back({name, tensor->view});
      }
    }
  }
  void AddRaw(const std::string& name, const TensorView& view) { raw_.push_back({name, view}); }

  std::vector<PackedOutput>& packed() { return packed_; }
  const std::vector<RawOutput>& raw() const { return raw_; }
  const std::map<std::string, std::string>& aliases() const { return aliases_; }
  bool has_4_bit() const {
    return std::any_of(packed_.begin(), packed_.end(), [](const PackedOutput& o) { return quant::Is4Bit(o.format); });
  }

 private:
  std::vector<PackedOutput> packed_;
  std::vector<RawOutput> raw_;
  std::map<std::string, std::string> aliases_;
  std::map<std::string, const uint8_t*> linear_names_;
  std::map<const uint8_t*, size_t> by_data_;
};

// What was loaded, and must live while the plan is carried out.
struct Loaded {
  std::unique_ptr<model::ModelWeights> base;
  std::unique_ptr<draft::HeadWeights> heads;
  std::unique_ptr<checkpoint::TensorSource> source;
  std::vector<std::string> files;  // that were read
  std::vector<std::string> warnings;
};

void PlanBase(const ConvertOptions& options, Loaded& loaded, Plan& plan) {
  model::ModelWeights& weights = *loaded.base;
  for (model::LayerWeights& layer : weights.layers) {
    for (const model::Linear* linear : model::LinearsOf(layer)) plan.AddLinear(*linear, *options.weights);
  }
  const std::string embedding = "model.embed_tokens.weight";
  plan.AddRaw(embedding, weights.embedding);
  std::vector<std::string> names = weights.used_tensors;
  std::erase(names, embedding);
  // Where it is tied to the embedding, the file gets both: tokens are looked up in floats.
  plan.AddLinear(weights.lm_head, model::LmHeadFormat(*options.weights));
  plan.AddOthers(*loaded.source, names);
}

void PlanHeads(const ConvertOptions& options, Loaded& loaded, Plan& plan) {
  draft::HeadsFile file = draft::OpenHeads(options.in);
  draft::CheckBaseOf(file, *loaded.base);
  loaded.warnings.insert(loaded.warnings.end(), file.info.warnings.begin(), file.info.warnings.end());
  loaded.heads = draft::LoadHeads(std::move(file), *loaded.base);
  for (const model::Linear* linear : draft::LinearsOf(*loaded.heads)) {
    plan.AddLinear(*linear, options.head_weights.value_or(WeightFormat::kW8A8));
  }
  plan.AddOthers(*loaded.heads->tensors, loaded.heads->used_tensors);
  for (const std::string& name : loaded.heads->tensors->files()) {
    if (std::ranges::find(loaded.files, name) == loaded.files.end()) loaded.files.push_back(name);
  }
}

std::vector<checkpoint::TensorEntry> Entries(Plan& plan, kernels::PackedLayout layout) {
  std::vector<checkpoint::TensorEntry> entries;
  if (plan.has_4_bit()) {
    entries.push_back({checkpoint::kDictionaryName, DType::kU8, {kernels::kNumTables, kernels::kTableEntries}});
  }
  for (PackedOutput& output : plan.packed()) {
    std::sort(output.slices.begin(), output.slices.end(),
              [](const auto* a, const auto* b) { return a->first_input < b->first_input; });
    const kernels::PackedMatrix shape = output.ShapeIn(layout);
    const auto slices = static_cast<int64_t>(output.slices.size());
    entries.push_back({output.name, DType::kU8, {slices, shape.num_panels(), shape.panel_bytes()}});
    entries.push_back(
        {output.name + checkpoint::kScalesSuffix, DType::kF32, {slices, shape.num_panels() * kernels::kPanelOutputs}});
  }
  for (const RawOutput& output : plan.raw()) entries.push_back({output.name, output.view.dtype, output.view.shape});
  return entries;
}

const char* LayoutNumber(kernels::PackedLayout layout) {
  return layout == kernels::PackedLayout::kLines ? checkpoint::kLinesLayout : checkpoint::kInterleavedLayout;
}

checkpoint::Metadata MetadataFor(Plan& plan, const std::string& source_name, const ConvertReport& report) {
  base::Json packed = base::Json::object();
  for (const PackedOutput& output : plan.packed()) {
    packed[output.name] = {{"format", quant::NameOf(output.format)},
                           {"shape", output.slices.front()->weight.shape},
                           {"slices", output.slices.size()}};
  }
  checkpoint::Metadata metadata(plan.aliases().begin(), plan.aliases().end());
  metadata["format"] = "pt";
  metadata[checkpoint::kLayoutKey] = LayoutNumber(report.layout);
  metadata[checkpoint::kPackedKey] = base::DumpJson(packed);
  metadata[checkpoint::kSourceKey] = source_name;
  metadata[checkpoint::kSourceHashKey] = report.source_hash;
  return metadata;
}

void WritePacked(const PackedOutput& output, kernels::PackedLayout layout, base::ThreadPool& pool,
                 checkpoint::SafetensorsWriter& writer) {
  std::vector<float> scales;
  for (const model::Linear* slice : output.slices) {
    const quant::FloatMatrix matrix{.weight = slice->weight,
                                    .first_input = slice->first_input,
                                    .num_inputs = slice->num_inputs,
                                    .name = slice->name,
                                    .file = slice->file};
    auto packed = quant::Pack(matrix, output.format, pool);
    if (LayoutOf(packed->matrix.type) != layout) packed = quant::InLayout(*packed, layout, pool);
    const kernels::PackedMatrix& m = packed->matrix;
    writer.Write(m.panels, static_cast<size_t>(m.num_panels() * m.panel_bytes()));
    scales.insert(scales.end(), m.row_scales, m.row_scales + m.num_panels() * kernels::kPanelOutputs);
  }
  writer.Write(scales.data(), scales.size() * sizeof(float));
  const TensorView& floats = output.slices.front()->weight;
  base::MappedFile::Release({floats.data, floats.num_bytes()});
}

// Says how far it is, and ends the work where that is wished.
void Look(const ConvertOptions& options, double share) {
  if (options.progress) options.progress(share);
  if (options.stop != nullptr && *options.stop) throw Stopped();
}

void WriteAll(Plan& plan, const ConvertOptions& options, kernels::PackedLayout layout, base::ThreadPool& pool,
              checkpoint::SafetensorsWriter& writer) {
  if (plan.has_4_bit()) {
    writer.Write(quant::DefaultDictionary(), static_cast<size_t>(kernels::kNumTables * kernels::kTableEntries));
  }
  uint64_t all = 0, done = 0;
  for (const PackedOutput& output : plan.packed()) all += output.floats();
  for (const PackedOutput& output : plan.packed()) {
    Look(options, static_cast<double>(done) / static_cast<double>(all));
    WritePacked(output, layout, pool, writer);
    done += output.floats();
  }
  for (const RawOutput& output : plan.raw()) {
    constexpr size_t kPart = size_t{8} << 20;
    for (size_t at = 0; at < output.view.num_bytes(); at += kPart) {
      Look(options, 1);
      writer.Write(output.view.data + at, std::min(kPart, output.view.num_bytes() - at));
    }
  }
  Look(options, 1);
}

// The name under which the reader of such a folder looks for its weights.
std::string WeightsFileName(const checkpoint::TensorSource& source) {
  const std::string name = fs::path(source.display_name()).filename().string();
  for (const char* model_file : {"model.safetensors", "pytorch_model.bin"}) {
    if (name.starts_with(model_file)) return "model.safetensors";
  }
  return fs::path(name).stem().string() + ".safetensors";
}

// For people and other programs; the reader goes by the metadata of the weights.
void WriteSummary(const ConvertOptions& options, const load::FolderKind& kind, const ConvertReport& report,
                  const std::string& folder) {
  base::Json json = {{"layout", NameOf(report.layout)},
                     {"weights_file", report.weights_file},
                     {"source", LastName(options.in)},
                     {"source_hash", report.source_hash}};
  if (kind.base) json["weights"] = quant::NameOf(*options.weights);
  if (kind.heads) json["head_weights"] = quant::NameOf(options.head_weights.value_or(WeightFormat::kW8A8));
  std::ofstream file(fs::path(folder) / base::OutputFolder::kMark);
  file << json.dump(1, ' ', true, base::Json::error_handler_t::replace) << "\n" << std::flush;
  if (!file)
    throw FileError(options.out, std::string(base::OutputFolder::kMark) + " cannot be written: is the disk full?");
}

// A packed lm head could no longer be compared with the embedding: where the source's own is another, the copy of
// config.json says so.
void CorrectConfig(const model::ModelConfig& config, const std::string& folder) {
  const std::string file = (fs::path(folder) / "config.json").string();
  base::Json json = base::ReadJsonFile(file);
  if (config.tied_embeddings || json.value("tie_word_embeddings", base::Json()) != true) return;
  json["tie_word_embeddings"] = false;
  const std::string text = json.dump(2, ' ', false, base::Json::error_handler_t::replace) + "\n";
  base::AtomicFile output(file);
  output.Write(text.data(), text.size());
  output.Keep();
}

void CheckOptions(const ConvertOptions& options, const load::FolderKind& kind) {
  if (!kind.base && !kind.heads) {
    throw FileError(options.in, "holds no model and no draft heads", "'hydrant inspect' says what a folder holds");
  }
  if (kind.base && !options.weights)
    throw UserError("ConvertOptions::weights is missing", "such as ConvertOptions::weights w4a8");
  if (!kind.base && options.weights) {
    throw UserError("ConvertOptions::weights is for base models, and " + options.in +
                        " holds heads, or a base model whose config.json lacks 'num_hidden_layers' or is missing",
                    "use ConvertOptions::head_weights for heads");
  }
  if (!kind.heads && options.head_weights) {
    throw UserError("ConvertOptions::head_weights needs heads, and " + options.in + " has none",
                    "leave it out, and convert the heads' folder by itself with ConvertOptions::model");
  }
  if (!kind.base && options.model.empty()) {
    throw UserError("heads need their base's sizes", "name its folder with ConvertOptions::model");
  }
  if (kind.base && !options.model.empty()) {
    throw UserError("ConvertOptions::model is for heads, and " + options.in + " holds a base model", "leave it out");
  }
  for (const auto& format : {options.weights, options.head_weights}) {
    if (format && !quant::IsPacked(*format)) {
      throw UserError(std::string("the format is ") + quant::NameOf(*format) +
                      ", expected w8a8, w4a8, w8a16 or w4a16: floats need no conversion");
    }
  }
}

void CountBytes(Plan& plan, const std::vector<checkpoint::TensorEntry>& entries, ConvertReport& report) {
  for (const PackedOutput& output : plan.packed()) report.bytes_before += output.floats();
  for (const RawOutput& output : plan.raw()) report.bytes_before += output.view.num_bytes();
  for (const checkpoint::TensorEntry& entry : entries) {
    uint64_t bytes = SizeOf(entry.dtype);
    for (const int64_t extent : entry.shape) bytes *= static_cast<uint64_t>(extent);
    report.bytes_after += bytes;
  }
}

void ReadIn(const ConvertOptions& options, const load::FolderKind& kind, Loaded& loaded, Plan& plan) {
  const std::string& base_folder = kind.base ? options.in : options.model;
  loaded.base = load::ReadAs(load::Role::kBase, base_folder, [&] {
    return std::make_unique<model::ModelWeights>(model::LoadModelWeights(base_folder));
  });
  loaded.source = kind.base ? checkpoint::OpenModelFolder(options.in) : checkpoint::OpenHeadsFolder(options.in);
  loaded.files = loaded.source->files();
  loaded.warnings = loaded.base->warnings;
  if (kind.base) PlanBase(options, loaded, plan);
  if (kind.heads) PlanHeads(options, loaded, plan);
}

}  // namespace

ConvertReport ConvertFolder(const ConvertOptions& options) {
  const auto start = std::chrono::steady_clock::now();
  load::RefuseOtherKind(options.in, load::Role::kEither);
  const load::FolderKind kind = load::KindOf(options.in);
  CheckOptions(options, kind);
  base::OutputFolder folder(options.out, options.replace, {options.in, options.model});
  for (const base::Leftover& leftover : folder.removed()) {
    if (options.on_removed) options.on_removed(leftover);
  }
  base::ThreadPool pool(options.threads > 0 ? options.threads : base::DefaultThreads(), true);
  pool.StopWhen(options.stop);

  Loaded loaded;
  Plan plan;
  ReadIn(options, kind, loaded, plan);

  ConvertReport report;
  report.layout = options.layout.value_or(kernels::KernelsForModel("auto", loaded.base->config.hidden_size).layout());
  report.weights_file = WeightsFileName(*loaded.source);
  report.source_hash = checkpoint::HashOfFiles(loaded.files, [&options] { Look(options, 0); });
  report.num_packed = static_cast<int64_t>(plan.packed().size());
  const std::vector<checkpoint::TensorEntry> entries = Entries(plan, report.layout);
  CountBytes(plan, entries, report);
  {
    checkpoint::SafetensorsWriter writer(folder.path() + "/" + report.weights_file, entries,
                                         MetadataFor(plan, LastName(options.in), report), kDataAlignment);
    WriteAll(plan, options, report.layout, pool, writer);
    writer.Finish();
  }
  CopyFiles(ModelFiles(), options.in, folder.path());
  if (kind.base) CorrectConfig(loaded.base->config, folder.path());
  WriteSummary(options, kind, report, folder.path());
  folder.Keep();
  report.warnings = std::move(loaded.warnings);
  report.seconds = std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
  return report;
}

}  // namespace hydrant::convert
