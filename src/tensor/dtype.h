// SPDX-License-Identifier: Apache-2.0
// Element types of tensors in files and in memory.
#pragma once

#include <cstddef>
#include <cstdint>

namespace hydrant {

enum class DType : uint8_t { kF32, kF16, kBF16, kI64, kI32, kU8, kBool };

constexpr size_t SizeOf(DType dtype) {
  switch (dtype) {
    case DType::kI64: return 8;
    case DType::kF32:
    case DType::kI32: return 4;
    case DType::kF16:
    case DType::kBF16: return 2;
    case DType::kU8:
    case DType::kBool: return 1;
  }
  return 0;
}

constexpr const char* NameOf(DType dtype) {
  switch (dtype) {
    case DType::kF32: return "f32";
    case DType::kF16: return "f16";
    case DType::kBF16: return "bf16";
    case DType::kI64: return "i64";
    case DType::kI32: return "i32";
    case DType::kU8: return "u8";
    case DType::kBool: return "bool";
  }
  return "?";
}

constexpr bool IsFloat(DType dtype) { return dtype == DType::kF32 || dtype == DType::kF16 || dtype == DType::kBF16; }

}  // namespace hydrant
