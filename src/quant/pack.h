// SPDX-License-Identifier: Apache-2.0
// Floats to the packed layout of kernels/packed.h, and back for tests.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "base/thread_pool.h"
#include "quant/packed_weight.h"
#include "tensor/tensor.h"

namespace hydrant::quant {

// Columns [first_input, first_input + num_inputs) of a float matrix [O, I], and its name for errors.
struct FloatMatrix {
  TensorView weight;
  int64_t first_input = 0, num_inputs = -1;  // -1: all
  std::string name, file;

  int64_t inputs() const { return num_inputs < 0 ? weight.shape[1] : num_inputs; }
};

// The format that is used for a matrix of so many inputs. Below a step of 128 inputs 4-bit formats become 8 bits, since
// padding would take more than the codes.
WeightFormat FormatFor(WeightFormat format, int64_t inputs);

// Packs into memory of its own, in huge pages from 2 MB up. The same bytes for any number of threads. Throws FileError
// for a weight that is NaN or infinite (naming tensor, row and column) and for more than kMaxPackedInputs inputs.
std::shared_ptr<const PackedWeight> Pack(const FloatMatrix& matrix, WeightFormat format, base::ThreadPool& pool);

// The same weights in the other layout (kernels/packed.h), in memory of their own. What was read from a mapped file is
// given back to it. Throws FileError where lines of w4 have different tables for two outputs that share theirs.
std::shared_ptr<const PackedWeight> InLayout(const PackedWeight& weight, kernels::PackedLayout layout,
                                             base::ThreadPool& pool);

// Makes two outputs of a pair share their tables in panels of any bytes, where the panels are lines of w4: for random
// weights.
void ShareTables(const kernels::PackedMatrix& shape, uint8_t* panels);

// The integers of an output, -127 .. 127, [I].
std::vector<int8_t> UnpackRow(const kernels::PackedMatrix& matrix, int64_t output);

// The weights that the codes stand for, [O, I]: the slow twin of every reader.
std::vector<float> Unpack(const kernels::PackedMatrix& matrix);

// Writes a row's codes to their place; panels start as zeros. `output` counts over the whole matrix.
void PlaceRowW8(const kernels::PackedMatrix& shape, int64_t output, std::span<const int8_t> codes, uint8_t* panels);
void PlaceRowW4(const kernels::PackedMatrix& shape, int64_t output, std::span<const uint8_t> tables,
                std::span<const uint8_t> codes, uint8_t* panels);

}  // namespace hydrant::quant
