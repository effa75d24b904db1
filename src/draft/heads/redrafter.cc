// SPDX-License-Identifier: Apache-2.0
#include "draft/heads/redrafter.h"

#include <algorithm>
#include <functional>
#include <utility>
#include <vector>

#include "base/check.h"
#include "draft/levels/level_drafter.h"
#include "model/decoder.h"

namespace hydrant::draft {
namespace {

// modeling_drafter.py: LOGITS_TOP_K, the tokens that are left of each row before beams are chosen.
constexpr int32_t kBestTokens = 50;

class Redrafter : public LevelModel {
 public:
  Redrafter(RedrafterWeights weights, const model::ModelWeights& base, kernels::Queue* queue)
      : weights_(std::move(weights)), base_(&base), queue_(queue), runner_(queue) {
    if (weights_.info.is_recurrent) {
      token_input_.Uses(weights_.token);
      state_input_.Uses(weights_.state);
      recurrent_bytes_ = weights_.token.bytes() + weights_.state.bytes();
    }
    if (weights_.has_projection) projection_input_.Uses(weights_.projection);
    runner_.Uses(weights_.head);
    head_bytes_ = BytesOf(weights_.head) + (weights_.has_projection ? weights_.projection.bytes() : 0);
  }

  const char* name() const override { return weights_.info.name.c_str(); }
  std::vector<int32_t> WantedLayers() const override { return {model::kAfterFinalNorm}; }
  uint64_t weight_bytes() const override { return weights_.bytes; }
  uint64_t bytes_read() const override { return bytes_read_; }
  int64_t state_width() const override { return 2 * width(); }  // what the blocks see: hidden state and own state
  int64_t input_width() const override { return width(); }
  int64_t num_logits() const override { return weights_.head.lm_head.outputs(); }
  int32_t num_best() const override { return kBestTokens; }
  std::span<const int32_t> token_map() const override { return weights_.token_map; }
  bool reads_next_token() const override { return true; }

  void Run(const LevelPass& pass, Matrix& states) override {
    const int64_t rows = pass.rows->num_rows();
    HYDRANT_CHECK(pass.output != nullptr && pass.num_outputs == rows);
    Reserve(rows);
    states.Resize(rows, 2 * width());
    for (int64_t r = 0; r < rows; ++r) std::copy_n(pass.inputs.row(r), width(), states.row(r));
    const kernels::Rows own(states.data() + width(), rows, width(), states.stride());
    // Of the parent; there is none above the root.
    kernels::ConstRows before;
    if (!pass.is_committed) before = {pass.inputs.data + width(), rows, width(), pass.inputs.stride};
    kernels::Region(*queue_, [&](kernels::Queue& queue) {
      kernels::Embed(queue, base_->embedding, pass.rows->tokens(), embedded_);
      if (weights_.info.is_recurrent) {
        Recur(queue, before, own);
      } else {
        Sum(queue, before, own);
      }
      RunHead(queue, states, *pass.output);
    });
    bytes_read_ += recurrent_bytes_ + head_bytes_;
  }

 private:
  int64_t width() const { return base_->config.hidden_size; }

  void Reserve(int64_t rows) {
    const kernels::KernelTable& table = *queue_->table;
    embedded_.Resize(rows, width());
    if (weights_.info.is_recurrent) {
      token_input_.Reserve(table, rows, width());
      state_input_.Reserve(table, rows, width());
      linear_.Resize(rows, width());
      zeros_.Resize(rows, width());
      for (int64_t r = 0; r < rows; ++r) std::fill_n(zeros_.row(r), width(), 0.0F);
    }
    if (weights_.has_projection) {
      projection_input_.Reserve(table, rows, 2 * width());
      projected_.Resize(rows, weights_.exit_size);
    }
    runner_.Reserve(rows, weights_.exit_size);
  }

  // s = silu(W E(token) + U s_parent + b). The first state is made from a state of zeros.
  void Recur(kernels::Queue& queue, kernels::ConstRows before, kernels::Rows own) {
    const kernels::Weight token = weights_.token.view(), state = weights_.state.view();
    kernels::MatmulInput& token_input = token_input_.For(token);
    token_input.Load(queue, embedded_);
    const bool is_first = before.data == nullptr;
    const std::span<const float> bias = is_first ? weights_.state.bias : std::span<const float>();
    const kernels::MatmulJob of_token{&token, bias, linear_};
    kernels::Matmul(queue, token_input, std::span(&of_token, 1));
    if (!is_first) {
      kernels::MatmulInput& state_input = state_input_.For(state);
      state_input.Load(queue, before);
      const kernels::MatmulJob of_state{&state, weights_.state.bias, linear_, kernels::MatmulMode::kAdd};
      kernels::Matmul(queue, state_input, std::span(&of_state, 1));
    }
    kernels::ResidualSilu(queue, zeros_, linear_, own);
  }

  // Heads without 'rnn': s = s_parent + E(token).
  void Sum(kernels::Queue& queue, kernels::ConstRows before, kernels::Rows own) const {
    kernels::ForItems(queue, own.rows, own.cols, [&](int64_t begin, int64_t end) {
      for (int64_t r = begin; r < end; ++r) {
        const float* token = embedded_.row(r);
        if (before.data == nullptr) {
          std::copy_n(token, own.cols, own.row(r));
        } else {
          std::transform(before.row(r), before.row(r) + own.cols, token, own.row(r), std::plus<>());
        }
      }
    });
  }

  void RunHead(kernels::Queue& queue, kernels::ConstRows states, const HeadOutput& output) {
    if (!weights_.has_projection) return runner_.Run(queue, weights_.head, states, {}, output);
    const kernels::Weight projection = weights_.projection.view();
    kernels::MatmulInput& input = projection_input_.For(projection);
    input.Load(queue, states);
    const kernels::MatmulJob job{&projection, weights_.projection.bias, projected_};
    kernels::Matmul(queue, input, std::span(&job, 1));
    runner_.Run(queue, weights_.head, projected_, {}, output);
  }

  RedrafterWeights weights_;
  const model::ModelWeights* base_;
  kernels::Queue* queue_;
  HeadRunner runner_;
  model::InputByKind token_input_, state_input_, projection_input_;  // [R, D] twice, [R, 2 * D]
  Matrix embedded_, linear_, zeros_;                                 // [R, D]
  Matrix projected_;                                                 // [R, E]
  uint64_t recurrent_bytes_ = 0, head_bytes_ = 0, bytes_read_ = 0;
};

}  // namespace

std::unique_ptr<Drafter> MakeRedrafter(RedrafterWeights weights, const model::ModelWeights& base,
                                       kernels::Queue* queue) {
  return MakeLevelDrafter(std::make_unique<Redrafter>(std::move(weights), base, queue), base.config.vocab_size, queue);
}

}  // namespace hydrant::draft
