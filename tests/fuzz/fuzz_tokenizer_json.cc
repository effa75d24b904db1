// SPDX-License-Identifier: Apache-2.0
// Any bytes as tokenizer.json: a typed error, or a tokenizer whose ids lie in its vocabulary and decode.
#include <cstddef>
#include <cstdint>
#include <string_view>

#include "fuzz_tokenizer.h"
#include "hydrant/error.h"
#include "tokenizer/loaders.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const std::string_view bytes(reinterpret_cast<const char*>(data), size);
  try {
    hydrant::fuzz::UseTokenizer(*hydrant::tokenizer::LoadTokenizerJson(bytes, "tokenizer.json"));
  } catch (const hydrant::UserError&) {
  }
  return 0;
}
