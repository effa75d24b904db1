// SPDX-License-Identifier: Apache-2.0
// What every drafter does: propose a tree of tokens from what is known at the last commit, in a shape of its own
// choice.
#pragma once

#include <algorithm>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "draft/static_tree.h"
#include "hydrant/generation.h"
#include "kernels/ops/ops.h"
#include "kv/kv_cache.h"
#include "model/linear_packer.h"
#include "model/weight_arranger.h"
#include "model/weights.h"
#include "sampling/choose.h"
#include "tree/token_tree.h"

namespace hydrant::draft {

// Slots behind the committed positions that a drafter needs to grow such a tree: a level expands `width` nodes.
constexpr int32_t SlotsOf(const DynamicTreeOptions& tree) {
  return std::max(tree.nodes, (tree.depth - 1) * tree.width) + 1;
}

constexpr int32_t LevelsOf(const BeamOptions& beam) { return beam.length - 1; }
// Drafted nodes at most: beams that have nothing in common.
constexpr int32_t NodesOf(const BeamOptions& beam) { return beam.width * LevelsOf(beam); }
constexpr int32_t SlotsOf(const BeamOptions& beam) { return NodesOf(beam) + 1; }

// A drafter's memory of one sequence. Made by the drafter, opaque to everyone else.
class DraftState {
 public:
  virtual ~DraftState() = default;
};

// The layers of keys and values that a drafter keeps for itself, in the same blocks as the base model's of that
// sequence. In every layer slot s belongs to position s. Slots of committed positions are always there. During Propose
// the drafter may also use the slots behind them, once it has reserved them: Budget::max_slots.
struct DraftKv {
  kv::BlockTable* table = nullptr;
  int64_t first_layer = 0;
  // Where several drafters share the table: how many positions this one has its own of. Null: the table says so.
  int32_t* own_drafted_length = nullptr;

  kernels::KvLayer layer(int64_t index) const { return table->pool().layer(first_layer + index); }
  // Positions of which the drafter has its own keys and values.
  int32_t drafted_length() const {
    return own_drafted_length != nullptr ? *own_drafted_length : table->drafted_length();
  }
  // Now it has them of `count` more.
  void AppendDrafted(int32_t count) const {
    if (own_drafted_length != nullptr) {
      *own_drafted_length += count;
    } else {
      table->AppendDrafted(count);
    }
  }
};

// Newly committed positions of one sequence, in order: a chunk of its prompt, or the root and the accepted nodes.
struct CommitInput {
  DraftState* state = nullptr;
  DraftKv kv = {};
  std::span<const int32_t> tokens;             // [n], n >= 1
  std::span<const kernels::ConstRows> hidden;  // [WantedLayers()] of [n, D]
  bool is_prompt = false;
};

// One sequence that wants a tree, and the tree that it gets.
struct ProposeInput {
  DraftState* state = nullptr;
  DraftKv kv = {};
  std::span<const int32_t> prompt, output;  // all tokens; the last of `output` is the root, which is not committed yet
  const SamplingOptions* sampling = nullptr;
  bool coupled = true;  // do drafts see the verifier's noise?
  sampling::NoiseCache* noise = nullptr;
  // Set: drafts are drawn with this noise, and the tree says from which distributions (TokenTree::draft_probs).
  sampling::NoiseCache* draws = nullptr;
  Budget budget = {};
  // Read by drafters that fill a tree of a given shape. Where it is null, or the root alone, they draft nothing.
  StaticTree* shape = nullptr;
  // One of these in place of a shape, for drafters that grow trees.
  const DynamicTreeOptions* dynamic = nullptr;
  const BeamOptions* beam = nullptr;
  // If > 0: a node is left out where its head gives it a lower probability, and nothing is drafted below a path to
  // which the heads together give a lower one (growing_trees.h).
  float min_probability = 0;
  tree::TokenTree* tree = nullptr;  // gets the tree; at least the root
};

// One sequence, and the path along which a drafter is asked for its logits.
struct AlongInput {
  DraftState* state = nullptr;
  DraftKv kv = {};
  std::span<const int32_t> tokens;  // [n], 1 <= n <= max_depth(): the root, then a path below it
  Matrix* logits = nullptr;         // gets [n, V]: row i is about the token after tokens[i]
};

class Drafter {
 public:
  virtual ~Drafter() = default;

  virtual const char* name() const = 0;                      // "medusa", "hydra", "hydra++", "lookup"
  virtual int32_t max_depth() const = 0;                     // K: no tree of this drafter is deeper
  virtual int32_t num_heads() const { return max_depth(); }  // K
  // Levels of the trees that `--tree auto` chooses from.
  virtual int32_t usual_depth() const { return max_depth(); }
  // Which hidden states Commit takes (model/decoder.h: kAfterFinalNorm).
  virtual std::vector<int32_t> WantedLayers() const { return {}; }
  // The layers of keys and values that this drafter keeps in the sequences' blocks (DraftKv).
  virtual std::vector<kv::LayerShape> KvLayers() const { return {}; }
  // Does its row of a position there depend on the token behind it, too (kv::KvShape::reads_next_token)?
  virtual bool ReadsNextToken() const { return false; }
  virtual uint64_t weight_bytes() const { return 0; }
  // Of these, what is looked up: tables of which a draft reads single rows.
  virtual uint64_t table_bytes() const { return 0; }
  // Bytes of weights that Commit and Propose have read so far. All sequences of a call share the weights: they count
  // once.
  virtual uint64_t bytes_read() const { return 0; }
  // Does it fill the shape that it is given, or make its own?
  virtual bool FillsShapes() const { return false; }
  // Can it make the trees of DynamicTreeOptions and BeamOptions?
  virtual bool GrowsTrees() const { return false; }
  // Trees of the request's shape that become the one that it proposes: its largest tree has so many times the nodes.
  virtual int32_t num_trees() const { return 1; }
  // The most nodes that it drafts for a request in a shape of its own.
  virtual int32_t MostNodes(const GenerationRequest& /*request*/) const { return 0; }
  // May Propose give this sequence more than the root?
  bool MayDraft(const ProposeInput& input) const;

  virtual std::unique_ptr<DraftState> NewState(const GenerationRequest& request) const = 0;
  // Call it before the first Commit of a sequence whose blocks already hold its first `length` positions: the base
  // model's keys and values of all of them, the drafter's own of the first kv.drafted_length(). Returns the
  // position, 0 .. length, from which Commit must start; the base model computes the positions from there on again. It
  // may be called again with a smaller length.
  virtual int32_t Resume(DraftState& /*state*/, const DraftKv& /*kv*/, int32_t length) const { return length; }
  // Called after every prompt chunk and every step, in order.
  virtual void Commit(std::span<const CommitInput> inputs) = 0;
  // Gives each sequence a tree within its budget. What a node's token is, and whether it stays, does not depend on
  // other branches or on other sequences of the call.
  virtual void Propose(std::span<ProposeInput> inputs) = 0;
  // Do a request's penalties count the tokens on a node's path when its children are ranked? Not where all nodes of a
  // level have the same candidates.
  virtual bool RanksByPath() const { return true; }
  // The logits from which each next token of a path would be drafted. Drafters that have no logits give no rows.
  virtual void LogitsAlong(std::span<AlongInput> inputs);
};

// Rows of logits [usual_depth(), V] after a root and a path. Where the path is shorter, it goes on with each row's own
// argmax.
void HeadLogits(Drafter& drafter, DraftState& state, const DraftKv& kv, std::vector<int32_t> root_and_path,
                Matrix& logits);

// How to convert the heads' weights, and who does it. MakeDrafter fills in the report, the format and num_tokens.
struct HeadPacking {
  model::FormatChoice choice;
  model::LinearPacker* packer = nullptr;
  model::WeightArranger* arranger = nullptr;
  std::vector<int32_t> draft_vocab = {};  // tokens that heads may draft, ascending; empty: all (draft_vocab.h)
  model::PackReport report = {};
  std::string format = {};  // of the first head's weights
  int64_t num_tokens = 0;   // tokens that heads draft, by draft_vocab or a token map of their own; 0: all
};

// Reads the heads of `folder` and makes their drafter. Throws FileError for heads that do not fit the base, or of an
// architecture that this version does not run (by name). `warnings` gets what the user should know.
std::unique_ptr<Drafter> MakeDrafter(const std::string& folder, const model::ModelWeights& base, kernels::Queue* queue,
                                     HeadPacking& packing, std::vector<std::string>* warnings);

}  // namespace hydrant::draft
