// SPDX-License-Identifier: Apache-2.0
// A network that drafts level by level: EAGLE's layer, a small language model. Each row is a token; what comes out of
// it are the logits of the next token and, where the network has one, a state that the rows of its children read. It
// remembers committed tokens by keys and values, or only the last one's hidden states.
#pragma once

#include <cstdint>
#include <limits>
#include <span>
#include <vector>

#include "draft/heads/head_stack.h"
#include "kv/kv_cache.h"
#include "model/row_batch.h"
#include "tree/topology.h"

namespace hydrant::draft {

// One pass. Rows of committed tokens and rows of drafted ones never share a pass.
struct LevelPass {
  const model::RowBatch* rows = nullptr;
  // What each row reads beside its token, [R, W]: for committed tokens what WantedLayers() gave, one layer behind the
  // other; for drafted ones the state of the parent. Empty where the network reads tokens alone. A root that has a row
  // of its own (not reads_next_token()) stands with the committed rows, behind them, and has no hidden state yet: there
  // are fewer inputs than rows then.
  kernels::ConstRows inputs = {};
  bool is_committed = false;
  int32_t depth = 0;  // level of the rows whose logits are wanted: 0 is the root's
  // Only the last so many rows give states and logits; of the others only keys and values are needed.
  int64_t num_outputs = 0;
  const HeadOutput* output = nullptr;  // null: no logits
  // Where the network's own layers of keys and values are.
  const kv::BlockPool* pool = nullptr;
  int64_t first_layer = 0;
};

class LevelModel {
 public:
  virtual ~LevelModel() = default;

  virtual const char* name() const = 0;
  virtual std::vector<int32_t> WantedLayers() const { return {}; }
  // Columns of the hidden states of each of them.
  virtual int64_t input_width() const { return 0; }
  // None: of the committed rows only the last is run, so that the network must be one that reads_next_token().
  virtual std::vector<kv::LayerShape> KvLayers() const { return {}; }
  // Levels that it can draft.
  virtual int32_t max_depth() const { return tree::Topology::kMaxDepth; }
  virtual int32_t num_heads() const { return 1; }
  virtual uint64_t weight_bytes() const = 0;
  virtual uint64_t table_bytes() const { return 0; }  // as Drafter's
  virtual uint64_t bytes_read() const = 0;
  // Columns of the states; 0: the network has none.
  virtual int64_t state_width() const { return 0; }
  virtual int64_t num_logits() const = 0;  // V'
  // Beams are searched among the so many best tokens of a row, whose probabilities sum to 1; 0: among all.
  virtual int32_t num_best() const { return 0; }
  // Token of each logit; empty: its number.
  virtual std::span<const int32_t> token_map() const { return {}; }
  // Tokens that rows may have.
  virtual int64_t vocab_size() const { return std::numeric_limits<int64_t>::max(); }
  // Whether the row of position j reads token j + 1: EAGLE pairs the hidden state at j with the token chosen there.
  virtual bool reads_next_token() const { return false; }

  // Writes the states of the last num_outputs rows into `states` [num_outputs, state_width()].
  virtual void Run(const LevelPass& pass, Matrix& states) = 0;
};

}  // namespace hydrant::draft
