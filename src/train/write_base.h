// SPDX-License-Identifier: Apache-2.0
// Writes a trained base model: a folder in Hugging Face's layout, which any engine loads.
#pragma once

#include <span>
#include <string>

#include "base/json_fwd.h"
#include "tensor/dtype.h"
#include "train/base_tokenizer.h"
#include "train/trained_tensor.h"

namespace hydrant::train {

struct WriteBaseOptions {
  std::string folder;                  // made where it is missing; each file is replaced as a whole
  DType dtype = DType::kBF16;          // or kF32, kF16
  std::string generation_config = {};  // text of that file; empty: made from the config
};

// config.json, generation_config.json, model.safetensors and the tokenizer's files. `config`: after FitToTokenizer.
// Throws FileError.
void WriteBase(const base::Json& config, const TokenizerFiles& tokenizer, std::span<const TrainedTensor> tensors,
               const WriteBaseOptions& options);

}  // namespace hydrant::train
