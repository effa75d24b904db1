// SPDX-License-Identifier: Apache-2.0
#include "train/trained_tensor.h"

#include <cstring>
#include <filesystem>
#include <memory>
#include <system_error>

#include "base/atomic_file.h"
#include "hydrant/error.h"

namespace hydrant::train {

const char* TorchTypeName(DType dtype) {
  return dtype == DType::kF32 ? "float32" : dtype == DType::kF16 ? "float16" : "bfloat16";
}

TensorView ViewOf(const TrainedTensor& tensor, DType dtype) {
  TensorView view{.data = nullptr, .dtype = dtype, .shape = tensor.shape, .owner = nullptr};
  const auto count = static_cast<size_t>(view.num_elements());
  auto bytes = std::make_shared<std::vector<uint8_t>>(count * SizeOf(dtype));
  if (dtype == DType::kF32) {
    std::memcpy(bytes->data(), tensor.data, bytes->size());
  } else {
    auto* out = reinterpret_cast<uint16_t*>(bytes->data());
    for (size_t i = 0; i < count; ++i) {
      out[i] = dtype == DType::kBF16 ? FloatToBFloat16(tensor.data[i]) : FloatToFloat16(tensor.data[i]);
    }
  }
  view.data = bytes->data();
  view.owner = bytes;
  return view;
}

void MakeFolder(const std::string& folder) {
  std::error_code error;
  std::filesystem::create_directories(folder, error);
  if (error) throw FileError(folder, "cannot be made: " + error.message());
}

void WriteText(const std::string& path, const std::string& text) {
  base::AtomicFile file(path);
  file.Write(text.data(), text.size());
  file.Keep();
}

}  // namespace hydrant::train
