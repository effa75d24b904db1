// SPDX-License-Identifier: Apache-2.0
#include "train/fit/blas.h"

#include <gtest/gtest.h>

namespace hydrant::train::blas_test {
namespace {

TEST(Blas, KnowsTheReferenceByItsPlace) {
  EXPECT_TRUE(IsReferenceBlas("/usr/lib/x86_64-linux-gnu/blas/libblas.so.3.11.0"));
  EXPECT_FALSE(IsReferenceBlas("/usr/lib/x86_64-linux-gnu/openblas-pthread/libblas.so.3"));
  EXPECT_FALSE(IsReferenceBlas("/usr/lib/x86_64-linux-gnu/openblas-pthread/libopenblasp-r0.3.21.so"));
  EXPECT_FALSE(IsReferenceBlas(""));
}

}  // namespace
}  // namespace hydrant::train::blas_test
