// SPDX-License-Identifier: Apache-2.0
// Any text either gives a tree whose JSON reads back as the same tree, or is refused with a typed error.
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <string_view>

#include "hydrant/error.h"
#include "tree/draw.h"
#include "tree/parse.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const std::string_view text(reinterpret_cast<const char*>(data), size);
  try {
    const hydrant::tree::Topology topology = hydrant::tree::ParseTreeJson(text, "fuzz");
    if (hydrant::tree::ParseTreeJson(hydrant::tree::ToJson(topology), "again") != topology) std::abort();
    if (hydrant::tree::Draw(topology).empty()) std::abort();
  } catch (const hydrant::UserError&) {
  }
  return 0;
}
