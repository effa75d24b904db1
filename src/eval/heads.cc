// SPDX-License-Identifier: Apache-2.0
#include "eval/heads.h"

#include <algorithm>
#include <chrono>
#include <cstring>
#include <numeric>

#include "base/check.h"
#include "eval/random_weights.h"
#include "eval/tree_pass.h"
#include "hydrant/error.h"
#include "kernels/kernels.h"
#include "sampling/choose.h"

namespace hydrant::eval {
namespace {

using Clock = std::chrono::steady_clock;

constexpr int kMinRounds = 3;
constexpr double kVisitSeconds = 0.005;
constexpr size_t kMostCalls = 32;

double Milliseconds(Clock::time_point from) {
  return std::chrono::duration<double, std::milli>(Clock::now() - from).count();
}

// Median time of fn(), called for some milliseconds, at most kMostCalls times. Between two calls: between().
template <typename Fn, typename Between>
double TimeOf(const Fn& fn, const Between& between) {
  std::vector<double> times;
  const Clock::time_point visit = Clock::now();
  do {
    if (!times.empty()) between();
    const Clock::time_point start = Clock::now();
    fn();
    times.push_back(Milliseconds(start));
  } while (Milliseconds(visit) < 1000 * kVisitSeconds && times.size() < kMostCalls);
  return SpreadOf(std::move(times)).median;
}

template <typename Fn>
double TimeOf(const Fn& fn) {
  return TimeOf(fn, [] {});
}

// The drafter with one sequence: hidden rows go in, trees come out.
class Draft {
 public:
  Draft(const HeadsOptions& options, draft::Drafter* drafter, DType kv_type)
      : drafter_(drafter),
        pool_({.layers = drafter->KvLayers(), .dtype = kv_type}, BlocksFor(options)),
        shape_(options.tree),
        hidden_(options.committed, options.base->config.hidden_size),
        noise_(options.queue->table, 0, static_cast<int32_t>(options.base->config.vocab_size)) {
    for (int64_t r = 0; r < hidden_.rows(); ++r) {
      for (int64_t c = 0; c < hidden_.cols(); ++c) {
        hidden_.row(r)[c] = 0.1F * static_cast<float>((r * 31 + c * 17) % 41 - 20);
      }
    }
    tokens_.assign(static_cast<size_t>(options.committed), 1);
    Restart();
  }

  void Restart() {
    state_ = drafter_->NewState({});
    table_.Truncate(0);
    Commit();
  }
  void Commit() {
    const auto count = static_cast<int32_t>(tokens_.size());
    const bool fits = table_.Reserve(table_.length() + count);
    HYDRANT_CHECK(fits);
    table_.Append(count);
    const std::vector<kernels::ConstRows> hidden(drafter_->WantedLayers().size(), hidden_);
    const draft::CommitInput input{
        .state = state_.get(), .kv = {.table = &table_}, .tokens = tokens_, .hidden = hidden};
    drafter_->Commit(std::span(&input, 1));
  }
  void Propose(int32_t depth) {
    draft::ProposeInput input;
    input.state = state_.get();
    input.kv = {.table = &table_};
    input.output = output_;
    input.sampling = &sampling_;
    input.noise = &noise_;
    const int32_t nodes = shape_.whole().num_nodes();
    input.budget = {.max_nodes = nodes, .max_depth = depth, .max_slots = nodes + 1};
    input.shape = &shape_;
    input.tree = &tree_;
    drafter_->Propose(std::span(&input, 1));
  }
  void Logits(Matrix& out) { draft::HeadLogits(*drafter_, *state_, {.table = &table_}, {1}, out); }
  int32_t depths() const { return shape_.whole().max_depth(); }

 private:
  // Blocks for all the commits of a TimeOf(Commit) after Restart, and for drafted rows that have keys and values.
  static int32_t BlocksFor(const HeadsOptions& options) {
    const int32_t drafted = std::max(options.tree.num_nodes(), tree::Topology::kMaxDepth);
    return (options.committed * static_cast<int32_t>(kMostCalls + 1) + drafted) / kernels::kBlockPositions + 1;
  }

  draft::Drafter* drafter_;
  kv::BlockPool pool_;
  kv::BlockTable table_{&pool_};
  draft::StaticTree shape_;
  tree::TokenTree tree_;
  Matrix hidden_;
  sampling::NoiseCache noise_;
  SamplingOptions sampling_;
  std::vector<int32_t> output_ = {1}, tokens_;
  std::unique_ptr<draft::DraftState> state_;
};

// Compares the logits of the same heads by the target's table and by the portable one.
bool Check(const HeadsOptions& options) {
  Matrix found, expected;
  Draft(options, options.drafter, DType::kF32).Logits(found);
  Draft(options, options.portable, DType::kF32).Logits(expected);
  for (int64_t head = 0; head < expected.rows(); ++head) {
    if (std::memcmp(expected.row(head), found.row(head), static_cast<size_t>(found.cols()) * sizeof(float)) == 0)
      continue;
    throw InternalError(
        "head " + std::to_string(head + 1) + " on " + options.queue->table->name + " differs from the portable one",
        "this is a bug in hydrant; please report it with the command that led here");
  }
  return true;
}

// Times of one part, a value per round.
struct PartSamples {
  std::vector<double> ms, read_ms, ratio, of_step;

  void Add(double time, double bytes, double read_gb_s, double step) {
    ms.push_back(time);
    read_ms.push_back(1e-6 * bytes / read_gb_s);
    ratio.push_back(read_ms.back() > 0 ? time / read_ms.back() : 0);
    of_step.push_back(time / step);
  }
};

DraftPart PartOf(std::string name, int64_t bytes, PartSamples samples) {
  return {.name = std::move(name),
          .bytes = bytes,
          .ms = SpreadOf(std::move(samples.ms)),
          .read_ms = SpreadOf(std::move(samples.read_ms)),
          .ratio = SpreadOf(std::move(samples.ratio)).median,
          .of_step = SpreadOf(std::move(samples.of_step)).median};
}

// Networks that go level by level count what they read while they draft.
bool GoesByLevel(const HeadsOptions& options) { return options.drafter->GrowsTrees(); }

// One network for all levels (EAGLE, ReDrafter, a draft model).
bool IsOneNetwork(const HeadsOptions& options) { return options.part_weights.size() <= 2; }

// What each level reads. The last entry is the sum.
std::vector<int64_t> LevelBytes(const HeadsOptions& options, Draft& draft) {
  std::vector<int64_t> bytes(1, 0);
  int64_t all = 0;
  for (int32_t depth = 1; depth <= draft.depths(); ++depth) {
    draft.Restart();
    const uint64_t before = options.drafter->bytes_read();
    draft.Propose(depth);
    const auto read = static_cast<int64_t>(options.drafter->bytes_read() - before);
    bytes.push_back(read - all);
    all = read;
  }
  bytes.push_back(all);
  return bytes;
}

// Shares the drafter's bytes out over its heads in proportion to their weights. Heads below the tree's depth have no
// part. The last entry is the sum.
std::vector<int64_t> PartBytes(const HeadsOptions& options, int32_t depths) {
  const std::vector<int64_t>& weights = options.part_weights;
  const auto total = static_cast<double>(std::accumulate(weights.begin(), weights.end(), int64_t{0}));
  const auto read = static_cast<double>(options.drafter->weight_bytes() - options.drafter->table_bytes());
  std::vector<int64_t> bytes;
  for (size_t part = 0; part <= static_cast<size_t>(depths); ++part) {
    const double share = static_cast<double>(weights[std::min(part, weights.size() - 1)]) / total;
    bytes.push_back(static_cast<int64_t>(read * share));
  }
  bytes.push_back(std::accumulate(bytes.begin(), bytes.end(), int64_t{0}));
  return bytes;
}

// Milliseconds of one round.
struct RoundTimes {
  double step = 0, absorb = 0;
  std::vector<double> propose;  // by depth
};

// Least time of drafting to a depth.
double Least(const std::vector<RoundTimes>& rounds, size_t depth) {
  if (depth == 0) return 0;
  double least = rounds.front().propose[depth - 1];
  for (const RoundTimes& round : rounds) least = std::min(least, round.propose[depth - 1]);
  return least;
}

RoundTimes RunRound(TreePass& pass, Draft& draft) {
  RoundTimes round;
  round.step = TimeOf([&pass] { pass.Tree({0}); });
  draft.Restart();
  round.absorb = TimeOf([&draft] { draft.Commit(); });
  // A network that goes level by level runs what was committed with its first level.
  for (int32_t depth = 1; depth <= draft.depths(); ++depth) {
    draft.Restart();
    round.propose.push_back(TimeOf([&draft, depth] { draft.Propose(depth); }, [&draft] { draft.Commit(); }));
  }
  return round;
}

// A head's own time is the time of drafting to its depth less that of drafting to the depth before.
void AddRound(const RoundTimes& round, const std::vector<int64_t>& bytes, double read,
              std::vector<PartSamples>& samples) {
  samples[0].Add(round.absorb, static_cast<double>(bytes[0]), read, round.step);
  for (size_t depth = 1; depth <= round.propose.size(); ++depth) {
    const double head = round.propose[depth - 1] - (depth > 1 ? round.propose[depth - 2] : 0);
    samples[depth].Add(head, static_cast<double>(bytes[depth]), read, round.step);
  }
  samples.back().Add(round.absorb + round.propose.back(), static_cast<double>(bytes.back()), read, round.step);
}

std::vector<DraftPart> PartsOf(const std::vector<RoundTimes>& rounds, const std::vector<int64_t>& bytes,
                               const HeadsOptions& options, std::vector<PartSamples> samples) {
  const bool has_prefix = !options.part_weights.empty() && options.part_weights[0] != 0;
  const bool is_one = IsOneNetwork(options);
  std::vector<DraftPart> parts;
  for (size_t part = has_prefix ? 0 : 1; part < samples.size(); ++part) {
    std::string name = part == 0 ? "prefix layer" : (is_one ? "level " : "head ") + std::to_string(part);
    if (part + 1 == samples.size()) name = "all";
    parts.push_back(PartOf(std::move(name), bytes[part], std::move(samples[part])));
    // The smallest of many differences of noisy times says nothing. The difference of the smallest times does, unless
    // something disturbed one of them in every round.
    Spread& ms = parts.back().ms;
    if (part > 0 && part < samples.size() - 1)
      ms.min = std::min(ms.median, Least(rounds, part) - Least(rounds, part - 1));
  }
  return parts;
}

}  // namespace

HeadsResult MeasureHeads(const HeadsOptions& options) {
  HeadsResult result;
  const auto note = [&options](double share, const std::string& text) {
    return !options.on_progress || options.on_progress(share, text);
  };
  if (options.portable != nullptr && note(0, "checking")) result.checked = Check(options);
  TreePass pass(options.queue, options.base, options.kv_type, options.context, 1);
  Draft draft(options, options.drafter, options.kv_type);
  result.step_bytes = BytesRead(*options.base);
  const std::vector<int64_t> bytes =
      GoesByLevel(options) ? LevelBytes(options, draft) : PartBytes(options, draft.depths());
  RooflineProbe probe(options.queue->pool, options.queue->table, bytes.back());
  std::vector<PartSamples> samples(bytes.size());
  std::vector<double> steps, reads;
  std::vector<RoundTimes> rounds;
  RunRound(pass, draft);  // pages, buffers
  double before = probe.ReadGbPerSecond();
  const Clock::time_point start = Clock::now();
  for (double share = 0; result.rounds < kMinRounds || share < 1; ++result.rounds) {
    rounds.push_back(RunRound(pass, draft));
    const RoundTimes& round = rounds.back();
    const double after = probe.ReadGbPerSecond(), read = (before + after) / 2;
    steps.push_back(round.step);
    reads.push_back(read);
    AddRound(round, bytes, read, samples);
    before = after;
    share = options.seconds > 0 ? 1e-3 * Milliseconds(start) / options.seconds : 1;
    if (!note(std::min(share, (result.rounds + 1.0) / kMinRounds), std::to_string(result.rounds + 1) + " rounds"))
      break;
  }
  result.step_ms = SpreadOf(std::move(steps));
  result.read_gb_s = SpreadOf(std::move(reads));
  result.parts = PartsOf(rounds, bytes, options, std::move(samples));
  return result;
}

std::vector<int64_t> PartWeights(const draft::HeadsFile& file, const model::ModelConfig& base, int64_t draft_rows) {
  const std::unique_ptr<draft::HeadWeights> heads = file.info.kind->make(file, base);
  std::vector<int64_t> weights(static_cast<size_t>(file.info.num_heads) + 1);
  for (const draft::HeadPlace& place : heads->Places()) {
    if (place.table != nullptr || (place.tied_to != nullptr && file.info.tied_blocks)) continue;
    if (file.info.rows->Find(place.role) == nullptr) continue;  // the base's lm head
    for (const checkpoint::TensorRow& row : draft::RowsOf(place, file.info, base, draft_rows)) {
      if (row.shape.size() != 2) continue;
      weights[static_cast<size_t>(place.head + 1)] += row.shape[0].value * row.shape[1].value;
    }
  }
  return weights;
}

}  // namespace hydrant::eval
