// SPDX-License-Identifier: Apache-2.0
#include "engine/output_folder.h"

#include <stdlib.h>
#include <sys/stat.h>

#include <cerrno>
#include <cstring>
#include <filesystem>
#include <system_error>

#include "hydrant/error.h"

namespace hydrant::engine {
namespace {

namespace fs = std::filesystem;

void CheckTarget(const std::string& target, bool replace) {
  std::error_code ignored;
  if (!fs::exists(fs::symlink_status(target, ignored))) return;
  if (!replace) throw FileError(target, "exists already", "name another folder, or replace it with --force");
  if (!fs::is_directory(target, ignored) || fs::is_symlink(target, ignored)) {
    throw FileError(target, "is not a folder, expected one that can be replaced");
  }
  if (!fs::is_empty(target, ignored) && !fs::exists(fs::path(target) / "config.json", ignored)) {
    throw FileError(target, "holds no config.json: only a model's or heads' folder is replaced",
                    "remove it yourself, or name another folder");
  }
}

std::string WithoutSlashes(std::string path) {
  while (path.size() > 1 && path.ends_with('/')) path.pop_back();
  return path;
}

std::string MakeBeside(const std::string& target) {
  std::string pattern = target + ".XXXXXX";
  if (mkdtemp(pattern.data()) == nullptr) {
    throw FileError(target, std::string("cannot be created: ") + std::strerror(errno));
  }
  const mode_t mask = umask(0);
  umask(mask);
  const mode_t usual_rights = 0777;  // mkdtemp gives 0700
  chmod(pattern.c_str(), usual_rights & ~mask);
  return pattern;
}

}  // namespace

OutputFolder::OutputFolder(const std::string& target, bool replace) : target_(WithoutSlashes(target)) {
  CheckTarget(target_, replace);
  path_ = MakeBeside(target_);
}

OutputFolder::~OutputFolder() {
  if (kept_) return;
  std::error_code ignored;
  fs::remove_all(path_, ignored);
}

void OutputFolder::Keep() {
  std::error_code error;
  std::string old;
  if (fs::exists(target_, error)) {
    old = MakeBeside(target_);  // rename replaces an empty folder
    fs::rename(target_, old, error);
    if (error) throw FileError(target_, "cannot be replaced: " + error.message());
  }
  fs::rename(path_, target_, error);
  if (error) {
    std::error_code ignored;
    if (!old.empty()) fs::rename(old, target_, ignored);
    throw FileError(target_, "cannot be created: " + error.message());
  }
  kept_ = true;
  if (!old.empty()) fs::remove_all(old, error);
}

}  // namespace hydrant::engine
