// SPDX-License-Identifier: Apache-2.0
#include "draft/heads/mlp_speculator/mlp_speculator.h"

#include <algorithm>
#include <cmath>
#include <utility>
#include <vector>

#include "base/check.h"
#include "draft/levels/level_drafter.h"
#include "model/decoder.h"

namespace hydrant::draft {
namespace {

constexpr float kEpsilon = 1e-6F;  // of every norm in the authors' code; no config has it

class MlpSpeculator : public LevelModel {
 public:
  MlpSpeculator(MlpSpeculatorWeights weights, const model::ModelWeights& base, kernels::Queue* queue)
      : weights_(std::move(weights)), hidden_size_(base.config.hidden_size), queue_(queue), runner_(queue) {
    for (const model::Linear& projection : weights_.projections) input_.Uses(projection);
    for (const Head& head : weights_.heads) runner_.Uses(head);
    // A state keeps half of its size over all stages, and the embeddings make up for the rest. Only their proportion
    // counts: a norm follows.
    const double state_weight = std::pow(0.5, 0.5 / weights_.info.num_heads);
    const double token_weight =
        std::sqrt((1 - state_weight * state_weight) * static_cast<double>(weights_.state_size()) / 2);
    token_scale_ = static_cast<float>(token_weight / state_weight);
    if (weights_.info.scale_input) input_scale_.assign(static_cast<size_t>(hidden_size_), std::sqrt(0.5F));
  }

  const char* name() const override { return weights_.info.name.c_str(); }
  std::vector<int32_t> WantedLayers() const override { return {model::kAfterFinalNorm}; }
  int64_t input_width() const override { return hidden_size_; }
  int32_t max_depth() const override { return weights_.info.num_heads; }
  int32_t num_heads() const override { return weights_.info.num_heads; }
  uint64_t weight_bytes() const override { return weights_.bytes; }
  uint64_t table_bytes() const override {
    uint64_t bytes = 0;
    for (const TensorView& table : weights_.embeddings) bytes += table.num_bytes();
    return bytes;
  }
  uint64_t bytes_read() const override { return bytes_read_; }
  int64_t state_width() const override { return weights_.state_size(); }
  int64_t num_logits() const override { return weights_.heads.front().lm_head.outputs(); }
  std::span<const int32_t> token_map() const override { return weights_.token_map; }
  int64_t vocab_size() const override { return weights_.embeddings.front().shape[0]; }
  bool reads_next_token() const override { return true; }

  void Run(const LevelPass& pass, Matrix& states) override {
    const int64_t rows = pass.rows->num_rows();
    HYDRANT_CHECK(pass.output != nullptr && pass.num_outputs == rows && pass.depth < max_depth());
    const MlpSpeculatorWeights::Stage stage = weights_.StageAt(pass.depth);
    const bool is_scaled = pass.depth == 0 && !input_scale_.empty();
    states.Resize(rows, state_width());
    scaled_.Resize(is_scaled ? rows : 0, hidden_size_);
    input_.Reserve(*queue_->table, rows, pass.inputs.cols);
    runner_.Reserve(rows, state_width());
    kernels::Region(*queue_, [&](kernels::Queue& queue) {
      if (is_scaled) kernels::RmsNorm(queue, pass.inputs, input_scale_, kEpsilon, scaled_);
      kernels::Embed(queue, *stage.embedding, pass.rows->tokens(), states);
      Scale(queue, states);
      AddProjection(queue, *stage.projection, is_scaled ? kernels::ConstRows(scaled_) : pass.inputs, states);
      kernels::RmsNorm(queue, states, stage.norm->scale, kEpsilon, states);
      kernels::BiasGelu(queue, states, stage.norm->shift, states);
      runner_.Run(queue, *stage.head, states, {}, *pass.output);
    });
    bytes_read_ += stage.projection->bytes() + BytesOf(*stage.head);
  }

 private:
  void Scale(kernels::Queue& queue, kernels::Rows rows) const {
    kernels::ForItems(queue, rows.rows, rows.cols, [&](int64_t begin, int64_t end) {
      for (int64_t r = begin; r < end; ++r) {
        for (int64_t c = 0; c < rows.cols; ++c) rows.row(r)[c] *= token_scale_;
      }
    });
  }

  void AddProjection(kernels::Queue& queue, const model::Linear& projection, kernels::ConstRows from,
                     kernels::Rows to) {
    const kernels::Weight weight = projection.view();
    kernels::MatmulInput& input = input_.For(weight);
    input.Load(queue, from);
    const kernels::MatmulJob job{&weight, projection.bias, to, kernels::MatmulMode::kAdd};
    kernels::Matmul(queue, input, std::span(&job, 1));
  }

  MlpSpeculatorWeights weights_;
  int64_t hidden_size_;
  kernels::Queue* queue_;
  float token_scale_ = 1;
  std::vector<float> input_scale_;  // [D], 1 / sqrt 2; empty: the hidden state is read as it is
  model::InputByKind input_;        // [R, D] or [R, inner_dim]
  HeadRunner runner_;
  Matrix scaled_;  // [R, D]
  uint64_t bytes_read_ = 0;
};

}  // namespace

std::unique_ptr<Drafter> MakeMlpSpeculator(MlpSpeculatorWeights weights, const model::ModelWeights& base,
                                           kernels::Queue* queue) {
  return MakeLevelDrafter(std::make_unique<MlpSpeculator>(std::move(weights), base, queue), base.config.vocab_size,
                          queue);
}

}  // namespace hydrant::draft
