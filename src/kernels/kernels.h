// SPDX-License-Identifier: Apache-2.0
// The tables of kernels, one per CPU target, and which of them this machine runs. Where a new instruction set goes:
// docs/adding_a_kernel.md.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "kernels/kernel_table.h"
#include "tensor/dtype.h"

namespace hydrant::kernels {

// Of f32, bf16 and f16.
FloatType FloatTypeOf(DType dtype);

const KernelTable& PortableKernels();

// The plainly written table whose attention over keys and values of a type gives the same bits as `table`'s. That is
// portable, or amx-twin for bf16 by tiles, which add in an order of their own.
const KernelTable& AttentionTwin(const KernelTable& table, DType kv_type);

// The table for a --cpu-target name ("auto" = HYDRANT_CPU_TARGET where it is set, else the best this machine runs).
// Throws UserError with three different messages: unknown name (with the nearest), not compiled in, not supported by
// this machine.
const KernelTable& KernelsFor(std::string_view cpu_target);

// The same for a model of this hidden size, [1, ..]. Where "auto" would be amx and the model is small, it is the table
// amx-quads: tiles of lines finish 16 outputs x 16 rows at a time, which costs more than the products of few inputs.
// Milliseconds of a pass, Intel with AMX, two cores, w8a8:
//   hidden size  table      1 row  4 rows  16 rows  64 rows
//   256          amx-quads   0.32    0.40     0.60     1.77
//   256          avx512      0.32    0.39     0.84     3.09
//   256          amx         0.36    0.47     0.76     1.97
//   2048         amx-quads     42      41       60       98
//   2048         avx512        41      41       69      145
//   2048         amx           39      41       43       57
const KernelTable& KernelsForModel(std::string_view cpu_target, int64_t hidden_size);

// Every table that this machine can run, portable first: for tests.
std::vector<const KernelTable*> AvailableKernels();
// Every name that EngineOptions::cpu_target takes, "auto" first. KernelsFor also takes amx-quads, for tests.
std::span<const std::string_view> CpuTargetNames();

}  // namespace hydrant::kernels
