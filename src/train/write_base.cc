// SPDX-License-Identifier: Apache-2.0
#include "train/write_base.h"

#include <vector>

#include "base/json.h"
#include "checkpoint/safetensors_writer.h"
#include "train/base_config.h"

namespace hydrant::train {

void WriteBase(const base::Json& config, const TokenizerFiles& tokenizer, std::span<const TrainedTensor> tensors,
               const WriteBaseOptions& options) {
  MakeFolder(options.folder);
  std::vector<checkpoint::TensorEntry> entries;
  for (const TrainedTensor& tensor : tensors) entries.push_back({tensor.name, options.dtype, tensor.shape});
  checkpoint::SafetensorsWriter writer(options.folder + "/model.safetensors", entries, {{"format", "pt"}});
  for (const TrainedTensor& tensor : tensors) {
    const TensorView view = ViewOf(tensor, options.dtype);
    writer.Write(view.data, view.num_bytes());
  }
  writer.Finish();
  for (const auto& [name, content] : tokenizer) WriteText(options.folder + "/" + name, content);
  const std::string& generation = options.generation_config;
  WriteText(options.folder + "/generation_config.json",
            generation.empty() ? GenerationConfigOf(config).dump(1) + "\n" : generation);
  WriteText(options.folder + "/config.json", config.dump(1) + "\n");
}

}  // namespace hydrant::train
