// SPDX-License-Identifier: Apache-2.0
// What the folders of the CPU targets export: their tables, constant data. Target files keep everything else in unnamed
// namespaces or in their folder's entries.h, and use no standard templates, so that the linker can never pick a copy
// with instructions that the machine lacks (scripts/check_weak_symbols). Tables are constinit, since a function that
// only fills a struct is compiled with those instructions too.
#pragma once

#include "kernels/kernel_table.h"

namespace hydrant::kernels {

extern const KernelTable kPortable;
extern const KernelTable kAmxTwin;  // what amx does, with tiles in software: all in plain C++

extern const KernelTable kAvx2[2];        // [CpuFeatures::reads_in_turns]
extern const KernelTable kAvxVnni;        // for clients without AVX-512 (Intel's since Alder Lake)
extern const KernelTable kAvx512[2][2];   // [CpuFeatures::reads_in_turns][slow_bf16_dots]
extern const KernelTable kAmxTwinAvx512;  // the twin with its vector code in AVX-512, as amx has it
extern const KernelTable kAmx;
extern const KernelTable kAmxQuads;  // avx512 but for quads times enough rows and for attention: for small models

}  // namespace hydrant::kernels
