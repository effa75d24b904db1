// SPDX-License-Identifier: Apache-2.0
#include "train/fit/run_loop.h"

#include <algorithm>
#include <cmath>
#include <filesystem>
#include <utility>

#include "base/atomic_file.h"
#include "base/paths.h"
#include "checkpoint/tensor_source.h"
#include "hydrant/error.h"
#include "train/fit/blas.h"
#include "train/fit/ranks.h"

namespace hydrant::train {

using base::Json;

RunLoop::RunLoop(const RunOptions& options, const std::vector<std::string>& made, const std::vector<std::string>& read)
    : options_(options),
      alone_(parallel::MakeSingle()),
      ranks_(options.ranks != nullptr ? *options.ranks : *alone_),
      is_first_(ranks_.rank() == 0),
      record_(options.out + "/training") {
  if (is_first_) PrepareFolder(made, read);
}

// A run that is there is gone on with or begun anew only where the user says so.
void RunLoop::PrepareFolder(const std::vector<std::string>& made, const std::vector<std::string>& read) {
  if (options_.out.empty()) throw UserError("RunOptions::out is empty, expected a folder");
  const bool is_there = base::IsThere(CheckpointFile()), is_of_run = base::IsThere(record_);
  if (options_.resume && !is_there) {
    throw FileError(options_.out, "holds no run to go on with: " + CheckpointFile() + " is missing");
  }
  std::error_code error;
  for (const std::string& folder : made) {
    for (const std::string& model : read) {
      if (model.empty() || !std::filesystem::equivalent(folder, model, error)) continue;
      throw FileError(folder, "is a model that the run reads and would write over", "choose another RunOptions::out");
    }
    const std::vector<std::string> models = checkpoint::ModelFilesIn(folder);
    if (!is_of_run && !models.empty()) {
      throw FileError(folder + "/" + models.front(), "is of a model that no run has made, and would be written over",
                      "choose another RunOptions::out");
    }
    const bool is_used = is_there || base::IsThere(folder + "/config.json") || !checkpoint::HeadFilesIn(folder).empty();
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
  Json all = settings_;
  all["save_every"] = options_.save_every;
  all["eval_every"] = options_.eval_every;
  CheckSameSettings(ranks_, all);
}

RunReport RunLoop::Run(Trainee& trainee, const RunData& data, std::vector<TrainedPart> parts, int64_t all_steps) {
  parts_ = std::move(parts);
  report_ = {.all_steps = all_steps};
  if (options_.resume && is_first_) report_.steps = ReadCheckpoint(CheckpointFile(), parts_, settings_);
  if (!options_.resume && is_first_) ReplaceOldRun();
  TakeStart(ranks_, parts_, report_.steps);
  if (is_first_) metrics_ = std::make_unique<MetricsFile>(metrics_file(), report_.steps);
  started_at_ = report_.steps;
  start_ = std::chrono::steady_clock::now();
  if (options_.eval_every > 0 && data.held_out.empty())
    Warn("the text is too short to hold some of it out: nothing is measured");
  for (const TrainedPart& part : parts_) WarnOfWarmup(part);
  if (options_.resume && is_first_) CatchUp(trainee, data);
  Loop(trainee, data);
  report_.seconds = Seconds();
  return report_;
}

void RunLoop::WarnOfWarmup(const TrainedPart& part) const {
  const Schedule& schedule = part.trained->schedule();
  if (schedule.warmup_steps < schedule.total_steps) return;
  Warn(part.name + ": " + std::to_string(schedule.total_steps) + " steps, and the learning rate rises for " +
       std::to_string(schedule.warmup_steps) +
       ", so it never reaches its peak; take more text, more epochs or a smaller Recipe::warmup_steps");
}

// The checkpoint of a run that was there makes room for one of this run, in one moment: it is there whole where this
// run cannot begin, and is not gone on from where this one ends early.
void RunLoop::ReplaceOldRun() const {
  if (!base::IsThere(CheckpointFile())) return;
  WriteCheckpoint(CheckpointFile(), parts_, 0, settings_);
  for (const char* name : {"/loss.svg", "/best"}) {
    std::error_code error;
    std::filesystem::remove_all(record_ + name, error);
    if (error) throw FileError(record_ + name, "of a former run cannot be removed: " + error.message());
  }
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
      const bool is_measured = IsMeasured(data);
      if (is_measured || is_last || step % options_.save_every == 0) Save(trainee);
      if (is_measured && is_first_) Measure(trainee);
      if (is_last && is_first_) WritePlot();
    }
  }
}

// All ranks stop after the same step, whichever of them was told to.
bool RunLoop::StopIsWanted() const {
  const bool here = report_.stopped || (options_.stop != nullptr && *options_.stop);
  return ranks_.MaxReduce(here ? 1 : 0) != 0;
}

bool RunLoop::IsMeasured(const RunData& data) const {
  const bool is_due = options_.eval_every > 0 && report_.steps > 0 &&
                      (report_.steps % options_.eval_every == 0 || report_.steps == report_.all_steps);
  return is_due && !data.held_out.empty();
}

// What an earlier call did not come to after its last checkpoint, or did with another file format.
void RunLoop::CatchUp(Trainee& trainee, const RunData& data) {
  trainee.Write(report_.steps);
  if (IsMeasured(data) && !WasMeasured(metrics_file(), report_.steps)) Measure(trainee);
}

// Its lines are written together: a measurement is there whole, or is made again when the run goes on.
void RunLoop::Measure(Trainee& trainee) {
  try {
    trainee.Evaluate(report_.steps);
    for (const Json& line : measured_) metrics_->Add(line);
  } catch (const Stopped&) {
    report_.stopped = true;  // the checkpoint is written
  }
  measured_.clear();
}

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
  measured_.push_back(std::move(line));
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
