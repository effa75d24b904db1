// SPDX-License-Identifier: Apache-2.0
// config.json of a base model that is to be trained, in Hugging Face's form.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "base/json_fwd.h"
#include "model/model_config.h"
#include "tensor/dtype.h"
#include "tokenizer/tokenizer.h"

namespace hydrant::train {

// Unset sizes are those of the file, or of the embedded model where none is named.
struct BaseShape {
  std::string config = {};  // a config.json of Llama's architecture
  std::optional<int64_t> vocab_size = {}, hidden_size = {}, num_layers = {}, num_heads = {}, intermediate_size = {},
                         max_positions = {};
  std::optional<int64_t> num_kv_heads = {};  // as num_heads, where neither it nor a file says
};

// Throws FileError for a file that is no such config, and UserError for sizes that do not go together.
base::Json ConfigOf(const BaseShape& shape);
// What it says. `shape` names its file in errors.
model::ModelConfig SizesOf(const base::Json& config, const BaseShape& shape);

// Takes the tokenizer's size where the shape does not say one, its BOS and EOS, and the type of the numbers. Throws
// UserError where the tokenizer has more tokens than the model.
void FitToTokenizer(base::Json& config, const BaseShape& shape, const tokenizer::Tokenizer& tokenizer, DType dtype);

// generation_config.json beside it.
base::Json GenerationConfigOf(const base::Json& config);

}  // namespace hydrant::train
