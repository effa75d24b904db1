// SPDX-License-Identifier: Apache-2.0
#include "eval/random_weights.h"

#include <algorithm>
#include <array>
#include <atomic>
#include <bit>
#include <cmath>
#include <cstring>
#include <memory>
#include <utility>

#include "base/check.h"
#include "base/free_memory.h"
#include "base/page_buffer.h"
#include "hydrant/error.h"
#include "model/linear_packer.h"
#include "quant/dictionary.h"
#include "quant/pack.h"

namespace hydrant::eval {
namespace {

// In the order of kShapes.
constexpr std::array<std::string_view, 6> kShapes = {"7b", "8b", "13b", "33b", "1b", "tale"};
constexpr uint64_t kAlignment = 4096;
constexpr uint64_t kChunk = uint64_t{1} << 20;  // filled by one thread from one seed

uint64_t Mix(uint64_t x) {  // SplitMix64's finalizer (Steele, Lea, Flood 2014)
  x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9;
  x = (x ^ (x >> 27)) * 0x94d049bb133111eb;
  return x ^ (x >> 31);
}

// Turns each byte that is 0 into 1, since a w8 code is weight + 128 and weights are above -128. (The borrow of a byte
// that is 0 may select a neighbour that is 1, which stays 1.)
uint64_t WithoutZeroBytes(uint64_t x) { return x | (((x - 0x0101010101010101) & ~x & 0x8080808080808080) >> 7); }

// Exponent of floats whose products with I inputs of size 1 add up to about 1.
uint64_t ExponentFor(int64_t inputs) {
  return static_cast<uint64_t>(127 - static_cast<int>(std::ceil(0.5 * std::log2(static_cast<double>(inputs)))));
}

template <typename Fn>
void ForLinears(const model::LayerWeights& w, const Fn& fn) {
  for (const model::Linear* linear : {&w.q, &w.k, &w.v, &w.o, &w.gate, &w.up, &w.down}) fn(*linear);
}

int64_t MacsOf(const model::Linear& linear) {
  if (linear.packed) return linear.packed->matrix.outputs * linear.packed->matrix.inputs;
  return linear.weight.shape[0] * (linear.num_inputs < 0 ? linear.weight.shape[1] : linear.num_inputs);
}

}  // namespace

std::span<const std::string_view> ShapeNames() { return kShapes; }

model::ModelConfig ShapeConfig(std::string_view name) {
  model::ModelConfig config;
  config.file = std::string(name);
  config.rms_norm_eps = 1e-5F;
  const auto sizes = [&config](int64_t vocabulary, int64_t width, int64_t inner, int64_t layers) {
    config.vocab_size = vocabulary;
    config.hidden_size = width;
    config.intermediate_size = inner;
    config.num_layers = layers;
  };
  const auto heads = [&config](int64_t count, int64_t kv, int64_t dim) {
    config.num_heads = count;
    config.num_kv_heads = kv;
    config.head_dim = dim;
  };
  config.max_positions = 4096;
  if (name == "7b") {
    sizes(32000, 4096, 11008, 32);
    heads(32, 32, 128);
  } else if (name == "8b") {
    sizes(128256, 4096, 14336, 32);
    heads(32, 8, 128);
  } else if (name == "13b") {
    sizes(32000, 5120, 13824, 40);
    heads(40, 40, 128);
  } else if (name == "33b") {
    sizes(32000, 6656, 17920, 60);
    heads(52, 52, 128);
  } else if (name == "1b") {
    sizes(128256, 2048, 8192, 16);
    heads(32, 8, 64);
  } else {
    HYDRANT_CHECK(name == "tale");
    sizes(4096, 256, 704, 16);
    heads(4, 4, 64);
  }
  return config;
}

uint64_t RandomWeights::Take(uint64_t bytes) {
  const uint64_t offset = bytes_;
  bytes_ += (bytes + kAlignment - 1) / kAlignment * kAlignment;
  return offset;
}

void RandomWeights::Add(int64_t outputs, int64_t inputs, quant::WeightFormat format, model::Linear* target) {
  Piece piece{};
  piece.outputs = outputs;
  piece.inputs = inputs;
  piece.format = format;
  piece.linear = target;
  if (quant::IsPacked(format)) {
    kernels::PackedMatrix matrix;  // as lines; the interleaved layout takes no more memory
    matrix.type = quant::Is4Bit(format) ? kernels::PackedType::kW4 : kernels::PackedType::kW8;
    matrix.outputs = outputs;
    matrix.inputs = inputs;
    piece.fill = quant::Is4Bit(format) ? Fill::kW4 : Fill::kW8;
    piece.bytes = static_cast<uint64_t>(matrix.num_panels() * matrix.panel_bytes());
    piece.scales_bytes = static_cast<uint64_t>(matrix.num_panels() * kernels::kPanelOutputs) * sizeof(float);
  } else {
    piece.fill = format == quant::WeightFormat::kF32 ? Fill::kF32 : Fill::kBF16;
    piece.bytes = static_cast<uint64_t>(outputs * inputs) * (piece.fill == Fill::kF32 ? 4 : 2);
  }
  piece.offset = Take(piece.bytes);
  piece.scales = Take(piece.scales_bytes);
  pieces_.push_back(piece);
}

void RandomWeights::AddLayer(const model::ModelConfig& config, quant::WeightFormat format,
                             model::LayerWeights* target) {
  const int64_t width = config.hidden_size, inner = config.intermediate_size;
  const int64_t q_width = config.num_heads * config.head_dim, kv_width = config.num_kv_heads * config.head_dim;
  target->input_norm.assign(static_cast<size_t>(width), 1.0F);
  target->post_attention_norm = target->input_norm;
  Add(q_width, width, format, &target->q);
  Add(kv_width, width, format, &target->k);
  Add(kv_width, width, format, &target->v);
  Add(width, q_width, format, &target->o);
  Add(inner, width, format, &target->gate);
  Add(inner, width, format, &target->up);
  Add(width, inner, format, &target->down);
}

void RandomWeights::AddEmbedding(int64_t vocabulary, int64_t width, TensorView* target) {
  Piece piece{};
  piece.fill = Fill::kBF16;
  piece.outputs = vocabulary;
  piece.inputs = width;
  piece.embedding = target;
  piece.bytes = static_cast<uint64_t>(vocabulary * width) * 2;
  piece.offset = Take(piece.bytes);
  pieces_.push_back(piece);
}

void RandomWeights::Place(const Piece& piece, const kernels::KernelTable& table,
                          const std::shared_ptr<uint8_t>& memory) {
  uint8_t* data = memory.get() + piece.offset;
  if (!quant::IsPacked(piece.format)) {
    TensorView view;
    view.data = data;
    view.dtype = piece.fill == Fill::kF32 ? DType::kF32 : DType::kBF16;
    view.shape = {piece.outputs, piece.inputs};
    view.owner = memory;
    (piece.linear != nullptr ? piece.linear->weight : *piece.embedding) = view;
    return;
  }
  auto packed = std::make_shared<quant::PackedWeight>();
  auto* scales = reinterpret_cast<float*>(memory.get() + piece.scales);
  // Codes are spread over -127 .. 127.
  std::fill_n(scales, piece.outputs, 1.0F / (64.0F * std::sqrt(static_cast<float>(piece.inputs))));
  packed->matrix.type = kernels::TypeIn(table.layout(), piece.fill == Fill::kW4);
  packed->matrix.outputs = piece.outputs;
  packed->matrix.inputs = piece.inputs;
  packed->matrix.row_scales = scales;
  packed->matrix.panels = data;
  packed->matrix.dictionary = quant::DefaultDictionary();
  packed->format = piece.format;
  packed->owner = memory;
  piece.linear->packed = std::move(packed);
}

void CheckMemory(uint64_t bytes, const std::string& what, const std::string& hint) {
  const base::FreeMemory free = base::FreeNow();
  if (static_cast<double>(bytes) <= 0.95 * static_cast<double>(free.own)) return;
  throw UserError(what + " take " + base::MemoryText(bytes) + " of memory, and " + base::FreeText(free), hint);
}

bool RandomWeights::Build(const kernels::Queue& queue, const FillProgress& on_progress) {
  CheckMemory(bytes_, "the weights", "take fewer bits (EngineOptions::weights w4a8) or a smaller RandomModel::shape");
  auto buffer = std::make_shared<base::PageBuffer>(bytes_, base::PageSize::kHuge);
  const std::shared_ptr<uint8_t> memory(buffer, buffer->data());
  uint64_t done = 0;
  for (const Piece& piece : pieces_) {
    const uint64_t exponent = ExponentFor(piece.inputs);
    const auto chunks = static_cast<int64_t>((piece.bytes + kChunk - 1) / kChunk);
    queue.pool->ParallelFor(chunks, 1, [&](int64_t begin, int64_t end) {
      const uint64_t from = static_cast<uint64_t>(begin) * kChunk;
      const uint64_t to = std::min(piece.bytes, static_cast<uint64_t>(end) * kChunk);
      for (uint64_t i = from; i < to; i += 8) {
        uint64_t word = Mix(seed_ + (piece.offset + i + 8) * 0x9e3779b97f4a7c15);
        switch (piece.fill) {
          case Fill::kW8: word = WithoutZeroBytes(word); break;
          case Fill::kW4: break;  // every table number and every code is valid
          case Fill::kF32: word = (word & 0x807fffff807fffff) | exponent << 23 | exponent << 55; break;
          case Fill::kBF16: word = (word & 0x807f807f807f807f) | exponent * 0x0080008000800080; break;
        }
        std::memcpy(memory.get() + piece.offset + i, &word, 8);  // pieces end on a whole alignment
      }
    });
    Place(piece, *queue.table, memory);
    if (quant::IsPacked(piece.format)) quant::ShareTables(piece.linear->packed->matrix, memory.get() + piece.offset);
    done += piece.bytes;
    if (on_progress && !on_progress(static_cast<double>(done) / static_cast<double>(bytes_))) return false;
  }
  return true;
}

bool MakeRandomModel(const model::ModelConfig& config, quant::WeightFormat format, const kernels::Queue& queue,
                     const FillProgress& on_progress, model::ModelWeights* weights, uint64_t seed) {
  weights->config = config;
  weights->file = "random";
  weights->layers.resize(static_cast<size_t>(config.num_layers));
  weights->final_norm.assign(static_cast<size_t>(config.hidden_size), 1.0F);
  RandomWeights random(seed);
  random.AddEmbedding(config.vocab_size, config.hidden_size, &weights->embedding);
  for (model::LayerWeights& layer : weights->layers) random.AddLayer(config, format, &layer);
  random.Add(config.vocab_size, config.hidden_size, model::LmHeadFormat(format), &weights->lm_head);
  weights->bytes = random.bytes();
  return random.Build(queue, on_progress);
}

int64_t MacsPerRow(const model::LayerWeights& weights) {
  int64_t macs = 0;
  ForLinears(weights, [&macs](const model::Linear& linear) { macs += MacsOf(linear); });
  return macs;
}

int64_t MacsPerRow(const model::ModelWeights& weights) {
  int64_t macs = MacsOf(weights.lm_head);
  for (const model::LayerWeights& layer : weights.layers) macs += MacsPerRow(layer);
  return macs;
}

int64_t BytesRead(const model::LayerWeights& weights) {
  int64_t bytes = 0;
  ForLinears(weights, [&bytes](const model::Linear& linear) { bytes += static_cast<int64_t>(linear.bytes()); });
  return bytes;
}

int64_t BytesRead(const model::ModelWeights& weights) {
  auto bytes = static_cast<int64_t>(weights.lm_head.bytes());
  for (const model::LayerWeights& layer : weights.layers) bytes += BytesRead(layer);
  return bytes;
}

}  // namespace hydrant::eval
