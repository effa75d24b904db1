// SPDX-License-Identifier: Apache-2.0
// Which names in a checkpoint belong to draft heads or to LoRA adapters rather than to the base model.
#pragma once

#include <string_view>

#include "checkpoint/tensor_source.h"

namespace hydrant::checkpoint {

// Names that a whole model saved with its heads adds to the base's: Medusa's "medusa_head.0.0.linear.weight", Hydra's
// "hydra_mlp.0.1.linear.weight", "prefix_embeding_layer.norm.weight" (sic), "input_embed_fn.weight", ...
bool IsHeadTensor(std::string_view name);

// "….q_proj.lora_A.weight" and its kind.
bool IsLoraTensor(std::string_view name);

// An adapter leaves the base unchanged only while all its B matrices are zero. Throws FileError naming the first LoRA
// tensor (A matrices aside) with a non-zero value.
void RefuseNonZeroLora(const TensorSource& source);

}  // namespace hydrant::checkpoint
