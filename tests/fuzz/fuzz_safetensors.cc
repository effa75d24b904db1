// SPDX-License-Identifier: Apache-2.0
// Any bytes either give tensors that lie within them, or are refused with a typed error.
#include <cstddef>
#include <cstdint>

#include "checkpoint/safetensors.h"
#include "fuzz_tensors.h"
#include "hydrant/error.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  try {
    hydrant::fuzz::ReadAll(*hydrant::checkpoint::ReadSafetensors({"fuzz.safetensors", {data, size}, nullptr}));
  } catch (const hydrant::UserError&) {
  }
  return 0;
}
