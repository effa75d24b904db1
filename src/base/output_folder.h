// SPDX-License-Identifier: Apache-2.0
// A folder that appears whole or not at all.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "base/unfinished.h"

namespace hydrant::base {

class OutputFolder {
 public:
  // The file that shows that a folder was made so: whoever writes one puts it in.
  static constexpr const char* kMark = "hydrant.json";

  // Makes a folder of another name beside `target`. An existing target is refused, unless `replace` is set and it is
  // empty, or holds kMark and files only: then Keep puts the new one in its place, and what it held is gone. `sources`,
  // the folders that are read, and what holds one of them are never replaced. Throws FileError.
  OutputFolder(const std::string& target, bool replace, const std::vector<std::string>& sources);
  // Removes what was written, unless it was kept.
  ~OutputFolder();
  OutputFolder(const OutputFolder&) = delete;
  OutputFolder& operator=(const OutputFolder&) = delete;

  const std::string& path() const { return path_; }  // where to write
  // Folders for this target that a program which was killed had left (unfinished.h), and that are gone now.
  const std::vector<Leftover>& removed() const { return removed_; }
  // Everything is written: the folder takes its name. What would be refused now, since the target appeared or changed
  // meanwhile, is refused as a UserError; then the new folder stays where it is, and the error says where.
  void Keep();

 private:
  std::string MoveAway() const;

  std::string target_, path_;
  std::vector<Leftover> removed_;
  std::unique_ptr<UnfinishedMark> mark_;
  bool replace_;
  std::vector<std::string> sources_;
  bool kept_ = false;
};

}  // namespace hydrant::base
