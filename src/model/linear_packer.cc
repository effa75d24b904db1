// SPDX-License-Identifier: Apache-2.0
#include "model/linear_packer.h"

#include <algorithm>
#include <chrono>
#include <cstring>
#include <set>
#include <string>

#include "base/mapped_file.h"
#include "hydrant/error.h"
#include "quant/pack.h"

namespace hydrant::model {
namespace {

using quant::PackedWeight;
using quant::WeightFormat;

int64_t Inputs(const Linear& linear) { return linear.num_inputs < 0 ? linear.weight.shape[1] : linear.num_inputs; }
int64_t NumWeights(const Linear& linear) { return linear.weight.shape[0] * Inputs(linear); }

// The same packed bytes under another format, which differs only in how activations are rounded.
std::shared_ptr<const PackedWeight> Retagged(const Linear& linear, WeightFormat wanted) {
  const PackedWeight& packed = *linear.packed;
  const WeightFormat format = quant::FormatFor(wanted, packed.matrix.inputs);
  if (!quant::IsPacked(wanted) || quant::Is4Bit(format) != quant::Is4Bit(packed.format)) {
    throw FileError(linear.file,
                    "tensor '" + linear.name + "' is packed in " + NameOf(packed.format) + ", expected floats for " +
                        NameOf(wanted),
                    "name the folder that it was converted from, or leave the format out");
  }
  auto retagged = std::make_shared<PackedWeight>(packed);
  retagged->format = format;
  return retagged;
}

// The tensor in another float type, in memory of its own.
TensorView InFloats(const TensorView& from, DType dtype, base::ThreadPool& pool) {
  TensorView view = from;
  view.dtype = dtype;
  const auto bytes = std::make_shared<std::vector<uint8_t>>(view.num_bytes());
  view.data = bytes->data();
  view.owner = bytes;
  const int64_t columns = from.shape[1];
  pool.ParallelFor(from.shape[0], 16, [&](int64_t begin, int64_t end) {
    for (int64_t row = begin; row < end; ++row) {
      TensorView one = from;
      one.shape = {columns};
      one.data += static_cast<size_t>(row * columns) * SizeOf(from.dtype);
      const std::vector<float> floats = ToFloats(one);
      uint8_t* to = bytes->data() + static_cast<size_t>(row * columns) * SizeOf(dtype);
      if (dtype == DType::kF32) {
        std::memcpy(to, floats.data(), floats.size() * sizeof(float));
        continue;
      }
      for (size_t i = 0; i < floats.size(); ++i) {
        const uint16_t bits = FloatToBFloat16(floats[i]);
        std::memcpy(to + 2 * i, &bits, 2);
      }
    }
  });
  return view;
}

uint64_t PackedBytes(int64_t outputs, int64_t inputs, WeightFormat wanted) {
  kernels::PackedMatrix matrix;
  const WeightFormat format = quant::FormatFor(wanted, inputs);
  matrix.type = quant::Is4Bit(format) ? kernels::PackedType::kW4 : kernels::PackedType::kW8;
  matrix.outputs = outputs;
  matrix.inputs = inputs;
  return static_cast<uint64_t>(matrix.bytes());
}

// What ChangeFloats makes of a format; nothing for a packed one.
std::optional<DType> FloatTypeOf(WeightFormat format) {
  if (quant::IsPacked(format)) return std::nullopt;
  return format == WeightFormat::kBF16 ? DType::kBF16 : DType::kF32;
}

}  // namespace

WeightFormat LmHeadFormat(WeightFormat format) {
  if (format == WeightFormat::kW4A8) return WeightFormat::kW8A8;
  return format == WeightFormat::kW4A16 ? WeightFormat::kW8A16 : format;
}

void LinearPacker::Add(Linear& linear, const FormatChoice& choice) {
  if (!choice.format || *choice.format == WeightFormat::kStored) return;
  if (linear.packed) {
    if (!choice.only_floats) linear.packed = Retagged(linear, *choice.format);
    return;
  }
  if (linear.weight.empty()) return;
  jobs_.push_back({&linear, *choice.format});
  ++readers_[linear.weight.data];
}

PackNeed LinearPacker::Need() const {
  PackNeed need;
  std::set<Key> seen;
  uint64_t largest = 0;
  for (const Job& job : jobs_) {
    const Linear& linear = *job.linear;
    const bool packs = quant::IsPacked(job.format);
    const Key key{linear.weight.data, packs ? linear.first_input : 0, packs ? Inputs(linear) : -1, job.format};
    if (!seen.insert(key).second || linear.weight.dtype == FloatTypeOf(job.format)) continue;
    const int64_t outputs = linear.weight.shape[0];
    const uint64_t bytes =
        packs ? PackedBytes(outputs, Inputs(linear), job.format)
              : static_cast<uint64_t>(outputs * linear.weight.shape[1]) * (job.format == WeightFormat::kBF16 ? 2U : 4U);
    need.bytes += bytes;
    need.bytes_in_4_bits += PackedBytes(outputs, Inputs(linear), WeightFormat::kW4A8);
    largest = std::max(largest, bytes);
  }
  need.settled_bytes = need.bytes;
  need.bytes += largest;
  return need;
}

PackReport LinearPacker::Run() {
  if (check_ && !jobs_.empty()) check_(Need());
  const auto start = std::chrono::steady_clock::now();
  PackReport report;
  int64_t all = 0, done = 0;
  for (const Job& job : jobs_) all += NumWeights(*job.linear);
  for (const Job& job : jobs_) {
    if (progress_) progress_(static_cast<double>(done) / static_cast<double>(all));
    done += NumWeights(*job.linear);
    if (quant::IsPacked(job.format)) {
      Pack(job, report);
    } else {
      ChangeFloats(job, job.format == WeightFormat::kBF16 ? DType::kBF16 : DType::kF32, report);
    }
  }
  if (progress_ && !jobs_.empty()) progress_(1);
  jobs_.clear();
  report.seconds = std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
  return report;
}

void LinearPacker::Pack(const Job& job, PackReport& report) {
  Linear& linear = *job.linear;
  const TensorView floats = linear.weight;
  const Key key{floats.data, linear.first_input, Inputs(linear), job.format};
  std::shared_ptr<const PackedWeight>& packed = packed_[key];
  if (!packed) {
    const quant::FloatMatrix matrix{.weight = floats,
                                    .first_input = linear.first_input,
                                    .num_inputs = Inputs(linear),
                                    .name = linear.name,
                                    .file = linear.file};
    packed = quant::Pack(matrix, job.format, *pool_);
    report.bytes_after += static_cast<uint64_t>(packed->matrix.bytes());
  }
  linear.packed = packed;
  linear.weight = {};
  linear.first_input = 0;
  linear.num_inputs = -1;
  LetGo(floats, report);
}

void LinearPacker::ChangeFloats(const Job& job, DType dtype, PackReport& report) {
  const TensorView floats = job.linear->weight;
  if (floats.dtype == dtype) return;
  TensorView& changed = changed_[{floats.data, dtype}];
  if (changed.empty()) {
    changed = InFloats(floats, dtype, *pool_);
    report.bytes_after += changed.num_bytes();
  }
  job.linear->weight = changed;
  LetGo(floats, report);
}

void LinearPacker::LetGo(const TensorView& floats, PackReport& report) {
  if (--readers_[floats.data] > 0) return;
  report.bytes_before += floats.num_bytes();
  if (std::find(kept_.begin(), kept_.end(), floats.data) != kept_.end()) return;
  report.bytes_freed += floats.num_bytes();
  base::MappedFile::Release({floats.data, floats.num_bytes()});
}

}  // namespace hydrant::model
