// SPDX-License-Identifier: Apache-2.0
// Where tests find data: what is committed, and the reference cases beside the checkout that may be absent.
#pragma once

#include <gtest/gtest.h>
#include <unistd.h>

#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <string>

namespace hydrant::test {

// Committed data: SourceDir() + "/tests/golden/…".
inline std::string SourceDir() { return HYDRANT_SOURCE_DIR; }

// HYDRANT_SHARED_DIR, else ../shared beside the checkout; empty when absent.
inline std::string SharedDir() {
  const char* named = std::getenv("HYDRANT_SHARED_DIR");
  const std::string dir = named != nullptr ? named : SourceDir() + "/../shared";
  return std::filesystem::is_directory(dir + "/golden") ? dir : "";
}

// A folder of its own for one test, removed at the end.
class TempDir {
 public:
  TempDir() {
    std::string pattern = (std::filesystem::temp_directory_path() / "hydrant_test_XXXXXX").string();
    if (mkdtemp(pattern.data()) == nullptr) throw std::runtime_error("mkdtemp failed");
    path_ = pattern;
  }
  ~TempDir() {
    std::error_code ignored;
    std::filesystem::remove_all(path_, ignored);
  }
  TempDir(const TempDir&) = delete;
  TempDir& operator=(const TempDir&) = delete;

  const std::string& path() const { return path_; }
  // Writes a file into the folder and returns its path.
  std::string Write(const std::string& name, const std::string& content) const {
    std::string file = path_ + "/" + name;
    std::ofstream(file, std::ios::binary) << content;
    return file;
  }

 private:
  std::string path_;
};

}  // namespace hydrant::test

// First line of a test that needs the reference cases: says 'skipped' where they are absent.
#define HYDRANT_NEED_SHARED() \
  if (::hydrant::test::SharedDir().empty()) GTEST_SKIP() << "skipped: the reference cases are not beside the checkout"
