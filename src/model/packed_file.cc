// SPDX-License-Identifier: Apache-2.0
#include "model/packed_file.h"

#include <cmath>
#include <cstring>
#include <optional>

#include "hydrant/error.h"

namespace hydrant::model {
namespace {

using checkpoint::PackedTensor;
using checkpoint::StoredTensor;
using kernels::PackedMatrix;
using quant::WeightFormat;

std::string Thing(const std::string& name) { return "tensor '" + name + "'"; }

WeightFormat CheckedFormat(const StoredTensor& stored, const std::string& name) {
  const std::optional<WeightFormat> format = quant::WeightFormatNamed(stored.packed->format);
  if (!format || !quant::IsPacked(*format)) {
    throw FileError(stored.file,
                    Thing(name) + " is packed in '" + stored.packed->format + "', expected w8a8, w4a8, w8a16 or w4a16");
  }
  return *format;
}

void CheckShapes(const StoredTensor& stored, const std::string& name, const PackedMatrix& matrix) {
  const PackedTensor& packed = *stored.packed;
  const std::vector<int64_t> panels = {packed.slices, matrix.num_panels(), matrix.panel_bytes()};
  const std::vector<int64_t> scales = {packed.slices, matrix.num_panels() * kernels::kPanelOutputs};
  if (stored.view.shape != panels || packed.scales.shape != scales) {
    throw FileError(stored.file, Thing(name) + " has panels " + ShapeString(stored.view.shape) + " and scales " +
                                     ShapeString(packed.scales.shape) + ", expected " + ShapeString(panels) + " and " +
                                     ShapeString(scales) + " (" + packed.format + " of " + ShapeString(packed.shape) +
                                     " in " + std::to_string(packed.slices) + " slices)");
  }
}

void CheckAlignment(const StoredTensor& stored, const std::string& name, const uint8_t* data, uintptr_t alignment) {
  if (reinterpret_cast<uintptr_t>(data) % alignment == 0) return;
  throw FileError(stored.file, Thing(name) + " does not lie at a multiple of " + std::to_string(alignment) + " bytes",
                  "the file was rewritten by another tool; convert the model again with 'hydrant convert'");
}

void CheckDictionary(const StoredTensor& stored, const std::string& name) {
  const TensorView& dictionary = stored.packed->dictionary;
  if (dictionary.empty() || dictionary.shape != std::vector<int64_t>{kernels::kNumTables, kernels::kTableEntries}) {
    throw FileError(stored.file, Thing(name) + " needs the tensor 'hydrant.dictionary' [256, 16], which is " +
                                     (dictionary.empty() ? "missing" : ShapeString(dictionary.shape)));
  }
  CheckAlignment(stored, "hydrant.dictionary", dictionary.data, kernels::kLineBytes);
  if (std::memchr(dictionary.data, 0, dictionary.num_bytes()) != nullptr) {
    throw FileError(stored.file, "tensor 'hydrant.dictionary' has an entry of 0, expected 1 to 255");
  }
}

void CheckScales(const StoredTensor& stored, const std::string& name) {
  const std::vector<float> scales = ToFloats(stored.packed->scales);
  for (size_t i = 0; i < scales.size(); ++i) {
    if (std::isfinite(scales[i])) continue;
    throw FileError(stored.file, Thing(name) + " has no finite scale in row " + std::to_string(i));
  }
}

}  // namespace

std::vector<std::shared_ptr<const quant::PackedWeight>> PackedFromFile(const StoredTensor& stored,
                                                                       const std::string& name, int64_t slices) {
  const PackedTensor& packed = *stored.packed;
  if (packed.slices != slices) {
    throw FileError(stored.file, Thing(name) + " is packed in " + std::to_string(packed.slices) + " slices, expected " +
                                     std::to_string(slices));
  }
  const WeightFormat format = CheckedFormat(stored, name);
  PackedMatrix matrix;
  using kernels::PackedLayout;
  matrix.type =
      kernels::TypeIn(packed.interleaved ? PackedLayout::kInterleaved : PackedLayout::kLines, quant::Is4Bit(format));
  matrix.outputs = packed.shape[0];
  matrix.inputs = packed.shape[1] / slices;
  if (matrix.inputs > kernels::kMaxPackedInputs) {
    throw FileError(stored.file, Thing(name) + " has " + std::to_string(matrix.inputs) +
                                     " inputs in a slice, at most " + std::to_string(kernels::kMaxPackedInputs) +
                                     " fit the 32-bit sums");
  }
  CheckShapes(stored, name, matrix);
  CheckAlignment(stored, name, stored.view.data, kernels::kLineBytes);
  CheckAlignment(stored, name + ".scales", packed.scales.data, alignof(float));
  CheckScales(stored, name);
  if (matrix.is_4_bit()) {
    CheckDictionary(stored, name);
    matrix.dictionary = packed.dictionary.data;
  }
  std::vector<std::shared_ptr<const quant::PackedWeight>> weights;
  for (int64_t s = 0; s < slices; ++s) {
    auto weight = std::make_shared<quant::PackedWeight>();
    weight->matrix = matrix;
    weight->matrix.panels = stored.view.data + s * matrix.num_panels() * matrix.panel_bytes();
    weight->matrix.row_scales =
        reinterpret_cast<const float*>(packed.scales.data) + s * matrix.num_panels() * kernels::kPanelOutputs;
    weight->format = format;
    weight->owner = stored.view.owner;
    weight->file = stored.file;
    weight->name = name;
    weights.push_back(std::move(weight));
  }
  return weights;
}

}  // namespace hydrant::model
