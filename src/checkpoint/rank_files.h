// SPDX-License-Identifier: Apache-2.0
// A checkpoint split for tensor parallelism as TensorRT-LLM does: files rank0.safetensors, rank1.safetensors, .. that
// hold the same names, each with its part of the tensor.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "checkpoint/tensor_source.h"
#include "checkpoint/tensor_table.h"

namespace hydrant::checkpoint {

std::string RankFileName(int64_t rank);
// The ranks of these files that the folder holds, ascending.
std::vector<int64_t> RanksIn(const std::string& folder);

// How a tensor of that name is split; nothing: it is not wanted.
using AxisOf = std::function<std::optional<ShardAxis>(const std::string& name)>;

struct RankFiles {
  std::string folder;
  int64_t count = 0;
  // Rows of a vocabulary that are kept: what is beyond is padding, which makes the parts equal. 0: all.
  int64_t vocab_size = 0;
};

// The wanted tensors, each joined in memory of its own. A bias is joined where it was split like its weight's rows, and
// taken as it is where every rank has all of it. Throws FileError where ranks disagree.
std::unique_ptr<TensorSource> JoinRanks(const RankFiles& files, const AxisOf& axis_of);

// One rank's part of a tensor.
struct Part {
  int64_t rank = 0, count = 1;
};
// Its shape. Rows of a vocabulary are padded to a multiple of the count. Nothing where the tensor cannot be cut so.
std::optional<std::vector<int64_t>> PartShape(const std::vector<int64_t>& shape, ShardAxis axis, int64_t count);
// Its bytes, in pieces; null stands for zeros.
void ForEachPiece(const TensorView& view, ShardAxis axis, const Part& part,
                  const std::function<void(const uint8_t* bytes, size_t size)>& take);

}  // namespace hydrant::checkpoint
