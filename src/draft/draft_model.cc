// SPDX-License-Identifier: Apache-2.0
#include "draft/draft_model.h"

#include <utility>
#include <vector>

#include "draft/levels/level_drafter.h"
#include "model/decoder.h"

namespace hydrant::draft {
namespace {

class DraftModel : public LevelModel {
 public:
  DraftModel(model::ModelWeights weights, std::vector<int32_t> token_map, kernels::Queue* queue)
      : weights_(std::move(weights)),
        token_map_(std::move(token_map)),
        queue_(queue),
        decoder_(queue, &weights_),
        runner_(queue) {
    head_.lm_head = weights_.lm_head;
    runner_.Uses(head_);
    for (model::LayerWeights& layer : weights_.layers) {
      for (const model::Linear* linear : model::LinearsOf(layer)) layer_bytes_ += linear->bytes();
    }
  }

  const char* name() const override { return "draft model"; }
  std::vector<kv::LayerShape> KvLayers() const override {
    return model::KvShapeFor(weights_.config, DType::kF32).layers;
  }
  uint64_t weight_bytes() const override { return weights_.bytes; }
  uint64_t bytes_read() const override { return bytes_read_; }
  int64_t num_logits() const override { return head_.lm_head.outputs(); }
  std::span<const int32_t> token_map() const override { return token_map_; }
  int64_t vocab_size() const override { return weights_.config.vocab_size; }

  void Run(const LevelPass& pass, Matrix& /*states*/) override {
    decoder_.Forward(*pass.rows, *pass.pool, output_, pass.first_layer);
    bytes_read_ += layer_bytes_;
    if (pass.output == nullptr) return;
    const int64_t rows = output_.hidden.rows();
    runner_.Reserve(pass.num_outputs, output_.hidden.cols());
    kernels::Region(*queue_, [&](kernels::Queue& queue) {
      const kernels::ConstRows last =
          kernels::ConstRows(output_.hidden).Part(rows - pass.num_outputs, pass.num_outputs);
      runner_.Run(queue, head_, last, {}, *pass.output);
    });
    bytes_read_ += head_.lm_head.bytes();
  }

 private:
  model::ModelWeights weights_;
  std::vector<int32_t> token_map_;
  kernels::Queue* queue_;
  model::Decoder decoder_;
  Head head_;  // no blocks: the lm head
  HeadRunner runner_;
  model::ForwardOutput output_;
  uint64_t layer_bytes_ = 0, bytes_read_ = 0;
};

}  // namespace

std::unique_ptr<Drafter> MakeDraftModel(model::ModelWeights weights, std::vector<int32_t> token_map, int64_t vocab_size,
                                        kernels::Queue* queue) {
  return MakeLevelDrafter(std::make_unique<DraftModel>(std::move(weights), std::move(token_map), queue), vocab_size,
                          queue);
}

}  // namespace hydrant::draft
