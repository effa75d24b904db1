// SPDX-License-Identifier: Apache-2.0
#include "draft/heads/cross_attn.h"

#include <algorithm>
#include <cmath>
#include <utility>
#include <vector>

#include "draft/levels/level_drafter.h"
#include "model/layer.h"

namespace hydrant::draft {
namespace {

// A row of the text leaves the key and value of its hidden state in its slot, and nothing else. A query, which is the
// root or a drafted token, reads those and what its ancestors left, and then leaves the key and value of its own
// output. The root's slot gets the hidden state's once the root is committed.
class CrossAttn : public LevelModel {
 public:
  CrossAttn(CrossAttnWeights weights, const model::ModelWeights& base, kernels::Queue* queue)
      : weights_(std::move(weights)),
        base_(&base),
        queue_(queue),
        inv_freq_(model::InverseFrequencies(weights_.config.rope, weights_.config.head_dim)),
        runner_(queue) {
    const model::LayerWeights& layer = weights_.layer;
    for (const model::Linear* linear : {&layer.q, &layer.k, &layer.v, &layer.gate, &layer.up}) hidden_.Uses(*linear);
    for (const model::Linear* linear : {&layer.k, &layer.v}) text_.Uses(*linear);
    context_input_.Uses(layer.o);
    inner_input_.Uses(layer.down);
    runner_.Uses(weights_.head);
  }

  const char* name() const override { return weights_.info.name.c_str(); }
  std::vector<int32_t> WantedLayers() const override { return {WantedLayer(weights_.info, base_->config)}; }
  std::vector<kv::LayerShape> KvLayers() const override {
    return {{.num_kv_heads = weights_.config.num_kv_heads, .head_dim = weights_.config.head_dim}};
  }
  uint64_t weight_bytes() const override { return weights_.bytes; }
  uint64_t bytes_read() const override { return bytes_read_; }
  int64_t input_width() const override { return width(); }
  int64_t num_logits() const override { return weights_.head.lm_head.outputs(); }
  std::span<const int32_t> token_map() const override { return weights_.token_map; }

  void Run(const LevelPass& pass, Matrix& states) override {
    num_text_ = pass.is_committed ? pass.inputs.rows : 0;
    num_queries_ = pass.rows->num_rows() - num_text_;
    PlaceRows(*pass.rows);
    Reserve(pass.output != nullptr);
    const kernels::KvLayer kv = pass.pool->layer(pass.first_layer);
    kernels::Region(*queue_, [&](kernels::Queue& queue) {
      kernels::RopeTable(queue, key_positions_, inv_freq_, key_cos_, key_sin_);
      if (num_text_ > 0) Leave(queue, text_, pass.inputs, 0, pass.rows->kv().first(static_cast<size_t>(num_text_)), kv);
      if (num_queries_ == 0) return;
      Attend(queue, pass.rows->tokens().last(static_cast<size_t>(num_queries_)), kv);
      FeedForward(queue);
      if (pass.output != nullptr) runner_.Run(queue, weights_.head, x_, {}, *pass.output);
      Leave(queue, hidden_, x_, num_text_, pass.rows->kv().last(static_cast<size_t>(num_queries_)), kv);
    });
    states.Resize(pass.num_outputs, 0);
    CountBytes(pass.output != nullptr);
  }

 private:
  int64_t width() const { return base_->config.hidden_size; }

  // Where rows stand and what they see. A query at depth d, with the last known hidden state at t, turns as position
  // t + d and sees 0 .. t and its d ancestors, whose keys all turn as position t, as its own key does.
  void PlaceRows(const model::RowBatch& rows) {
    const std::span<const int32_t> positions = rows.positions();
    key_positions_.assign(positions.begin(), positions.begin() + num_text_);
    query_positions_.clear();
    seen_.clear();
    for (kernels::RowKv row : rows.kv().last(static_cast<size_t>(num_queries_))) {
      row.position -= 1;  // not itself
      row.identity_length = std::min(row.identity_length, row.position + 1);
      seen_.push_back(row);
      query_positions_.push_back(row.position);
      key_positions_.push_back(row.identity_length - 1);
    }
  }

  void Reserve(bool wants_logits) {
    const model::ModelConfig& config = weights_.config;
    const int64_t rows = num_text_ + num_queries_, most = std::max(num_text_, num_queries_);
    for (Matrix* narrow : {&k_, &v_}) narrow->Resize(rows, config.num_kv_heads * config.head_dim);
    for (Matrix* half : {&key_cos_, &key_sin_}) half->Resize(rows, config.head_dim / 2);
    for (Matrix* half : {&query_cos_, &query_sin_}) half->Resize(num_queries_, config.head_dim / 2);
    for (Matrix* wide : {&q_, &context_}) wide->Resize(num_queries_, config.num_heads * config.head_dim);
    for (Matrix* inner : {&inner_, &up_}) inner->Resize(num_queries_, config.intermediate_size);
    x_.Resize(num_queries_, width());
    normed_.Resize(most, width());
    if (num_text_ > 0) text_.Reserve(*queue_->table, num_text_, width());
    if (num_queries_ == 0) return;
    hidden_.Reserve(*queue_->table, num_queries_, width());
    context_input_.Reserve(*queue_->table, num_queries_, context_.cols());
    inner_input_.Reserve(*queue_->table, num_queries_, inner_.cols());
    const kernels::AttentionOptions options{
        .num_heads = config.num_heads, .scale = 1.0F / std::sqrt(static_cast<float>(config.head_dim)), .window = 0};
    plan_.Make(seen_, options, config.num_kv_heads, queue_->pool->num_threads());
    if (wants_logits) runner_.Reserve(num_queries_, width());
  }

  // Keys and values of `states` in the slots of their rows, which are those from `first` on.
  void Leave(kernels::Queue& queue, model::InputByKind& input, kernels::ConstRows states, int64_t first,
             std::span<const kernels::RowKv> rows, const kernels::KvLayer& kv) {
    const model::LayerWeights& layer = weights_.layer;
    const kernels::Rows k = kernels::Rows(k_).Part(first, states.rows), v = kernels::Rows(v_).Part(first, states.rows);
    const kernels::ConstRows normed = Norm(queue, states, layer.input_norm);
    Multiply(queue, input, normed, {{&layer.k, k}, {&layer.v, v}});
    const kernels::HeadRotation rotation{{},
                                         kernels::ConstRows(key_cos_).Part(first, states.rows),
                                         kernels::ConstRows(key_sin_).Part(first, states.rows)};
    kernels::RotateStore(queue, k, v, rotation, rows, kv);
    kernels::Sync(queue);  // all threads read them
  }

  // x = E(token) + o(attention of q(norm(E(token)))).
  void Attend(kernels::Queue& queue, std::span<const int32_t> tokens, const kernels::KvLayer& kv) {
    const model::LayerWeights& layer = weights_.layer;
    kernels::RopeTable(queue, query_positions_, inv_freq_, query_cos_, query_sin_);
    kernels::Embed(queue, base_->embedding, tokens, x_);
    Multiply(queue, hidden_, Norm(queue, x_, layer.input_norm), {{&layer.q, q_}});
    const kernels::Rows no_keys(nullptr, num_queries_, 0, 0);
    kernels::RotateHeads(queue, q_, no_keys, weights_.config.head_dim, {{}, query_cos_, query_sin_});
    kernels::Attention(queue, q_, plan_, kv, context_);
    Multiply(queue, context_input_, context_, {{&layer.o, x_}}, kernels::MatmulMode::kAdd);
  }

  void FeedForward(kernels::Queue& queue) {
    const model::LayerWeights& layer = weights_.layer;
    Multiply(queue, hidden_, Norm(queue, x_, layer.post_attention_norm), {{&layer.gate, inner_}, {&layer.up, up_}});
    kernels::SiluMul(queue, inner_, up_, inner_);
    Multiply(queue, inner_input_, inner_, {{&layer.down, x_}}, kernels::MatmulMode::kAdd);
  }

  kernels::ConstRows Norm(kernels::Queue& queue, kernels::ConstRows x, std::span<const float> norm) {
    const kernels::Rows normed = kernels::Rows(normed_).Part(0, x.rows);
    kernels::RmsNorm(queue, x, norm, weights_.config.rms_norm_eps, normed);
    return normed;
  }

  struct Product {
    const model::Linear* linear;
    kernels::Rows out;
  };

  // Products of the same rows, one after the other: their weights may want them in different forms.
  static void Multiply(kernels::Queue& queue, model::InputByKind& input, kernels::ConstRows x,
                       std::initializer_list<Product> products,
                       kernels::MatmulMode mode = kernels::MatmulMode::kStore) {
    const kernels::MatmulInput* loaded = nullptr;
    for (const Product& product : products) {
      const kernels::Weight weight = product.linear->view();
      kernels::MatmulInput& ready = input.For(weight);
      if (loaded != &ready) ready.Load(queue, x);
      loaded = &ready;
      const kernels::MatmulJob job{&weight, product.linear->bias, product.out, mode};
      kernels::Matmul(queue, ready, std::span(&job, 1));
    }
  }

  void CountBytes(bool wants_logits) {
    const model::LayerWeights& layer = weights_.layer;
    const uint64_t kv = layer.k.bytes() + layer.v.bytes();
    if (num_text_ > 0) bytes_read_ += kv;
    if (num_queries_ == 0) return;
    for (const model::Linear* linear : model::LinearsOf(weights_.layer)) bytes_read_ += linear->bytes();
    if (wants_logits) bytes_read_ += weights_.head.lm_head.bytes();
  }

  CrossAttnWeights weights_;
  const model::ModelWeights* base_;
  kernels::Queue* queue_;
  std::vector<float> inv_freq_;  // [Dh / 2]
  HeadRunner runner_;
  model::InputByKind text_, hidden_, context_input_, inner_input_;  // [num_text, D], [Q, D], [Q, H * Dh], [Q, F]
  kernels::AttentionPlan plan_;                                     // of the queries
  int64_t num_text_ = 0, num_queries_ = 0;                // of the pass in hand; R = num_text + Q, the text first
  std::vector<kernels::RowKv> seen_;                      // [Q]
  std::vector<int32_t> key_positions_, query_positions_;  // [R], [Q]
  Matrix key_cos_, key_sin_, query_cos_, query_sin_;      // [R, Dh / 2] twice, [Q, Dh / 2] twice
  Matrix k_, v_, q_, context_;                            // [R, Hk * Dh] twice, [Q, H * Dh] twice
  Matrix x_, normed_, inner_, up_;                        // [Q, D], [most, D], [Q, F] twice
  uint64_t bytes_read_ = 0;
};

}  // namespace

std::unique_ptr<Drafter> MakeCrossAttn(CrossAttnWeights weights, const model::ModelWeights& base,
                                       kernels::Queue* queue) {
  return MakeLevelDrafter(std::make_unique<CrossAttn>(std::move(weights), base, queue), base.config.vocab_size, queue);
}

}  // namespace hydrant::draft
