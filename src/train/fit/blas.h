// SPDX-License-Identifier: Apache-2.0
// Which library multiplies matrices for libtorch.
#pragma once

#include <string>

namespace hydrant::train {

// The file that the function sgemm comes from; empty: libtorch has its own.
std::string BlasFile();

// Is it the reference BLAS of Debian, which multiplies at 3 GFLOPS where OpenBLAS does at 100? `file`: BlasFile's.
bool IsReferenceBlas(const std::string& file);

}  // namespace hydrant::train
