// SPDX-License-Identifier: Apache-2.0
// Writes trained heads as their authors' code does: config.json and a file of tensors under their names.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "draft/heads/head_tensors.h"
#include "model/model_config.h"
#include "tensor/dtype.h"
#include "train/trained_tensor.h"

namespace hydrant::train {

enum class HeadFile : uint8_t { kTorch, kSafetensors };

struct WriteHeadsOptions {
  // Made where it is missing; each file is replaced as a whole. Weights under other names, of a former run, are
  // removed.
  std::string folder;
  HeadFile file = HeadFile::kTorch;
  DType dtype = DType::kBF16;             // or kF32, kF16
  std::string base;                       // folder or name of the base, for config.json
  std::vector<int32_t> draft_vocab = {};  // HeadShape's
};

// Returns the name of the file of tensors. Throws FileError.
std::string WriteHeads(const draft::HeadsInfo& info, const model::ModelConfig& base,
                       std::span<const TrainedTensor> tensors, const WriteHeadsOptions& options);

}  // namespace hydrant::train
