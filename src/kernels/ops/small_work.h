// SPDX-License-Identifier: Apache-2.0
// What is so small that a CPU's threads do it better in another way than large work: sizes that were measured, for the
// passes of model and draft.
#pragma once

#include <cstdint>

namespace hydrant::kernels {

// Does every thread make the products' inputs of all rows [rows, hidden_size] by itself (ops/workspaces.h)?
bool AreInputsAlone(int64_t rows, int64_t hidden_size);
// Does every thread do the whole product of these rows with a [D, D] matrix by itself?
bool IsSquareAlone(bool floats, int64_t rows, int64_t hidden_size);
// Are the products of gate and up made whole before SiLU, [rows, inner] each? Else they are made part by part.
bool IsInnerWhole(int64_t rows, int64_t inner);

}  // namespace hydrant::kernels
