// SPDX-License-Identifier: Apache-2.0
#include "train/fit/run_loop.h"

#include <algorithm>
#include <cmath>
#include <filesystem>
#include <utility>

#include "base/atomic_file.h"
#include "base/paths.h"
#include "hydrant/error.h"
#include "train/fit/blas.h"
#include "train/fit/ranks.h"

namespace hydrant::train {

using base::Json;

RunLoop::RunLoop(const RunOptions& options, const std::vector<std::string>& made, const std::string& base_folder)
    : options_(options),
      alone_(parallel::MakeSingle()),
      ranks_(options.ranks != nullptr ? *options.ranks : *alone_),
      is_first_(ranks_.rank() == 0),
      record_(options.out + "/training") {
  if (is_first_) PrepareFolder(made, base_folder);
}

// A run that is there is gone on with or begun anew only where the user says so.
void RunLoop::PrepareFolder(const std::vector<std::string>& made, const std::string& base_folder) {
  if (options_.out.empty()) throw UserError("RunOptions::out is empty, expected a folder");
  const bool is_there = base::IsThere(CheckpointFile());
  if (options_.resume && !is_there) {
    throw FileError(options_.out, "holds no run to go on with: " + CheckpointFile() + " is missing");
  }
  std::error_code error;
  for (const std::string& folder : made) {
    if (!base_folder.empty() && std::filesystem::equivalent(folder, base_folder, error)) {
      throw FileError(folder, "is the base model, which the run would write over", "choose another RunOptions::out");
    }
    const bool is_used = is_there || base::IsThere(folder + "/config.json");
    if (!is_used || options_.resume || options_.replace) continue;
    throw FileError(is_there ? options_.out : folder, "holds a run or a model already",
                    "go on with it by RunOptions::resume, or begin anew by RunOptions::replace");
  }
  std::filesystem::create_directories(record_, error);
  if (error) throw FileError(record_, "cannot be made: " + error.message());
  lock_ = std::make_unique<RunLock>(record_);
}

void RunLoop::Stage(const std::string& name, double share) const {
  if (is_first_ && options_.on_stage) options_.on_stage(name, share);
  if (options_.stop != nullptr && *options_.stop) throw Stopped();
}

void RunLoop::Note(const std::string& text) const {
  if (is_first_ && options_.note) options_.note(text);
}

void RunLoop::Warn(const std::string& text) const {
  if (is_first_ && options_.warn) options_.warn(text);
}

void RunLoop::TakeThreads(int threads) const {
  SetLibraryThreads(ranks_, threads);
  if (!IsReferenceBlas(BlasFile())) return;
  Warn("libtorch multiplies with the reference BLAS (" + BlasFile() +
       "), which is some thirty times as slow as others; on Debian install libopenblas0-pthread");
}

RunDataOptions RunLoop::DataOptions() const {
  return {.files = options_.data,
          .template_name = options_.template_name,
          .learns_prompts = options_.learns_prompts,
          .tokens = options_.tokens,
          .row_tokens = options_.row_tokens,
          .rows = options_.rows,
          .held_out = options_.eval_every > 0 ? options_.eval_texts : 0,
          .seed = options_.seed,
          .progress = [this](double share) { Stage("reading text", share); },
          .warn = is_first_ ? options_.warn : nullptr};
}

void RunLoop::Agree(Json settings) {
  settings_ = std::move(settings);
  CheckSameSettings(ranks_, settings_);
}

RunReport RunLoop::Run(Trainee& trainee, const RunData& data, std::vector<TrainedPart> parts, int64_t all_steps) {
  parts_ = std::move(parts);
  report_ = {.all_steps = all_steps};
  if (options_.resume && is_first_) report_.steps = ReadCheckpoint(CheckpointFile(), parts_, settings_);
  TakeStart(ranks_, parts_, report_.steps);
  if (is_first_) metrics_ = std::make_unique<MetricsFile>(metrics_file(), report_.steps);
  started_at_ = report_.steps;
  start_ = std::chrono::steady_clock::now();
  Loop(trainee, data);
  report_.seconds = Seconds();
  return report_;
}

void RunLoop::Loop(Trainee& trainee, const RunData& data) {
  int64_t& step = report_.steps;
  for (int32_t epoch = 0; step < report_.all_steps; ++epoch) {
    const int64_t first = data.StepsOf(epoch), last = std::min(report_.all_steps, data.StepsOf(epoch + 1));
    while (step < last) {
      ranks_.set_step(step);
      if (StopIsWanted()) {
        report_.stopped = true;
        return Save(trainee);
      }
      const Batch batch = data.order->at(epoch, step - first);
      for (const Row& row : batch.rows) report_.tokens += row.tokens;
      const bool is_last = step + 1 == report_.all_steps;
      const bool is_logged = (step + 1) % options_.log_every == 0 || step == 0 || is_last;
      const std::string words = trainee.Step({.step = step, .epoch = epoch, .is_logged = is_logged},
                                             ShareOf(batch, ranks_.rank(), ranks_.size()));
      ++step;
      Progress(epoch, words);
      const bool is_measured = options_.eval_every > 0 && (step % options_.eval_every == 0 || is_last);
      if (is_measured || is_last || step % options_.save_every == 0) Save(trainee);
      if (is_measured && is_first_ && !data.held_out.empty()) trainee.Evaluate(step);
      if (is_last && is_first_) WritePlot();
    }
  }
}

// All ranks stop after the same step, whichever of them was told to.
bool RunLoop::StopIsWanted() const { return ranks_.MaxReduce(options_.stop != nullptr && *options_.stop ? 1 : 0) != 0; }

void RunLoop::Save(Trainee& trainee) const {
  CheckSameParameters(ranks_, parts_);
  if (!is_first_) return;
  WriteCheckpoint(CheckpointFile(), parts_, report_.steps, settings_);
  WritePlot();
  trainee.Write(report_.steps);
}

void RunLoop::WritePlot() const {
  const std::string plot = PlotOf(metrics_file());
  base::AtomicFile file(record_ + "/loss.svg");
  file.Write(plot.data(), plot.size());
  file.Keep();
}

double RunLoop::Seconds() const {
  return std::chrono::duration<double>(std::chrono::steady_clock::now() - start_).count();
}

void RunLoop::Log(const StepPlace& place, const std::string& name, const Json& figures) {
  if (!is_first_) return;
  Json line = {{"step", place.step + 1},
               {"epoch", place.epoch},
               {"arch", name},
               {"tokens_per_second", static_cast<double>(report_.tokens) / Seconds()}};
  line.update(figures);
  metrics_->Add(line);
}

void RunLoop::LogMeasured(int64_t steps, const std::string& name, const Json& figures) {
  Json line = {{"step", steps}, {"arch", name}};
  line.update(figures);
  metrics_->Add(line);
}

void RunLoop::Progress(int32_t epoch, const std::string& words) const {
  if (!is_first_ || !options_.on_progress) return;
  const double per_step = Seconds() / static_cast<double>(report_.steps - started_at_);
  options_.on_progress({.step = report_.steps,
                        .steps = report_.all_steps,
                        .epoch = epoch,
                        .tokens_per_second = static_cast<double>(report_.tokens) / Seconds(),
                        .seconds_left = per_step * static_cast<double>(report_.all_steps - report_.steps),
                        .text = words});
}

void CheckRange(const std::string& option, int64_t value, int64_t least, int64_t most) {
  if (value >= least && value <= most) return;
  throw UserError(option + " is " + std::to_string(value) + ", expected " + std::to_string(least) + " to " +
                  std::to_string(most));
}

void CheckRunOptions(const RunOptions& options) {
  CheckRange("RunOptions::row_tokens", options.row_tokens, 8, 1 << 20);
  CheckRange("RunOptions::rows", options.rows, 1, 1 << 16);
  CheckRange("RunOptions::log_every", options.log_every, 1, 1 << 30);
  CheckRange("RunOptions::save_every", options.save_every, 1, 1 << 30);
  CheckRange("RunOptions::eval_every", options.eval_every, 0, 1 << 30);
  CheckRange("RunOptions::eval_texts", options.eval_texts, 1, 1 << 16);
  if (options.data.empty()) throw UserError("RunOptions::data is empty, expected files of text");
}

void CheckPositions(const model::ModelConfig& base, int32_t row_tokens) {
  if (row_tokens <= base.max_positions) return;
  throw UserError("RunOptions::row_tokens is " + std::to_string(row_tokens) + ", and the base has " +
                      std::to_string(base.max_positions) + " positions",
                  "choose a smaller number");
}

// The parameters are spoilt then: the checkpoint on the disk is the last good one.
void CheckFinite(const std::string& name, double loss, double gradient_norm) {
  if (std::isfinite(loss) && std::isfinite(gradient_norm)) return;
  throw UserError("the loss of " + name + " is no finite number any more",
                  "go on from the last checkpoint with a lower Recipe::peak_rate or products in f32; that checkpoint "
                  "is whole");
}

}  // namespace hydrant::train
