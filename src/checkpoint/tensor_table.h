// SPDX-License-Identifier: Apache-2.0
// Tables that describe tensors once: name, shape in config symbols, shard axis, optional or not. Loader, converter,
// sharding and error text read the same rows.
#pragma once

#include <cstdint>
#include <set>
#include <string>
#include <vector>

#include "checkpoint/tensor_source.h"

namespace hydrant::checkpoint {

// One extent with the words a user knows: {8192, "2 * hidden_size"}.
struct Extent {
  int64_t value = 0;
  std::string symbol;
  std::string file = {};  // the config that says so; empty: the loader's
};

// How tensor parallelism will split it: by rows (outputs), by columns (inputs), by vocabulary, or not at all.
enum class ShardAxis : uint8_t { kReplicated, kOutputs, kInputs, kVocabulary };

enum class Presence : uint8_t {
  kRequired,
  kOptional,  // used when there
  kUnused,    // accepted when there, of any shape, and not used (rotary_emb.inv_freq)
};

struct TensorRow {
  std::string name;           // exact spelling in the file
  std::vector<Extent> shape;  // empty for kUnused
  ShardAxis shard = ShardAxis::kReplicated;
  Presence presence = Presence::kRequired;
  std::string tied_to = {};  // name of the row whose tensor stands in when this one is absent (tied weights)
  std::string note = {};     // for the error: "head 0 sees the hidden state and one embedding"
  std::string hint = {};     // for the error: what the user may have done
};

// Takes tensors out of a source by table rows; strict.
class TableLoader {
 public:
  // `config_file` is named in errors beside the weight file, since a mismatch may be either's fault.
  TableLoader(const TensorSource& source, std::string config_file);

  // The tensor of the row, checked: float dtype and shape. An absent optional tensor gives an empty view.
  // Throws FileError: "hydra_lm_head.pt: tensor 'x' is [4096, 4096], expected [4096, 8192] (2 * hidden_size: note)".
  TensorView Take(const TensorRow& row);
  // The same where the tensor may be packed; null for an absent optional tensor.
  const StoredTensor* TakeStored(const TensorRow& row);
  // Accept but do not use (kUnused rows, and tensors that belong to another component).
  void Ignore(const std::string& name);
  // Ignore every tensor for which keep(name) is true.
  template <typename Predicate>
  void IgnoreIf(Predicate predicate) {
    for (const auto& [name, tensor] : source_->tensors()) {
      if (predicate(name)) taken_.insert(name);
    }
  }
  // Stored names that nothing has taken or ignored.
  std::vector<std::string> Left() const;
  // Throws FileError naming the first (and the number of) tensors that no row took. `why`: what says that there are no
  // such tensors; empty: the config.
  void Finish(const std::string& why = {}) const;

  const TensorSource& source() const { return *source_; }
  uint64_t bytes_taken() const { return bytes_taken_; }  // of distinct storages
  // Names that Take found, each as it is spelled in the source.
  const std::set<std::string, std::less<>>& used() const { return used_; }

 private:
  const TensorSource* source_;
  std::string config_file_;
  std::set<std::string, std::less<>> taken_;
  std::set<std::string, std::less<>> used_;
  std::set<uint64_t> storages_;
  uint64_t bytes_taken_ = 0;
};

}  // namespace hydrant::checkpoint
