// SPDX-License-Identifier: Apache-2.0
// A folder that appears whole or not at all.
#pragma once

#include <string>

namespace hydrant::engine {

class OutputFolder {
 public:
  // Makes a folder of another name beside `target`. An existing target is refused, unless `replace` is set and it is
  // empty or holds a config.json: then Keep puts the new one in its place. Throws FileError.
  OutputFolder(const std::string& target, bool replace);
  // Removes what was written, unless it was kept.
  ~OutputFolder();
  OutputFolder(const OutputFolder&) = delete;
  OutputFolder& operator=(const OutputFolder&) = delete;

  const std::string& path() const { return path_; }  // where to write
  void Keep();                                       // everything is written: the folder takes its name

 private:
  std::string target_, path_;
  bool kept_ = false;
};

}  // namespace hydrant::engine
