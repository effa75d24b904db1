// SPDX-License-Identifier: Apache-2.0
#include "model/weights.h"

#include <array>
#include <utility>

#include "base/mapped_file.h"
#include "checkpoint/compare.h"
#include "checkpoint/head_names.h"
#include "checkpoint/packed_tensors.h"
#include "hydrant/error.h"
#include "model/contradictions.h"
#include "model/model_tensors.h"
#include "model/packed_file.h"

namespace hydrant::model {
namespace {

using checkpoint::TableLoader;
using checkpoint::TensorRow;

std::vector<float> TakeFloats(TableLoader& loader, const TensorRow& row) { return ToFloats(loader.Take(row)); }

Linear TakeLinear(TableLoader& loader, const LinearRows& rows) {
  Linear linear = model::TakeLinear(loader, rows.weight);
  if (rows.has_bias) linear.bias = TakeFloats(loader, rows.bias);
  return linear;
}

// Whether the file holds an lm head of its own under tied embeddings. A copy is read once, and its memory given back.
bool HoldsAnotherLmHead(const checkpoint::StoredTensor* stored, const TensorView& embedding) {
  if (stored == nullptr || stored->packed || stored->view.data == embedding.data) return false;
  if (!checkpoint::SameValues(stored->view, embedding)) return true;
  base::MappedFile::Release({stored->view.data, stored->view.num_bytes()});
  return false;
}

// The lm head. With tied embeddings it is the embedding, unless the file holds an lm head that differs: transformers 5
// then takes the file's, and so do we. A converted folder keeps a packed lm head beside tied embeddings, which stay
// floats.
Linear TakeLmHead(TableLoader& loader, const TensorView& embedding, ModelWeights* weights) {
  ModelConfig& config = weights->config;
  TensorRow row = LmHeadRow(config);
  if (!config.tied_embeddings) return model::TakeLinear(loader, row);
  const checkpoint::StoredTensor* stored = loader.source().Find(row.name);
  const bool another = HoldsAnotherLmHead(stored, embedding);
  if (another || (stored != nullptr && stored->packed)) {
    row.presence = checkpoint::Presence::kRequired;
    row.shape = EmbeddingRow(config).shape;
    Linear linear = model::TakeLinear(loader, row);
    if (!another) return linear;
    config.tied_embeddings = false;
    weights->warnings.push_back(stored->file + ": tensor 'lm_head.weight' differs from 'model.embed_tokens.weight', " +
                                "though " + config.file + " says \"tie_word_embeddings\": true; it is used");
    return linear;
  }
  loader.Take(row);
  Linear linear;
  linear.name = row.name;
  linear.file = loader.source().display_name();
  linear.weight = embedding;
  return linear;
}

// A tensor that the base model does not use, and that is no mistake.
bool BelongsElsewhere(const std::string& name) {
  return IsRotaryBuffer(name) || checkpoint::IsHeadTensor(name) || checkpoint::IsLoraTensor(name);
}

void CollectUnused(const checkpoint::TensorSource& source, ModelWeights* weights) {
  for (const auto& [name, tensor] : source.tensors()) {
    const bool redundant_lm_head = name == "lm_head.weight" && weights->config.tied_embeddings && !tensor.packed &&
                                   source.Find("model.embed_tokens.weight") != nullptr;
    if (redundant_lm_head || BelongsElsewhere(name)) weights->unused_tensors.push_back(name);
  }
}

}  // namespace

kernels::Weight Linear::view() const {
  if (packed) return kernels::Weight::Of(packed->matrix, quant::HasTwoPlanes(packed->format));
  const kernels::Weight whole = kernels::Weight::Of(weight);
  return num_inputs < 0 ? whole : whole.Columns(first_input, num_inputs);
}

uint64_t Linear::bytes() const {
  if (packed) return static_cast<uint64_t>(packed->matrix.bytes());
  const int64_t inputs = num_inputs < 0 ? weight.shape[1] : num_inputs;
  return static_cast<uint64_t>(weight.shape[0] * inputs) * SizeOf(weight.dtype);
}

Linear TakeLinear(TableLoader& loader, const TensorRow& row) {
  return std::move(TakeLinearSlices(loader, row, 1).front());
}

std::vector<Linear> TakeLinearSlices(TableLoader& loader, const TensorRow& row, int64_t count) {
  std::vector<Linear> slices(static_cast<size_t>(count));
  const checkpoint::StoredTensor* stored = loader.TakeStored(row);
  if (stored == nullptr) return slices;
  std::vector<std::shared_ptr<const quant::PackedWeight>> packed;
  if (stored->packed) packed = PackedFromFile(*stored, row.name, count);
  for (int64_t s = 0; s < count; ++s) {
    Linear& slice = slices[static_cast<size_t>(s)];
    slice.name = row.name;
    slice.file = stored->file;
    if (stored->packed) {
      slice.packed = packed[static_cast<size_t>(s)];
      continue;
    }
    slice.weight = stored->view;
    if (count == 1) continue;
    slice.num_inputs = stored->view.shape[1] / count;
    slice.first_input = s * slice.num_inputs;
  }
  return slices;
}

std::vector<Linear*> LinearsOf(LayerWeights& layer) {
  return {&layer.q, &layer.k, &layer.v, &layer.o, &layer.gate, &layer.up, &layer.down};
}

const char* Linear::format() const { return packed ? quant::NameOf(packed->format) : NameOf(weight.dtype); }

std::vector<TensorRow> LayerRows(const ModelConfig& config, const std::string& prefix) {
  const LayerRowSet set = DecoderLayerRows(config, prefix);
  std::vector<TensorRow> rows = {set.input_norm};
  const auto add = [&](const LinearRows& linear) {
    rows.push_back(linear.weight);
    if (linear.has_bias) rows.push_back(linear.bias);
  };
  for (const LinearRows* linear : {&set.q, &set.k, &set.v, &set.o}) add(*linear);
  if (config.qk_norm) rows.insert(rows.end(), {set.q_norm, set.k_norm});
  rows.insert(rows.end(), {set.rotary, set.post_attention_norm});
  for (const LinearRows* linear : {&set.gate, &set.up, &set.down}) add(*linear);
  return rows;
}

void CheckOneKind(std::span<const Linear* const> linears, const std::string& file, const std::string& what) {
  for (const Linear* linear : linears) {
    if (linear->view().kind == linears.front()->view().kind) continue;
    throw FileError(file, what + " read one input, but are in formats that round it differently",
                    "convert the original weights again");
  }
}

LayerWeights TakeLayer(TableLoader& loader, const ModelConfig& config, const std::string& prefix) {
  const LayerRowSet rows = DecoderLayerRows(config, prefix);
  LayerWeights layer;
  layer.input_norm = TakeFloats(loader, rows.input_norm);
  layer.q = TakeLinear(loader, rows.q);
  layer.k = TakeLinear(loader, rows.k);
  layer.v = TakeLinear(loader, rows.v);
  layer.o = TakeLinear(loader, rows.o);
  if (config.qk_norm) {
    layer.q_norm = TakeFloats(loader, rows.q_norm);
    layer.k_norm = TakeFloats(loader, rows.k_norm);
  }
  loader.Take(rows.rotary);
  layer.post_attention_norm = TakeFloats(loader, rows.post_attention_norm);
  layer.gate = TakeLinear(loader, rows.gate);
  layer.up = TakeLinear(loader, rows.up);
  layer.down = TakeLinear(loader, rows.down);
  const std::string& file = loader.source().display_name();
  CheckOneKind(std::array<const Linear*, 3>{&layer.q, &layer.k, &layer.v}, file, prefix + "self_attn.{q,k,v}_proj");
  CheckOneKind(std::array<const Linear*, 2>{&layer.gate, &layer.up}, file, prefix + "mlp.{gate,up}_proj");
  return layer;
}

ModelWeights LoadModelWeights(const std::string& folder) {
  ModelWeights weights;
  weights.config = ReadModelConfig(folder);
  const ModelConfig& config = weights.config;
  const std::unique_ptr<checkpoint::TensorSource> source = checkpoint::OpenModelFolder(folder);
  weights.file = source->display_name();
  const auto converted = source->metadata().find(checkpoint::kSourceKey);
  if (converted != source->metadata().end()) weights.converted_from = converted->second;
  checkpoint::RefuseNonZeroLora(*source);

  TableLoader loader(*source, config.file);
  loader.IgnoreIf(BelongsElsewhere);
  weights.embedding = loader.Take(EmbeddingRow(config));
  for (int64_t i = 0; i < config.num_layers; ++i) {
    weights.layers.push_back(TakeLayer(loader, config, "model.layers." + std::to_string(i) + "."));
  }
  weights.final_norm = TakeFloats(loader, FinalNormRow(config));
  weights.lm_head = TakeLmHead(loader, weights.embedding, &weights);
  weights.unused_tensors = SettleDenied(loader, config);
  loader.Finish();
  const std::string rotary =
      RotaryWarning(*source, "model.", config.rope, config.head_dim, config.file + " ('rope_theta', 'rope_scaling')");
  if (!rotary.empty()) weights.warnings.push_back(rotary);
  weights.bytes = loader.bytes_taken();
  weights.used_tensors.assign(loader.used().begin(), loader.used().end());
  CollectUnused(*source, &weights);
  return weights;
}

}  // namespace hydrant::model
