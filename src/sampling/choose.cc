// SPDX-License-Identifier: Apache-2.0
#include "sampling/choose.h"

#include <algorithm>
#include <limits>

#include "base/check.h"
#include "kernels/generic/math_inl.h"

namespace hydrant::sampling {
namespace {

constexpr float kNever = -std::numeric_limits<float>::infinity();

// 32 running maxima by index mod 32, which the compiler keeps in registers; NaN loses every comparison.
float Max(std::span<const float> values) {
  float best[32];
  std::fill_n(best, 32, kNever);
  const size_t whole = values.size() / 32 * 32;
  for (size_t t = 0; t < whole; t += 32) {
    for (size_t i = 0; i < 32; ++i) best[i] = values[t + i] > best[i] ? values[t + i] : best[i];
  }
  float max = kNever;
  for (const float value : best) max = std::max(max, value);
  for (size_t t = whole; t < values.size(); ++t) max = values[t] > max ? values[t] : max;
  return max;
}

// A penalised logit before it is rounded to f32, so that scaling by 1 / T rounds only once.
struct Penalised {
  int32_t token;
  double logit;
};

bool HasPenalties(const SamplingOptions& options) {
  return options.repetition_penalty != 1.0F || options.presence_penalty != 0.0F || options.frequency_penalty != 0.0F;
}

bool HasFilters(const SamplingOptions& options) {
  return options.top_k > 0 || options.top_p < 1.0F || options.min_p > 0.0F;
}

// The new logit of every token of the history that the penalties change.
std::vector<Penalised> Penalties(std::span<const float> logits, const SamplingOptions& options,
                                 const TokenHistory& history) {
  std::vector<int32_t> count(logits.size(), -1);  // -1: never seen; else occurrences in the output
  std::vector<int32_t> seen;
  const auto add = [&](std::span<const int32_t> tokens, int32_t step) {
    for (const int32_t token : tokens) {
      if (token < 0 || static_cast<size_t>(token) >= logits.size()) continue;
      int32_t& times = count[static_cast<size_t>(token)];
      if (times < 0) {
        times = 0;
        seen.push_back(token);
      }
      times += step;
    }
  };
  add(history.prompt, 0);
  add(history.output, 1);
  add(history.path, 1);
  std::vector<Penalised> changed;
  changed.reserve(seen.size());
  for (const int32_t token : seen) {
    double logit = logits[static_cast<size_t>(token)];
    const double repetition = options.repetition_penalty;
    logit = logit > 0 ? logit / repetition : logit * repetition;
    const int32_t times = count[static_cast<size_t>(token)];
    if (times > 0) logit -= times * static_cast<double>(options.frequency_penalty) + options.presence_penalty;
    if (logit == logit) changed.push_back({token, logit});  // NaN stays as it was: never chosen
  }
  return changed;
}

// The k-th largest value, 1 <= k <= size.
float KthLargest(std::span<const float> values, int32_t k) {
  constexpr int32_t kScanUpTo = 64;  // for larger k, nth_element is faster than inserting into a list of the best
  if (k <= kScanUpTo) {
    std::vector<int32_t> best;
    TopK(values, k, best);
    return values[static_cast<size_t>(best.back())];
  }
  std::vector<float> copy(values.begin(), values.end());
  const auto kth = copy.begin() + (k - 1);
  std::nth_element(copy.begin(), kth, copy.end(), std::greater<>());
  return *kth;
}

// sum of exp(row[t]) in double: 16 partial sums by index mod 16, then the tree 8-4-2-1.
double SumOfExp(std::span<const float> row) {
  double partial[16] = {};
  const size_t whole = row.size() / 16 * 16;
  for (size_t t = 0; t < whole; t += 16) {
    for (size_t i = 0; i < 16; ++i) partial[i] += kernels::ExpDouble(row[t + i]);
  }
  for (size_t t = whole; t < row.size(); ++t) partial[t - whole] += kernels::ExpDouble(row[t]);
  for (size_t half = 8; half > 0; half /= 2) {
    for (size_t i = 0; i < half; ++i) partial[i] += partial[i + half];
  }
  return partial[0];
}

struct Candidate {
  float scaled;
  float logit;
  int32_t token;
};

// Probability descending, then id ascending. `logit` tells apart what rounding made equal in `scaled`.
bool Likelier(const Candidate& a, const Candidate& b) {
  if (a.scaled != b.scaled) return a.scaled > b.scaled;
  if (a.logit != b.logit) return a.logit > b.logit;
  return a.token < b.token;
}

// The number of candidates in the smallest set whose weights reach `target`, or one more than there are where all
// together do not reach it. Sorts only as far as needed, in growing pieces.
size_t Nucleus(std::vector<Candidate>& candidates, double target) {
  double sum = 0;
  size_t done = 0;
  for (size_t piece = 64; done < candidates.size(); piece *= 4) {
    const auto begin = candidates.begin() + static_cast<std::ptrdiff_t>(done);
    const size_t end = std::min(candidates.size(), done + piece);
    const auto middle = candidates.begin() + static_cast<std::ptrdiff_t>(end);
    if (middle != candidates.end()) std::nth_element(begin, middle, candidates.end(), Likelier);
    std::sort(begin, middle, Likelier);
    for (; done < end; ++done) {
      sum += kernels::ExpDouble(candidates[done].scaled);
      if (sum >= target) return done + 1;
    }
  }
  return candidates.size() + 1;
}

// Drops what is not in the smallest set of most likely tokens whose probability reaches top_p. `scaled` has maximum 0.
void KeepNucleus(std::span<const float> logits, float top_p, std::span<float> scaled) {
  const double total = SumOfExp(scaled);
  const double target = static_cast<double>(top_p) * total;
  // All tokens of weight below (1 - top_p) * total / V together weigh less than (1 - top_p) * total. So the set can be
  // found among the others, which for most distributions are a few dozen of V. The margin allows for rounding.
  const double least = (total - target) / static_cast<double>(scaled.size());
  float floor =
      least > 1e-300 ? static_cast<float>(kernels::LogDouble(least)) - 1e-3F : std::numeric_limits<float>::lowest();
  std::vector<Candidate> candidates;
  for (size_t kept = 0;;) {
    candidates.clear();
    for (size_t t = 0; t < scaled.size(); ++t) {
      if (scaled[t] >= floor) candidates.push_back({scaled[t], logits[t], static_cast<int32_t>(t)});
    }
    kept = Nucleus(candidates, target);
    if (kept <= candidates.size()) {
      candidates.resize(kept);
      break;
    }
    if (floor == std::numeric_limits<float>::lowest()) break;  // top_p within rounding of 1: all stay
    floor = std::numeric_limits<float>::lowest();
  }
  std::ranges::fill(scaled, kNever);
  for (const Candidate& candidate : candidates) scaled[static_cast<size_t>(candidate.token)] = candidate.scaled;
}

// row = (logit - max) / T, rounded once; the maximum becomes 0. Subtracting it changes no choice and keeps f32 exact
// where it matters, near the top. `penalised` replaces its tokens' entries, which only say whether they are dropped.
void Scale(std::vector<Penalised> penalised, float temperature, std::span<float> row) {
  std::erase_if(penalised, [&](const Penalised& p) { return row[static_cast<size_t>(p.token)] == kNever; });
  for (const Penalised& p : penalised) row[static_cast<size_t>(p.token)] = kNever;
  double max = row[static_cast<size_t>(Argmax(row))];
  for (const Penalised& p : penalised) max = std::max(max, p.logit);
  if (max == static_cast<double>(kNever)) return;
  constexpr double kLargest = std::numeric_limits<float>::max();
  const double inverse = 1.0 / static_cast<double>(temperature);
  const auto scale = [&](double logit) {
    if (max > kLargest) return logit > kLargest ? 0.0F : kNever;  // infinite: only its equals can be chosen
    return static_cast<float>(std::max((logit - max) * inverse, -3e38));
  };
  for (float& value : row) value = value == kNever ? kNever : scale(value);
  for (const Penalised& p : penalised) row[static_cast<size_t>(p.token)] = scale(p.logit);
}

// (logit - max) / T with penalties and, when `filter`, the filters. T = 0: the penalised logits.
void Process(std::span<const float> logits, const SamplingOptions& options, const TokenHistory& history, bool filter,
             std::span<float> row) {
  HYDRANT_CHECK(logits.size() == row.size() && !logits.empty());
  for (size_t t = 0; t < logits.size(); ++t) row[t] = logits[t] == logits[t] ? logits[t] : kNever;
  std::vector<Penalised> penalised;
  if (HasPenalties(options)) penalised = Penalties(logits, options, history);
  for (const Penalised& p : penalised) row[static_cast<size_t>(p.token)] = static_cast<float>(p.logit);
  if (options.temperature <= 0) return;
  if (filter && options.top_k > 0 && static_cast<size_t>(options.top_k) < row.size()) {
    const float least = KthLargest(row, options.top_k);
    for (float& value : row) value = value >= least ? value : kNever;
  }
  const bool nucleus = filter && options.top_p < 1.0F;
  std::vector<float> unscaled;
  if (nucleus) unscaled.assign(row.begin(), row.end());
  Scale(std::move(penalised), options.temperature, row);
  if (nucleus) KeepNucleus(unscaled, options.top_p, row);
  if (filter && options.min_p > 0.0F) {
    const double min_p = options.min_p;
    // Logits far below the border are dropped without computing exp.
    const float floor = min_p > 1e-300 ? static_cast<float>(kernels::LogDouble(min_p)) - 1e-3F : kNever;
    for (float& value : row) {
      if (value < floor || kernels::ExpDouble(value) < min_p) value = kNever;
    }
  }
}

// exp(score) of some tokens over the sum of all; NaN and -infinity add nothing.
void Softmax(std::span<const float> scores, std::span<const int32_t> tokens, std::vector<float>* out) {
  if (out == nullptr) return;
  const double largest = scores[static_cast<size_t>(Argmax(scores))];
  const auto power = [&](double score) { return score > kNever ? kernels::ExpDouble(score - largest) : 0.0; };
  double sum = 0;
  for (const float score : scores) sum += power(score);
  out->clear();
  for (const int32_t token : tokens)
    out->push_back(static_cast<float>(power(scores[static_cast<size_t>(token)]) / sum));
}

void AddNoise(std::span<const float> noise, std::span<float> row) {
  HYDRANT_CHECK(noise.size() >= row.size());
  for (size_t t = 0; t < row.size(); ++t) row[t] += noise[t];
}

}  // namespace

NoiseCache::NoiseCache(const kernels::KernelTable* table, uint64_t seed, int32_t vocab_size, Stream stream)
    : table_(table), seed_(seed), vocab_size_(vocab_size), stream_(stream) {}

std::span<const float> NoiseCache::Row(int64_t position) {
  for (const Entry& entry : rows_) {
    if (entry.position == position) return entry.noise;
  }
  if (rows_.size() == static_cast<size_t>(kKeep)) {
    spare_.push_back(std::move(rows_.front().noise));  // the row that was asked for first
    rows_.erase(rows_.begin());
  }
  std::vector<float> noise;
  if (!spare_.empty()) {
    noise = std::move(spare_.back());
    spare_.pop_back();
  }
  noise.resize(static_cast<size_t>(vocab_size_));
  table_->gumbel_row(seed_, static_cast<uint32_t>(stream_), static_cast<uint32_t>(position), vocab_size_, noise.data());
  rows_.push_back({position, std::move(noise)});
  return rows_.back().noise;
}

void NoiseCache::Forget(int64_t position) {
  for (Entry& entry : rows_) {
    if (entry.position < position) spare_.push_back(std::move(entry.noise));
  }
  std::erase_if(rows_, [&](const Entry& entry) { return entry.position < position; });
}

// A Gumbel number g is -log(-log(u)).
void NoiseCache::Uniforms(int64_t position, std::span<double> out) const {
  std::vector<float> noise(out.size());
  table_->gumbel_row(seed_, static_cast<uint32_t>(Stream::kUniforms), static_cast<uint32_t>(position),
                     static_cast<int64_t>(noise.size()), noise.data());
  for (size_t i = 0; i < out.size(); ++i) {
    out[i] = kernels::ExpDouble(-kernels::ExpDouble(-static_cast<double>(noise[i])));
  }
}

void ProcessLogits(std::span<const float> logits, const SamplingOptions& options, const TokenHistory& history,
                   std::span<float> processed) {
  Process(logits, options, history, true, processed);
}

int32_t ChooseToken(std::span<const float> logits, const SamplingOptions& options, const TokenHistory& history,
                    NoiseCache& noise, int64_t position, std::vector<float>& scratch) {
  if (options.temperature <= 0 && !HasPenalties(options)) return Argmax(logits);
  scratch.resize(logits.size());
  Process(logits, options, history, true, scratch);
  if (options.temperature > 0) AddNoise(noise.Row(position), scratch);
  return Argmax(scratch);
}

int32_t Argmax(std::span<const float> values) {
  // Finds the first block with the largest maximum, then the first token in it: searching the whole row for its
  // maximum's place costs more than the maximum itself. (4,096 logits on Intel: 1.6 -> 0.5 us.)
  constexpr size_t kBlock = 512;
  float max = kNever;
  std::span<const float> block;
  size_t begin = 0;
  for (size_t t = 0; t < values.size(); t += kBlock) {
    const auto here = values.subspan(t, std::min(kBlock, values.size() - t));
    const float largest = Max(here);
    if (!(largest > max)) continue;
    max = largest;
    block = here;
    begin = t;
  }
  const auto at = static_cast<size_t>(std::ranges::find(block, max) - block.begin());
  return static_cast<int32_t>(begin + at);
}

void TopK(std::span<const float> values, int32_t k, std::vector<int32_t>& out) {
  out.clear();
  const size_t wanted = std::min(values.size(), static_cast<size_t>(std::max(k, 0)));
  if (wanted == 0) return;
  const auto value_of = [&](int32_t t) {
    const float value = values[static_cast<size_t>(t)];
    return value == value ? value : kNever;
  };
  const auto better = [&](int32_t a, int32_t b) {
    return value_of(a) != value_of(b) ? value_of(a) > value_of(b) : a < b;
  };
  constexpr size_t kScanUpTo = 64;
  if (wanted > kScanUpTo) {
    out.resize(values.size());
    for (size_t t = 0; t < values.size(); ++t) out[t] = static_cast<int32_t>(t);
    const auto end = out.begin() + static_cast<std::ptrdiff_t>(wanted);
    std::partial_sort(out.begin(), end, out.end(), better);
    out.resize(wanted);
    return;
  }
  // A list of the best so far; later tokens enter only when strictly better than its last, so ties keep the lower id.
  const auto insert = [&](int32_t t) {
    if (out.size() == wanted) out.pop_back();
    out.insert(std::upper_bound(out.begin(), out.end(), t, better), t);
  };
  for (size_t t = 0; t < wanted; ++t) insert(static_cast<int32_t>(t));
  float least = value_of(out.back());
  constexpr size_t kBlock = 32;
  for (size_t t = wanted; t < values.size(); t += kBlock) {
    const size_t end = std::min(values.size(), t + kBlock);
    int enters = 0;
    for (size_t i = t; i < end; ++i) enters |= values[i] > least ? 1 : 0;
    if (enters == 0) continue;
    for (size_t i = t; i < end; ++i) {
      if (!(values[i] > least)) continue;
      insert(static_cast<int32_t>(i));
      least = value_of(out.back());
    }
  }
}

std::optional<kernels::TopKRule> ScoreRule(const SamplingOptions& options, bool coupled, NoiseCache& noise,
                                           int64_t position, int32_t k) {
  if (!coupled) return kernels::TopKRule{.k = k};
  if (HasPenalties(options)) return std::nullopt;
  // At lower temperatures a logit divided by the temperature may be infinite. Noise has long had no influence there.
  constexpr float kLeastTemperature = 1e-30F;
  if (options.temperature < kLeastTemperature) return kernels::TopKRule{.k = k};
  if (HasFilters(options)) return std::nullopt;
  return kernels::TopKRule{.k = k, .temperature = options.temperature, .noise = noise.Row(position).data()};
}

void RankCandidates(std::span<const float> head_logits, const SamplingOptions& options, bool coupled,
                    const TokenHistory& history, NoiseCache& noise, int64_t position, int32_t k,
                    std::vector<float>& scratch, std::vector<int32_t>& out, std::vector<float>* probabilities) {
  const size_t vocab = head_logits.size();
  scratch.resize(2 * vocab);
  if (const std::optional<kernels::TopKRule> rule = ScoreRule(options, coupled, noise, position, k)) {
    std::span<const float> ranked = head_logits;
    if (rule->noise != nullptr) {
      for (size_t t = 0; t < vocab; ++t) scratch[t] = head_logits[t] / rule->temperature + rule->noise[t];
      ranked = std::span(scratch).first(vocab);
    }
    TopK(ranked, k, out);
    return Softmax(ranked, out, probabilities);
  }
  const std::span<float> scores(scratch.data(), vocab);
  Process(head_logits, options, history, true, scores);
  if (options.temperature > 0) AddNoise(noise.Row(position), scores);
  TopK(scores, k, out);
  // -infinity: dropped by a filter, or impossible for the head.
  std::erase_if(out, [&](int32_t token) { return scores[static_cast<size_t>(token)] == kNever; });
  const size_t wanted = std::min(vocab, static_cast<size_t>(std::max(k, 0)));
  Softmax(scores, out, probabilities);
  if (probabilities != nullptr) probabilities->resize(wanted, 0.0F);  // of what the filters drop
  if (out.size() == wanted) return;
  const std::span<float> rest(scratch.data() + vocab, vocab);
  Process(head_logits, options, history, false, rest);
  if (options.temperature > 0) AddNoise(noise.Row(position), rest);
  for (const int32_t token : out) rest[static_cast<size_t>(token)] = kNever;
  std::vector<int32_t> more;
  TopK(rest, static_cast<int32_t>(wanted), more);
  std::erase_if(more, [&](int32_t token) { return std::ranges::find(out, token) != out.end(); });
  more.resize(wanted - out.size());
  out.insert(out.end(), more.begin(), more.end());
}

}  // namespace hydrant::sampling
