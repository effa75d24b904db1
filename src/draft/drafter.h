// SPDX-License-Identifier: Apache-2.0
// What every drafter does: fill a token tree from what is known at the last commit. No drafter knows another sequence.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "hydrant/generation.h"
#include "kernels/choose.h"
#include "kernels/ops.h"
#include "model/linear_packer.h"
#include "model/weight_arranger.h"
#include "model/weights.h"
#include "tree/token_tree.h"

namespace hydrant::draft {

// A drafter's memory of one sequence. Made by the drafter, opaque to everyone else.
class DraftState {
 public:
  virtual ~DraftState() = default;
};

// Newly committed rows of one sequence.
struct AbsorbInput {
  DraftState* state = nullptr;
  kernels::ConstRows hidden;  // [n, D], n >= 1, in order: the rows that Drafter::hidden_layer_offset names
};

// One sequence that wants a tree.
struct ProposeInput {
  DraftState* state = nullptr;
  tree::TokenTree* tree = nullptr;  // topology and tokens[0] given, the other tokens to be filled
  // > 0: nodes that their head holds less likely are left out, and nothing is drafted below a path that the heads
  // together hold less likely (growing_trees.h)
  float min_probability = 0;
  const SamplingOptions* sampling = nullptr;
  bool coupled = true;
  std::span<const int32_t> prompt, output;  // history for penalties; output ends in the root
  kernels::NoiseCache* noise = nullptr;
};

class Drafter {
 public:
  virtual ~Drafter() = default;

  virtual const char* name() const = 0;   // "medusa", "hydra", "hydra++"
  virtual int32_t max_depth() const = 0;  // K
  // Which hidden rows Absorb wants: 0 = after the final norm; n > 0 = output of layer L - n, without a norm.
  virtual int64_t hidden_layer_offset() const { return 0; }
  virtual uint64_t weight_bytes() const = 0;

  // `max_positions`: most rows that this sequence will ever absorb; `kv_type`: of keys and values that it keeps.
  virtual std::unique_ptr<DraftState> NewState(int32_t max_positions, DType kv_type) const = 0;
  // After every commit and every prompt chunk, in order; rows of several commits may come together.
  virtual void Absorb(std::span<AbsorbInput> inputs) = 0;
  // Fills the trees, and takes nodes out of those with a min_probability. What a node's token is, and whether it
  // stays, does not depend on other branches, sequences or topologies in the call.
  virtual void Propose(std::span<ProposeInput> inputs) = 0;
  // Row i = logits of head i after root and path[0 .. i-1], followed by each head's own argmax where path is shorter.
  // out [K, V].
  virtual void HeadLogits(DraftState& state, int32_t root, std::span<const int32_t> path, Matrix& out) = 0;
};

// What the heads' weights shall become, and by whom; and what came of it.
struct HeadPacking {
  model::FormatChoice choice;
  model::LinearPacker* packer = nullptr;
  model::WeightArranger* arranger = nullptr;
  std::vector<int32_t> draft_vocab = {};  // tokens that heads may draft, ascending; empty: all (draft_vocab.h)
  model::PackReport report = {};
  std::string format = {};  // of the first head
  int64_t num_tokens = 0;   // that heads draft, by draft_vocab or a token map of their own; 0: all
};

// Reads the heads of `folder` and makes their drafter. Throws FileError for heads that do not fit the base, or of an
// architecture that this version does not run (by name). `warnings` gets what the user should know.
std::unique_ptr<Drafter> MakeDrafter(const std::string& folder, const model::ModelWeights& base, kernels::Queue* queue,
                                     HeadPacking& packing, std::vector<std::string>* warnings);

}  // namespace hydrant::draft
