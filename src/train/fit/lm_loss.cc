// SPDX-License-Identifier: Apache-2.0
#include "train/fit/lm_loss.h"

#include <ATen/Parallel.h>

#include <algorithm>
#include <cmath>

#include "train/fit/loss_rows.h"

namespace hydrant::train {
namespace {

constexpr int64_t kRowsAtOnce = 8;  // of logits, for a thread

// Places of labels: learned tokens with `shift` tokens before them or more. Head 0 can predict those.
at::Tensor LabelPlaces(const BatchTensors& batch, int64_t shift) {
  return batch.learned.logical_and(batch.position.ge(shift)).nonzero().squeeze(1);
}

// What a chunk's heads share.
struct Chunk {
  at::Tensor places;    // [C] i64: label tokens
  at::Tensor labels;    // [C] i64
  at::Tensor position;  // [C] i64
  at::Tensor teacher;   // [C, V]: the base's distribution, or undefined
  at::Tensor choice;    // [C] i64: its most likely token, or undefined
};

class Loss {
 public:
  Loss(const std::vector<LmHead>& lm_heads, const std::vector<at::Tensor>& states, const BatchTensors& batch,
       const at::Tensor& final_hidden, const at::Tensor& base_lm_head, const LossOptions& options)
      : batch_(batch), options_(options), lm_heads_(lm_heads), final_hidden_(final_hidden) {
    if (base_lm_head.defined()) base_lm_head_ = Prepared(base_lm_head.detach());
    const std::vector<double> counts =
        options.counts.empty() ? CountLabels(batch, static_cast<int32_t>(states.size()), options.first_shift)
                               : options.counts;
    for (size_t i = 0; i < states.size(); ++i) {
      states_.push_back(states[i].detach());
      prepared_.push_back(Prepared(lm_heads_[i].weight.detach()));
      const double weight = options.objective.HeadWeight(static_cast<int32_t>(i));
      scales_.push_back(counts[i] > 0 ? weight / counts[i] : 0);
      if (options.with_gradient) result_.state_gradients.push_back(at::zeros_like(states_.back()));
    }
    result_.heads.resize(states.size());
    tokens_ = lm_heads_.front().tokens;
    if (!tokens_.defined()) return;
    row_of_ = at::full({base_lm_head.size(0)}, -1, at::kLong);
    row_of_.index_copy_(0, tokens_, at::arange(tokens_.numel(), at::kLong));
  }

  LossResult Run() {
    const at::Tensor places = LabelPlaces(batch_, options_.first_shift);
    for (int64_t begin = 0; begin < places.numel(); begin += options_.chunk) {
      Chunk chunk = MakeChunk(places.narrow(0, begin, std::min(options_.chunk, places.numel() - begin)));
      if (tokens_.defined()) chunk = InDraftVocab(chunk);
      for (size_t i = 0; i < states_.size(); ++i) AddHead(i, chunk);
    }
    for (size_t i = 0; i < states_.size(); ++i) {
      const HeadSums& sums = result_.heads[i];
      const Objective& objective = options_.objective;
      result_.loss +=
          scales_[i] * (objective.label_weight * sums.label_loss + objective.teacher_weight * sums.teacher_loss);
    }
    return std::move(result_);
  }

 private:
  at::Tensor Prepared(const at::Tensor& weight) const {
    return options_.precision == Precision::kBF16 ? weight.to(at::kBFloat16) : weight;
  }
  // x [C, I] times weight [O, I] transposed, in f32.
  at::Tensor Times(const at::Tensor& x, const at::Tensor& weight) const {
    return at::matmul(x.to(weight.scalar_type()), weight.t()).to(at::kFloat);
  }

  Chunk MakeChunk(const at::Tensor& places) const {
    Chunk chunk{.places = places,
                .labels = batch_.tokens.index_select(0, places),
                .position = batch_.position.index_select(0, places),
                .teacher = {},
                .choice = {}};
    if (options_.objective.teacher_weight == 0 && !options_.with_agreement && !tokens_.defined()) return chunk;
    at::Tensor logits = Times(final_hidden_.index_select(0, places - 1), base_lm_head_);
    if (options_.with_agreement || tokens_.defined()) chunk.choice = logits.argmax(-1);
    if (options_.objective.teacher_weight == 0) return chunk;
    // Heads that draft fewer tokens learn the base's distribution over these alone.
    if (tokens_.defined()) logits = logits.index_select(1, tokens_);
    chunk.teacher = at::softmax(logits, -1);
    return chunk;
  }

  // With rows of the lm heads in place of tokens. Left out are labels that the heads do not draft: the text's tokens
  // where these are learned, else the base's choices, as SafeAILab/EAGLE does.
  Chunk InDraftVocab(const Chunk& chunk) const {
    const at::Tensor labels = row_of_.index_select(0, chunk.labels), choice = row_of_.index_select(0, chunk.choice);
    const at::Tensor decides = options_.objective.label_weight != 0 ? labels : choice;
    Chunk kept = Select(chunk, decides.ge(0).nonzero().squeeze(1));
    // -1 is no row; where such a label does not decide it only must not be found.
    kept.labels = row_of_.index_select(0, kept.labels);
    kept.choice = row_of_.index_select(0, kept.choice);
    return kept;
  }

  static Chunk Select(const Chunk& chunk, const at::Tensor& kept) {
    const auto select = [&kept](const at::Tensor& t) { return t.defined() ? t.index_select(0, kept) : t; };
    return {.places = select(chunk.places),
            .labels = select(chunk.labels),
            .position = select(chunk.position),
            .teacher = select(chunk.teacher),
            .choice = select(chunk.choice)};
  }

  // The labels of the chunk that head `i` can predict: they have enough tokens before them.
  static Chunk PartFor(int64_t shift, const Chunk& chunk) {
    const at::Tensor fits = chunk.position.ge(shift);
    if (fits.all().item<bool>()) return chunk;
    return Select(chunk, fits.nonzero().squeeze(1));
  }

  void AddHead(size_t i, const Chunk& whole) {
    const int64_t shift = static_cast<int64_t>(i) + options_.first_shift;
    const Chunk chunk = PartFor(shift, whole);
    if (chunk.places.numel() == 0) return;
    const at::Tensor rows = chunk.places - shift;
    const at::Tensor x = states_[i].index_select(0, rows);
    const at::Tensor narrow = x.to(prepared_[i].scalar_type());
    const at::Tensor logits = at::matmul(narrow, prepared_[i].t());
    result_.heads[i].count += static_cast<double>(chunk.places.numel());
    if (options_.with_agreement) AddAgreement(i, chunk, logits);
    AddLosses(i, chunk, logits);
    if (options_.with_gradient) AddGradient(i, rows, narrow, logits);
  }

  // Turns the logits [C, V] into the gradient of the loss, where that is wanted.
  void AddLosses(size_t i, const Chunk& chunk, const at::Tensor& logits) {
    const int64_t count = logits.size(0), width = logits.size(1);
    const Objective& objective = options_.objective;
    const at::Tensor bias = lm_heads_[i].bias.defined() ? lm_heads_[i].bias.detach().contiguous() : at::Tensor();
    const bool has_labels = !tokens_.defined() || objective.label_weight != 0;
    const auto* labels = chunk.labels.data_ptr<int64_t>();
    std::vector<RowLoss> losses(static_cast<size_t>(count));
    at::parallel_for(0, count, kRowsAtOnce, [&](int64_t begin, int64_t end) {
      std::vector<float> scratch(static_cast<size_t>(width));
      for (int64_t row = begin; row < end; ++row) {
        const RowTarget target{
            .label = has_labels ? labels[row] : -1,
            .teacher = chunk.teacher.defined() ? chunk.teacher.data_ptr<float>() + row * width : nullptr,
            .label_weight = objective.label_weight,
            .teacher_weight = objective.teacher_weight,
            .scale = scales_[i]};
        losses[static_cast<size_t>(row)] =
            LossOfRowOf(logits, row, bias.defined() ? bias.data_ptr<float>() : nullptr, target, scratch.data());
      }
    });
    for (const RowLoss& loss : losses) {
      result_.heads[i].label_loss += loss.label;
      result_.heads[i].teacher_loss += loss.teacher;
    }
  }

  RowLoss LossOfRowOf(const at::Tensor& logits, int64_t row, const float* bias, const RowTarget& target,
                      float* scratch) const {
    const int64_t width = logits.size(1);
    const auto length = static_cast<size_t>(width);
    if (logits.scalar_type() == at::kFloat) {
      return LossOfRow(std::span(logits.data_ptr<float>() + row * width, length), bias, target, options_.with_gradient,
                       scratch);
    }
    auto* numbers = reinterpret_cast<uint16_t*>(logits.data_ptr<at::BFloat16>());
    return LossOfRow(std::span(numbers + row * width, length), bias, target, options_.with_gradient, scratch);
  }

  void AddAgreement(size_t i, const Chunk& chunk, const at::Tensor& products) {
    at::Tensor logits = products.to(at::kFloat);
    if (lm_heads_[i].bias.defined()) logits = logits + lm_heads_[i].bias.detach();
    HeadSums& head = result_.heads[i];
    const int64_t ranks = std::min<int64_t>(kTopRanks, logits.size(1));  // heads may draft fewer tokens
    const at::Tensor top = std::get<1>(logits.topk(ranks, -1));
    const at::Tensor is_label = top.eq(chunk.labels.unsqueeze(1)).to(at::kFloat).cumsum(1).sum(0);
    const at::Tensor is_choice = top.eq(chunk.choice.unsqueeze(1)).to(at::kFloat).cumsum(1).sum(0);
    for (int64_t k = 0; k < kTopRanks; ++k) {
      const int64_t last = std::min(k, ranks - 1);
      head.in_label[static_cast<size_t>(k)] += is_label[last].item<double>();
      head.in_teacher[static_cast<size_t>(k)] += is_choice[last].item<double>();
    }
  }

  // `slope` [C, V]: the gradient of the logits.
  void AddGradient(size_t i, const at::Tensor& rows, const at::Tensor& x, const at::Tensor& slope) {
    result_.state_gradients[i].index_copy_(0, rows, at::matmul(slope, prepared_[i]).to(at::kFloat));
    if (lm_heads_[i].weight.requires_grad()) {
      lm_heads_[i].weight.mutable_grad().add_(at::matmul(slope.t(), x));
    }
    if (lm_heads_[i].bias.defined() && lm_heads_[i].bias.requires_grad()) {
      lm_heads_[i].bias.mutable_grad().add_(at::sum(slope, {0}, /*keepdim=*/false, at::kFloat));
    }
  }

  const BatchTensors& batch_;
  const LossOptions& options_;
  const std::vector<LmHead>& lm_heads_;
  at::Tensor final_hidden_, base_lm_head_;
  at::Tensor tokens_, row_of_;  // LmHead::tokens; [V] the row of a token, or -1. Undefined: all tokens
  std::vector<at::Tensor> states_, prepared_;
  std::vector<double> scales_;
  LossResult result_;
};

}  // namespace

double Objective::HeadWeight(int32_t head) const { return std::pow(head_decay, head); }

std::vector<double> CountLabels(const BatchTensors& batch, int32_t depth, int64_t first_shift) {
  std::vector<double> counts;
  for (int32_t i = 0; i < depth; ++i) {
    const at::Tensor fits = batch.learned.logical_and(batch.position.ge(i + first_shift));
    counts.push_back(static_cast<double>(fits.sum().item<int64_t>()));
  }
  return counts;
}

LossResult LmLoss(const std::vector<LmHead>& lm_heads, const std::vector<at::Tensor>& states, const BatchTensors& batch,
                  const at::Tensor& final_hidden, const at::Tensor& base_lm_head, const LossOptions& options) {
  at::NoGradGuard no_grad;
  return Loss(lm_heads, states, batch, final_hidden, base_lm_head, options).Run();
}

}  // namespace hydrant::train
