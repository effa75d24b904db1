// SPDX-License-Identifier: Apache-2.0
// Any bytes either give tensors that lie within them, or are refused with a typed error. Input that is no zip file is
// taken as data.pkl of an otherwise good archive: its checksum would keep mutations from the pickle reader.
#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>

#include "checkpoint/test_archives.h"
#include "checkpoint/torch_zip.h"
#include "fuzz_tensors.h"
#include "hydrant/error.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using hydrant::checkpoint::ReadTorchZip;
  const std::string_view text(reinterpret_cast<const char*>(data), size);
  try {
    if (text.starts_with("PK")) {
      hydrant::fuzz::ReadAll(*ReadTorchZip({"fuzz.pt", {data, size}, nullptr}));
    } else {
      const std::string archive = hydrant::checkpoint::test_archives::Archive(
          std::string(text), {{"0", std::string(24, '\1')}, {"1", std::string(8, '\2')}});
      hydrant::fuzz::ReadAll(*ReadTorchZip(hydrant::checkpoint::test_archives::InMemory("fuzz.pt", archive)));
    }
  } catch (const hydrant::UserError&) {
  }
  return 0;
}
