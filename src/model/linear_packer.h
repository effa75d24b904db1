// SPDX-License-Identifier: Apache-2.0
// Turns loaded linear layers into the format that the user asks for. docs/algorithms/low_bit_weights.md.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <tuple>
#include <utility>
#include <vector>

#include "base/thread_pool.h"
#include "model/weights.h"
#include "quant/packed_weight.h"

namespace hydrant::model {

// What the base's lm head is kept in when the other layers are kept in `format`: 8 bits instead of 4, which cost more
// there than anywhere else (docs/benchmarks/perplexity.md).
quant::WeightFormat LmHeadFormat(quant::WeightFormat format);

// What layers become. Without `format` they stay as they were read.
struct FormatChoice {
  std::optional<quant::WeightFormat> format;
  bool only_floats = false;  // layers that were read packed stay
};

struct PackReport {
  double seconds = 0;
  uint64_t bytes_before = 0, bytes_after = 0;  // of the layers that changed, each storage once
  uint64_t bytes_freed = 0;                    // of bytes_before: storage that nothing else uses
};

// Memory that packing allocates: all layers in their new format, and one more matrix while it is being changed.
struct PackNeed {
  uint64_t bytes = 0;
  uint64_t settled_bytes = 0;    // without the matrix that is being changed
  uint64_t bytes_in_4_bits = 0;  // the same in w4a8
};

class LinearPacker {
 public:
  // Called with the share that is done; may throw to end the work.
  using Progress = std::function<void(double share)>;

  // Called by Run before it begins, with what its results take at the peak; may throw to refuse it.
  using CheckNeed = std::function<void(const PackNeed& need)>;

  LinearPacker(base::ThreadPool* pool, Progress progress, CheckNeed check = {})
      : pool_(pool), progress_(std::move(progress)), check_(std::move(check)) {}

  // Floats may become anything; packed layers keep their bits and may only change what their activations are rounded
  // to: throws FileError otherwise. `linear` must live until Run.
  void Add(Linear& linear, const FormatChoice& choice);
  // Somebody else goes on using these floats: Run must not give them back.
  void Keep(const TensorView& floats) { kept_.push_back(floats.data); }

  // Changes the layers. Equal slices of one tensor become one packed copy; floats are given back to the system as they
  // are packed. Throws FileError as quant::Pack does.
  PackReport Run();

 private:
  struct Job {
    Linear* linear;
    quant::WeightFormat format;
  };
  // First byte, first input, number of inputs, format.
  using Key = std::tuple<const uint8_t*, int64_t, int64_t, quant::WeightFormat>;

  PackNeed Need() const;
  void Pack(const Job& job, PackReport& report);
  void ChangeFloats(const Job& job, DType dtype, PackReport& report);
  void LetGo(const TensorView& floats, PackReport& report);

  base::ThreadPool* pool_;
  Progress progress_;
  CheckNeed check_;
  std::vector<Job> jobs_;
  std::vector<const uint8_t*> kept_;
  std::map<const uint8_t*, int64_t> readers_;  // jobs that have yet to read a tensor
  std::map<Key, std::shared_ptr<const quant::PackedWeight>> packed_;
  std::map<std::pair<const uint8_t*, DType>, TensorView> changed_;
};

}  // namespace hydrant::model
