// SPDX-License-Identifier: Apache-2.0
// Whether tensors hold the same numbers: before one that a file holds is called a copy of another, and not used.
#pragma once

#include "tensor/tensor.h"

namespace hydrant::checkpoint {

// Equal shapes, and equal numbers however they are stored: bf16 beside f32 is no difference. False where either holds
// no floats.
bool SameValues(const TensorView& a, const TensorView& b);

// The same but for the rounding of a copy that was kept in bf16 or f16 at some time.
bool SameButRounded(const TensorView& a, const TensorView& b);

// The elements first .. first + count - 1 of a tensor, as one row.
TensorView Slice(const TensorView& tensor, int64_t first, int64_t count);

// Minus zero is zero.
bool AllZero(const TensorView& tensor);

}  // namespace hydrant::checkpoint
