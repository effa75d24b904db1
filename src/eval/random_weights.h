// SPDX-License-Identifier: Apache-2.0
// Weights of a known shape with random values, made where they will lie: times need no download. One piece of memory in
// huge pages holds them in the order of the forward pass, as a converted file would.
#pragma once

#include <cstdint>
#include <functional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "kernels/kernels.h"
#include "kernels/ops/queue.h"
#include "model/weights.h"
#include "quant/packed_weight.h"

namespace hydrant::eval {

// Shapes by name: "7b", "13b", "33b" (Llama and Vicuna), "8b" (Llama 3 and 3.1), "1b" (Llama 3.2), "tale" (the embedded
// model).
std::span<const std::string_view> ShapeNames();
inline constexpr const char* kShapesHelp =
    "7b, 13b or 33b (Llama, Vicuna), 8b (Llama 3.1), 1b (Llama 3.2) or tale (the embedded model)";
model::ModelConfig ShapeConfig(std::string_view name);

// false: stop; then an empty result must be thrown away.
using FillProgress = std::function<bool(double share)>;

// Matrices that wait for their memory.
class RandomWeights {
 public:
  // The same bits for the same seed and the same calls, whatever the threads.
  explicit RandomWeights(uint64_t seed) : seed_(seed) {}

  // `format` kStored is bf16. The targets are filled by Build and must live until then.
  void Add(int64_t outputs, int64_t inputs, quant::WeightFormat format, model::Linear* target);
  void AddLayer(const model::ModelConfig& config, quant::WeightFormat format, model::LayerWeights* target);
  void AddEmbedding(int64_t vocabulary, int64_t width, TensorView* target);

  uint64_t bytes() const { return bytes_; }

  // In the order that the kernels of `queue` read. Throws UserError when there is less memory. Returns false when
  // stopped.
  bool Build(const kernels::Queue& queue, const FillProgress& on_progress = {});

 private:
  enum class Fill : uint8_t { kW8, kW4, kF32, kBF16 };
  struct Piece {
    Fill fill;
    int64_t outputs, inputs;
    quant::WeightFormat format;
    model::Linear* linear;  // null: an embedding
    TensorView* embedding;
    uint64_t offset, bytes;         // of panels or floats
    uint64_t scales, scales_bytes;  // of packed ones
  };

  uint64_t Take(uint64_t bytes);
  static void Place(const Piece& piece, const kernels::KernelTable& table, const std::shared_ptr<uint8_t>& memory);

  uint64_t seed_;
  uint64_t bytes_ = 0;
  std::vector<Piece> pieces_;
};

// Throws UserError where `bytes` are nearly all of the free memory, or more: "the weights take 27.0 GB, ..".
void CheckMemory(uint64_t bytes, const std::string& what, const std::string& hint);

// A whole model, with the lm head in the format that the engine takes for it. Throws UserError when there is less
// memory; false when stopped.
bool MakeRandomModel(const model::ModelConfig& config, quant::WeightFormat format, const kernels::Queue& queue,
                     const FillProgress& on_progress, model::ModelWeights* weights, uint64_t seed = 1);

// Multiplications of one row: outputs x inputs, over all linear layers.
int64_t MacsPerRow(const model::ModelWeights& weights);
int64_t MacsPerRow(const model::LayerWeights& weights);
// Bytes of weights that one pass reads, each matrix once.
int64_t BytesRead(const model::ModelWeights& weights);
int64_t BytesRead(const model::LayerWeights& weights);

}  // namespace hydrant::eval
