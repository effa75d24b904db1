// SPDX-License-Identifier: Apache-2.0
#include "eval/step.h"

#include <algorithm>
#include <chrono>
#include <cstring>

#include "base/check.h"
#include "eval/random_weights.h"
#include "eval/tree_pass.h"
#include "hydrant/error.h"
#include "kernels/kernels.h"

namespace hydrant::eval {
namespace {

using Clock = std::chrono::steady_clock;

constexpr int kMinRounds = 3;
// Passes shorter than this are repeated: the roofline's reading takes some 20 ms.
constexpr double kVisitSeconds = 0.02;

double Seconds(Clock::time_point from) { return std::chrono::duration<double>(Clock::now() - from).count(); }

bool SameRow(const Matrix& a, int64_t row_a, const Matrix& b, int64_t row_b) {
  return std::memcmp(a.row(row_a), b.row(row_b), static_cast<size_t>(a.cols()) * sizeof(float)) == 0;
}

// Compares the rows on the path to the largest tree's last node: computed alone by the portable table, and among all
// rows.
bool Check(const StepOptions& options, int most) {
  model::ModelWeights one = *options.weights;
  one.layers.resize(1);
  one.config.num_layers = 1;
  const std::vector<int32_t> spine = PathToNode(most - 1);
  kernels::Queue portable{options.queue->pool, &kernels::PortableKernels()};
  TreePass slow(&portable, &one, DType::kF32, options.context, most),
      fast(options.queue, &one, DType::kF32, options.context, most);
  const model::ForwardOutput& expected = slow.Tree(spine);
  for (const int rows : options.rows) {
    const model::ForwardOutput& found = fast.Tree(AllNodes(rows));
    for (size_t i = 0; i < spine.size() && spine[i] < rows; ++i) {
      const int64_t e = slow.RowOf(spine[i]), f = fast.RowOf(spine[i]);
      if (SameRow(expected.hidden, e, found.hidden, f) && SameRow(expected.logits, e, found.logits, f)) continue;
      throw InternalError("a pass of " + std::to_string(rows) + " rows on " + options.queue->table->name +
                              " differs from the portable one in row " + std::to_string(f),
                          "this is a bug in hydrant; please report it with the command that led here");
    }
  }
  return true;
}

struct Reading {
  double read = 0, multiply = 0;  // GB/s, GMAC/s
};

// Timings of one kind of pass.
struct Samples {
  std::vector<double> ms, roofline_ms, share;
  std::vector<double> by_round;  // median ms of the round
};

PassTime TimeOf(int rows, Samples samples, const Samples* one_row) {
  PassTime time{.rows = rows,
                .passes = static_cast<int>(samples.ms.size()),
                .ms = SpreadOf(std::move(samples.ms)),
                .roofline_ms = SpreadOf(std::move(samples.roofline_ms)),
                .share = SpreadOf(std::move(samples.share))};
  if (one_row == nullptr) return time;
  std::vector<double> ratios;
  for (size_t i = 0; i < samples.by_round.size(); ++i) ratios.push_back(samples.by_round[i] / one_row->by_round[i]);
  time.ratio = SpreadOf(std::move(ratios)).median;
  return time;
}

class StepMeasurement {
 public:
  explicit StepMeasurement(const StepOptions& options)
      : options_(options),
        most_(std::max(options.rows.empty() ? 1 : *std::max_element(options.rows.begin(), options.rows.end()), 1)) {
    const model::ModelConfig& config = options.weights->config;
    result_.weight_bytes = BytesRead(*options.weights);
    result_.kv_bytes = 2 * config.num_layers * config.num_kv_heads * config.head_dim * options.context *
                       static_cast<int64_t>(SizeOf(options.kv_type));
    result_.macs_per_row = MacsPerRow(*options.weights);
  }

  StepResult Run() {
    if (options_.check && !options_.rows.empty()) {
      Note(0, "checking");
      result_.checked = Check(options_, most_);
    }
    const int slots = std::max(most_, options_.prefill - options_.context);
    TreePass bench(options_.queue, options_.weights, options_.kv_type, options_.context, slots);
    RooflineProbe probe(options_.queue->pool, options_.queue->table, result_.weight_bytes + result_.kv_bytes);
    const size_t kinds = options_.rows.size() + (options_.prefill > 0 ? 1 : 0);
    std::vector<Samples> samples(kinds);
    const Clock::time_point start = Clock::now();
    double share = 0;
    for (; !stopped_ && (result_.rounds < kMinRounds || share < 1); ++result_.rounds) {
      std::vector<Samples> whole = samples;  // rounds
      try {
        for (size_t i = 0; i < kinds; ++i) RunKind(bench, probe, i, &samples[i]);
      } catch (const Stopped&) {
        if (result_.rounds == 0) throw;
        samples = std::move(whole);
        break;
      }
      share = options_.seconds > 0 ? Seconds(start) / options_.seconds : 1;
      Note(std::min(share, (result_.rounds + 1.0) / kMinRounds), std::to_string(result_.rounds + 1) + " rounds");
    }
    Collect(std::move(samples));
    return result_;
  }

 private:
  void Note(double share, const std::string& note) {
    if (options_.on_progress && !options_.on_progress(share, note)) stopped_ = true;
  }

  Reading Read(RooflineProbe& probe) {
    const Reading reading{probe.ReadGbPerSecond(), probe.MultiplyGmacPerSecond(MultiplyTypeOf(options_.format))};
    reads_.push_back(reading.read);
    multiplies_.push_back(reading.multiply);
    return reading;
  }

  void RunKind(TreePass& bench, RooflineProbe& probe, size_t kind, Samples* samples) {
    if (!IsPrefill(kind)) WarmUp(bench, options_.rows[kind]);
    const Reading before = Read(probe);
    const std::vector<double> seconds = Visit(bench, kind);
    const Reading after = Read(probe);
    Record(seconds, kind, {(before.read + after.read) / 2, (before.multiply + after.multiply) / 2}, samples);
  }

  bool IsPrefill(size_t kind) const { return kind == options_.rows.size(); }

  // Before the passes that are timed comes one that is not, as the steps of a text follow each other. After a long pass
  // that multiplies, memory is slow for some hundred milliseconds. (Intel with AMX, 7B: one row took 131 ms right after
  // a prompt of 512, and 123 ms behind such a pass.)
  static void WarmUp(TreePass& bench, int rows) { bench.Tree(AllNodes(rows)); }

  std::vector<double> Visit(TreePass& bench, size_t kind) const {
    const std::vector<int32_t> nodes = IsPrefill(kind) ? std::vector<int32_t>() : AllNodes(options_.rows[kind]);
    std::vector<double> seconds;
    const Clock::time_point visit = Clock::now();
    do {
      const Clock::time_point start = Clock::now();
      if (IsPrefill(kind)) {
        bench.Prefill(options_.prefill, options_.prefill_chunk);
      } else {
        bench.Tree(nodes);
      }
      seconds.push_back(Seconds(start));
    } while (Seconds(visit) < kVisitSeconds);
    return seconds;
  }

  // A prompt reads the weights once for each chunk, and multiplies the lm head for its last row only.
  double RooflineMs(size_t kind, const Reading& reading) const {
    double bytes = static_cast<double>(result_.weight_bytes + result_.kv_bytes), macs = 0;
    if (IsPrefill(kind)) {
      const int chunks = (options_.prefill + options_.prefill_chunk - 1) / options_.prefill_chunk;
      bytes = static_cast<double>(result_.weight_bytes) * chunks;
      macs = PrefillMacs();
    } else {
      macs = static_cast<double>(result_.macs_per_row) * options_.rows[kind];
    }
    const double read_ms = 1e-6 * bytes / reading.read;
    if (reading.multiply <= 0) return read_ms;
    return std::max(read_ms, 1e-6 * macs * ProductsOf(options_.format) / reading.multiply);
  }

  double PrefillMacs() const {
    const model::ModelConfig& config = options_.weights->config;
    const auto lm_head = static_cast<double>(config.vocab_size * config.hidden_size);
    return (static_cast<double>(result_.macs_per_row) - lm_head) * options_.prefill + lm_head;
  }

  void Record(const std::vector<double>& seconds, size_t kind, const Reading& reading, Samples* samples) const {
    std::vector<double> ms;
    for (const double s : seconds) ms.push_back(1000 * s);
    const double roofline = RooflineMs(kind, reading);
    for (const double m : ms) {
      samples->ms.push_back(m);
      samples->roofline_ms.push_back(roofline);
      samples->share.push_back(roofline / m);
    }
    samples->by_round.push_back(SpreadOf(std::move(ms)).median);
  }

  void Collect(std::vector<Samples> samples) {
    const auto one = std::find(options_.rows.begin(), options_.rows.end(), 1);
    const Samples one_row =
        one == options_.rows.end() ? Samples() : samples[static_cast<size_t>(one - options_.rows.begin())];
    for (size_t i = 0; i < samples.size(); ++i) {
      const Samples* base = IsPrefill(i) || one_row.by_round.empty() ? nullptr : &one_row;
      PassTime time = TimeOf(IsPrefill(i) ? options_.prefill : options_.rows[i], std::move(samples[i]), base);
      if (IsPrefill(i)) {
        result_.prefill = time;
      } else {
        result_.rows.push_back(time);
      }
    }
    result_.read_gb_s = SpreadOf(std::move(reads_));
    result_.multiply_gmac_s = SpreadOf(std::move(multiplies_));
  }

  const StepOptions& options_;
  int most_;
  StepResult result_;
  std::vector<double> reads_, multiplies_;
  bool stopped_ = false;
};

}  // namespace

kernels::PeakType MultiplyTypeOf(quant::WeightFormat format) {
  return quant::IsPacked(format) ? kernels::PeakType::kInt8 : kernels::PeakType::kF32;
}

int ProductsOf(quant::WeightFormat format) { return quant::HasTwoPlanes(format) ? 2 : 1; }

StepResult MeasureStep(const StepOptions& options) { return StepMeasurement(options).Run(); }

}  // namespace hydrant::eval
