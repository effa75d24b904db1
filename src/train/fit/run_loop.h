// SPDX-License-Identifier: Apache-2.0
// What every training run does besides its own steps: the folder and its lock, checkpoints and going on from them,
// metrics, progress, stopping, and the same on several ranks.
#pragma once

#include <chrono>
#include <memory>
#include <string>
#include <vector>

#include "base/json.h"
#include "train/fit/checkpoint.h"
#include "train/fit/metrics.h"
#include "train/run_data.h"
#include "train/run_lock.h"
#include "train/run_options.h"

namespace hydrant::train {

// Where a run is. `step` counts from 0.
struct StepPlace {
  int64_t step = 0;
  int32_t epoch = 0;
  bool is_logged = false;  // losses are asked for
};

// What a run trains.
class Trainee {
 public:
  virtual ~Trainee() = default;
  // One step on this rank's share of `batch`, which may be empty. Returns what the progress line says where the place
  // is logged.
  virtual std::string Step(const StepPlace& place, const Batch& share) = 0;
  // Writes what the run makes, as it is after `steps` steps. On rank 0.
  virtual void Write(int64_t steps) = 0;
  // Measures on held-out texts, after Write. On rank 0.
  virtual void Evaluate(int64_t steps) = 0;
};

class RunLoop {
 public:
  // Makes the folder and takes its lock, on rank 0. `options` must outlive it. `made`: the folders that the run will
  // write; `read`: models that it reads. Throws UserError and FileError: no folder, a run or a model that is there and
  // may not be replaced, a model that is read and would be written over, no run to go on with.
  RunLoop(const RunOptions& options, const std::vector<std::string>& made, const std::vector<std::string>& read);

  const RunOptions& options() const { return options_; }
  parallel::Communicator& ranks() const { return ranks_; }
  bool is_first() const { return is_first_; }  // of the ranks: writes, and tells the user
  // The folder of what a run keeps beside what it makes.
  const std::string& record() const { return record_; }
  std::string metrics_file() const { return record_ + "/metrics.jsonl"; }

  // What the run is doing, for the user. Throws where the run is to stop.
  void Stage(const std::string& name, double share) const;
  void Note(const std::string& text) const;
  void Warn(const std::string& text) const;
  // Threads of libtorch and its BLAS; says so where that is a slow one.
  void TakeThreads(int threads) const;
  // With the base's tokenizer.
  RunData ReadData(const load::LoadedModel& base) const { return ReadRunData(base, DataOptions()); }
  RunData ReadData(const TextModel& model) const { return ReadRunData(model, DataOptions()); }

  // What ranks, and a run and its checkpoint, must have in common. Throws UserError where this rank has others than the
  // first. Before Run.
  void Agree(base::Json settings);
  // All steps that are left.
  RunReport Run(Trainee& trainee, const RunData& data, std::vector<TrainedPart> parts, int64_t all_steps);

  // Add a line to metrics.jsonl: of a step, and of what was measured after `steps` steps.
  void Log(const StepPlace& place, const std::string& name, const base::Json& figures);
  void LogMeasured(int64_t steps, const std::string& name, const base::Json& figures);

 private:
  void PrepareFolder(const std::vector<std::string>& made, const std::vector<std::string>& read);
  RunDataOptions DataOptions() const;
  void ReplaceOldRun() const;
  void WarnOfWarmup(const TrainedPart& part) const;
  void Loop(Trainee& trainee, const RunData& data);
  bool StopIsWanted() const;
  bool IsMeasured(const RunData& data) const;  // after the steps that are done
  void CatchUp(Trainee& trainee, const RunData& data);
  void Measure(Trainee& trainee);
  void Save(Trainee& trainee) const;
  void WritePlot() const;
  void Progress(int32_t epoch, const std::string& words) const;
  std::string CheckpointFile() const { return record_ + "/checkpoint.safetensors"; }
  double Seconds() const;

  const RunOptions& options_;
  std::unique_ptr<parallel::Communicator> alone_;
  parallel::Communicator& ranks_;
  const bool is_first_;
  std::string record_;
  std::unique_ptr<RunLock> lock_;
  std::unique_ptr<MetricsFile> metrics_;
  base::Json settings_;
  std::vector<base::Json> measured_;  // lines of the measurement that goes on
  std::vector<TrainedPart> parts_;
  std::chrono::steady_clock::time_point start_;
  int64_t started_at_ = 0;  // steps that an earlier call did
  RunReport report_;
};

// Throw UserError naming the first option that is out of range.
void CheckRunOptions(const RunOptions& options);
void CheckRange(const std::string& option, int64_t value, int64_t least, int64_t most);
// Throws UserError for texts that are longer than the base's positions.
void CheckPositions(const model::ModelConfig& base, int32_t row_tokens);
// Throws UserError where the loss or the gradient of `name` is no finite number any more.
void CheckFinite(const std::string& name, double loss, double gradient_norm);

}  // namespace hydrant::train
