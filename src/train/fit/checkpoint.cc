// SPDX-License-Identifier: Apache-2.0
#include "train/fit/checkpoint.h"

#include <cstring>
#include <map>
#include <memory>
#include <optional>

#include "base/json.h"
#include "base/json_difference.h"
#include "checkpoint/safetensors_writer.h"
#include "checkpoint/tensor_source.h"
#include "hydrant/error.h"

namespace hydrant::train {
namespace {

constexpr const char *kStep = "step", *kSettings = "settings";

struct Part {
  std::string name;
  at::Tensor numbers;
};

std::vector<Part> PartsOf(const std::vector<TrainedPart>& trained) {
  std::vector<Part> parts;
  for (const TrainedPart& part : trained) {
    parts.push_back({part.name + ".values", part.trained->parameters().values()});
    parts.push_back({part.name + ".mean", part.trained->optimizer().mean()});
    parts.push_back({part.name + ".variance", part.trained->optimizer().variance()});
  }
  return parts;
}

void CheckSettings(const std::string& path, const base::Json& found, const base::Json& expected) {
  // Most of what changes the data's hash has a name of its own.
  base::Json named = expected;
  named.erase("data");
  const std::optional<base::JsonDifference> difference = base::FirstDifference(found, named);
  if (!difference && !base::FirstDifference(found, expected)) return;
  if (!difference) {
    throw FileError(path,
                    "was written by a run over other text (RunOptions::data, RunOptions::template_name or "
                    "RunOptions::learns_prompts)",
                    "repeat the settings of that run, or begin a new one in another folder");
  }
  throw FileError(path,
                  "was written by a run with '" + difference->name + "' " + base::DumpJson(difference->found) +
                      ", and this one has " + base::DumpJson(difference->expected),
                  "repeat the settings of that run, or begin a new one in another folder");
}

}  // namespace

void WriteCheckpoint(const std::string& path, const std::vector<TrainedPart>& trained, int64_t step,
                     const base::Json& settings) {
  const std::vector<Part> parts = PartsOf(trained);
  std::vector<checkpoint::TensorEntry> entries;
  for (const Part& part : parts) entries.push_back({part.name, DType::kF32, {part.numbers.numel()}});
  const std::map<std::string, std::string, std::less<>> metadata = {
      {"format", "pt"}, {"hydrant", "training"}, {kStep, std::to_string(step)}, {kSettings, base::DumpJson(settings)}};
  checkpoint::SafetensorsWriter writer(path, entries, metadata);
  for (const Part& part : parts) {
    writer.Write(part.numbers.data_ptr(), static_cast<size_t>(part.numbers.numel()) * sizeof(float));
  }
  writer.Finish();
}

int64_t ReadCheckpoint(const std::string& path, const std::vector<TrainedPart>& trained, const base::Json& settings) {
  const std::unique_ptr<checkpoint::TensorSource> source = checkpoint::OpenTensorFile(path);
  const auto& metadata = source->metadata();
  const auto step = metadata.find(kStep), stored = metadata.find(kSettings);
  if (step == metadata.end() || stored == metadata.end()) {
    throw FileError(path, "is no checkpoint of a training run: its metadata lack '" + std::string(kStep) + "' or '" +
                              kSettings + "'");
  }
  CheckSettings(path, base::ParseJson(stored->second, path), settings);
  for (const Part& part : PartsOf(trained)) {
    const checkpoint::StoredTensor* tensor = source->Find(part.name);
    const std::vector<int64_t> shape = {part.numbers.numel()};
    if (tensor == nullptr || tensor->view.dtype != DType::kF32 || tensor->view.shape != shape) {
      throw FileError(path, "has no tensor '" + part.name + "' of f32 " + ShapeString(shape));
    }
    std::memcpy(part.numbers.data_ptr(), tensor->view.data, tensor->view.num_bytes());
  }
  const base::Json number = base::ParseJson(step->second, path);
  return base::JsonView(number, path).Int(0, int64_t{1} << 40);
}

}  // namespace hydrant::train
