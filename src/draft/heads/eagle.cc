// SPDX-License-Identifier: Apache-2.0
#include "draft/heads/eagle.h"

#include <algorithm>
#include <utility>
#include <vector>

#include "base/check.h"
#include "draft/levels/level_drafter.h"
#include "model/layer.h"

namespace hydrant::draft {
namespace {

// Of what q, k and v read in place of the layer's normed rows: EAGLE-1 its rows without a norm. Hydra's eagle-attn has
// the norm: 0.
int64_t AttentionWidth(const EagleWeights& weights, int64_t hidden_size) {
  if (weights.is_third) return 2 * hidden_size;
  return weights.layer.input_norm.empty() ? hidden_size : 0;
}

class Eagle : public LevelModel {
 public:
  Eagle(EagleWeights weights, const model::ModelWeights& base, kernels::Queue* queue)
      : weights_(std::move(weights)),
        base_(&base),
        queue_(queue),
        inv_freq_(model::InverseFrequencies(weights_.config.rope, weights_.config.head_dim)),
        layer_(queue, weights_.config, std::span(&weights_.layer, 1),
               AttentionWidth(weights_, base.config.hidden_size)),
        runner_(queue) {
    fc_input_.Uses(weights_.fc);
    runner_.Uses(weights_.head);
  }

  const char* name() const override { return weights_.info.name.c_str(); }
  std::vector<int32_t> WantedLayers() const override { return weights_.hidden_layers; }
  std::vector<kv::LayerShape> KvLayers() const override {
    return {{.num_kv_heads = weights_.config.num_kv_heads, .head_dim = weights_.config.head_dim}};
  }
  uint64_t weight_bytes() const override { return weights_.bytes; }
  uint64_t bytes_read() const override { return bytes_read_; }
  int64_t state_width() const override { return width(); }
  int64_t input_width() const override { return width(); }
  int64_t num_logits() const override { return weights_.head.lm_head.outputs(); }
  std::span<const int32_t> token_map() const override { return weights_.token_map; }
  bool reads_next_token() const override { return true; }

  void Run(const LevelPass& pass, Matrix& states) override {
    const int64_t rows = pass.rows->num_rows();
    Reserve(pass, rows);
    const kernels::ConstRows last = kernels::ConstRows(x_).Part(rows - pass.num_outputs, pass.num_outputs);
    kernels::Region(*queue_, [&](kernels::Queue& queue) {
      layer_.Rotate(queue, pass.rows->positions(), inv_freq_);
      if (weights_.is_third) {
        LoadThird(queue, pass);
      } else {
        LoadFirst(queue, pass);
      }
      layer_.Run(queue, weights_.layer, pass.pool->layer(pass.first_layer), x_, weights_.is_third ? wide_ : x_);
      if (pass.output == nullptr) return;
      if (weights_.is_third) kernels::RmsNorm(queue, last, weights_.norm, weights_.config.rms_norm_eps, normed_);
      runner_.Run(queue, weights_.head, weights_.is_third ? kernels::ConstRows(normed_) : last, {}, *pass.output);
    });
    states.Resize(pass.num_outputs, width());
    for (int64_t r = 0; r < pass.num_outputs; ++r) std::copy_n(last.row(r), width(), states.row(r));
    CountBytes(pass);
  }

 private:
  int64_t width() const { return base_->config.hidden_size; }

  void Reserve(const LevelPass& pass, int64_t rows) {
    layer_.Reserve(pass.rows->kv(), pass.num_outputs);
    x_.Resize(rows, width());
    wide_.Resize(rows, 2 * width());
    if (!weights_.is_third || pass.is_committed) {
      fc_input_.Reserve(*queue_->table, rows, (weights_.is_third ? 3 : 2) * width());
    }
    normed_.Resize(pass.num_outputs, width());
    if (pass.output != nullptr) runner_.Reserve(pass.num_outputs, width());
  }

  // Columns first .. first + D - 1 of a wide row.
  kernels::Rows Half(int64_t first) { return {wide_.data() + first, wide_.rows(), width(), wide_.stride()}; }

  // x = fc(concat[E(token), hidden]).
  void LoadFirst(kernels::Queue& queue, const LevelPass& pass) {
    kernels::Embed(queue, base_->embedding, pass.rows->tokens(), Half(0));
    Copy(queue, pass.inputs, Half(width()));
    Project(queue, wide_);
  }

  // x = fc(concat of three layers) for committed rows, else the parent's output; the layer reads concat[norm(E(token)),
  // norm(x)] and adds to x.
  void LoadThird(kernels::Queue& queue, const LevelPass& pass) {
    const float eps = weights_.config.rms_norm_eps;
    if (pass.is_committed) {
      Project(queue, pass.inputs);
    } else {
      Copy(queue, pass.inputs, x_);
    }
    kernels::Embed(queue, base_->embedding, pass.rows->tokens(), Half(0));
    kernels::RmsNorm(queue, Half(0), weights_.layer.input_norm, eps, Half(0));
    kernels::RmsNorm(queue, x_, weights_.hidden_norm, eps, Half(width()));
    if (weights_.norm_before_residual) Copy(queue, Half(width()), x_);
  }

  void Project(kernels::Queue& queue, kernels::ConstRows from) {
    const kernels::Weight fc = weights_.fc.view();
    kernels::MatmulInput& input = fc_input_.For(fc);
    input.Load(queue, from);
    const kernels::MatmulJob job{&fc, weights_.fc.bias, x_};
    kernels::Matmul(queue, input, std::span(&job, 1));
  }

  static void Copy(kernels::Queue& queue, kernels::ConstRows from, kernels::Rows to) {
    HYDRANT_CHECK(from.rows == to.rows && from.cols == to.cols);
    kernels::ForItems(queue, from.rows, from.cols, [&](int64_t begin, int64_t end) {
      for (int64_t r = begin; r < end; ++r) std::copy_n(from.row(r), from.cols, to.row(r));
    });
  }

  void CountBytes(const LevelPass& pass) {
    for (const model::Linear* linear : model::LinearsOf(weights_.layer)) bytes_read_ += linear->bytes();
    if (!weights_.is_third || pass.is_committed) bytes_read_ += weights_.fc.bytes();
    if (pass.output != nullptr) bytes_read_ += weights_.head.lm_head.bytes();
  }

  EagleWeights weights_;
  const model::ModelWeights* base_;
  kernels::Queue* queue_;
  std::vector<float> inv_freq_;  // [Dh / 2]
  model::LayerRunner layer_;
  model::InputByKind fc_input_;  // [R, 2 * D] or [R, 3 * D]
  HeadRunner runner_;
  Matrix x_, wide_;  // [R, D], [R, 2 * D]
  Matrix normed_;    // [outputs, D]
  uint64_t bytes_read_ = 0;
};

}  // namespace

std::unique_ptr<Drafter> MakeEagle(EagleWeights weights, const model::ModelWeights& base, kernels::Queue* queue) {
  return MakeLevelDrafter(std::make_unique<Eagle>(std::move(weights), base, queue), base.config.vocab_size, queue);
}

}  // namespace hydrant::draft
