// SPDX-License-Identifier: Apache-2.0
// The tensors of heads under the names of another layout.
#pragma once

#include <string>
#include <vector>

#include "checkpoint/tensor_table.h"
#include "draft/heads/head_kind.h"
#include "model/weights.h"
#include "tensor/tensor.h"

namespace hydrant::convert {

struct RespelledTensor {
  std::string name;
  TensorView view;  // the same bytes for names that stand for one tensor
  checkpoint::ShardAxis axis = checkpoint::ShardAxis::kReplicated;
};

// What is known of a base from the heads' file alone: their sizes. Enough for a strict load.
model::ModelWeights BaseBySizes(const draft::HeadsFile& file);

struct Respelling {
  std::string layout;                       // as the user has it, for errors
  const draft::HeadLayout* rows = nullptr;  // where the names come from
  std::string file;                         // of the source, for errors
};

struct RespelledHeads {
  std::vector<RespelledTensor> tensors;
  draft::HeadsInfo info;              // of what is written
  std::vector<std::string> left_out;  // that nothing reads
  std::vector<std::string> warnings;
};

// Throws FileError where the layout has no place for what the heads hold.
RespelledHeads Respell(draft::HeadWeights& heads, const model::ModelWeights& base, const Respelling& to);

}  // namespace hydrant::convert
