// SPDX-License-Identifier: Apache-2.0
// Which tensors heads that are to be trained consist of, by the tables that the loader reads (draft/heads/head_kind.h):
// what is trained under a name is what the file holds under it.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "draft/heads/head_kind.h"
#include "model/model_config.h"

namespace hydrant::train {

// What heads are to look like.
struct HeadShape {
  std::string arch;                 // of ArchNames()
  int32_t num_heads = 0;            // K; 0: as published
  int32_t num_layers = 0;           // L, the input block included; 0: as published
  bool tied_blocks = true;          // Hydra's blocks 2..L are one block, as in released files
  int64_t hidden_layer_offset = 0;  // 0: the states after the final norm; n: the n-th last hidden states
  // One lm head for all heads, in place of one each. The file has it under the names of all.
  bool shared_lm_head = false;
  // Tokens that the heads draft, ascending; empty: all. Files of medusa (vLLM's layout) and eagle3 have a map of them,
  // those of hydra and hydra++ rows of zeros for all others (draft/heads/draft_vocab.h). Not of eagle and redrafter.
  std::vector<int32_t> draft_vocab = {};
};

// "medusa", "hydra", "hydra++", "eagle", "eagle3", "redrafter".
std::vector<std::string_view> ArchNames();
// Do they go on token by token with one network (EAGLE, ReDrafter)? Others are counted: a head for each token ahead.
bool GoesTokenByToken(std::string_view arch);
// The hidden states that they read, as Drafter::WantedLayers counts them.
std::vector<int32_t> WantedLayers(const draft::HeadsInfo& info, const model::ModelConfig& base);

// Heads of that shape for a base. Throws UserError for an unknown arch, or a shape that it does not have.
draft::HeadsInfo DescribeHeads(const HeadShape& shape, const model::ModelConfig& base);

// One tensor that is trained.
struct ParameterRow {
  std::string name;                       // in the file
  std::vector<std::string> repeats = {};  // further names of the same tensor: tied blocks
  std::vector<int64_t> shape;
  bool is_matrix() const { return shape.size() > 1; }
  int64_t num_elements() const;
};

// All of them, in the order of the file.
std::vector<ParameterRow> RowsToTrain(const draft::HeadsInfo& info, const model::ModelConfig& base,
                                      const HeadShape& shape);

}  // namespace hydrant::train
