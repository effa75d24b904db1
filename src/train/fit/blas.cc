// SPDX-License-Identifier: Apache-2.0
#include "train/fit/blas.h"

#include <dlfcn.h>

#include <filesystem>
#include <system_error>

namespace hydrant::train {

std::string BlasFile() {
  const void* function = dlsym(RTLD_DEFAULT, "sgemm_");
  Dl_info info{};
  if (function == nullptr || dladdr(function, &info) == 0 || info.dli_fname == nullptr) return {};
  std::error_code error;
  const std::filesystem::path file = std::filesystem::canonical(info.dli_fname, error);
  return error ? info.dli_fname : file.string();
}

bool IsReferenceBlas(const std::string& file) {
  const std::filesystem::path path(file);
  return path.filename().string().starts_with("libblas.so") && path.parent_path().filename() == "blas";
}

}  // namespace hydrant::train
