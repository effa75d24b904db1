// SPDX-License-Identifier: Apache-2.0
// One line on a terminal that says how far long work is, gone when the work is done. Nothing where stderr is no
// terminal.
#pragma once

#include <string>
#include <string_view>

namespace hydrant::cli {

class Progress {
 public:
  // `what` stands first: "measuring".
  explicit Progress(std::string what);
  ~Progress();
  Progress(const Progress&) = delete;
  Progress& operator=(const Progress&) = delete;

  // `share` of the work that is done, 0 to 1; `note` stands behind it.
  void Update(double share, std::string_view note = {});
  void Clear();

 private:
  std::string what_;
  bool shown_ = false;
};

}  // namespace hydrant::cli
