// SPDX-License-Identifier: Apache-2.0
// Lines that the user types in the chat: edited by libedit where stdin and stdout are a terminal, else as they come.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "cli/terminal/standard_input.h"

namespace hydrant::cli {

class LineEditor {
 public:
  // `prompt` stands before each line. `history`: oldest first; what is typed is added.
  LineEditor(std::string prompt, std::vector<std::string> history);
  ~LineEditor();
  LineEditor(const LineEditor&) = delete;
  LineEditor& operator=(const LineEditor&) = delete;

  // A line without its end. A pasted text stays one line, its line ends in it.
  LineEnd Next(std::string* line);

  const std::vector<std::string>& history() const { return history_; }
  bool edits() const { return editor_ != nullptr; }

 private:
  struct Editor;

  std::string prompt_;
  std::vector<std::string> history_;
  LineReader reader_;
  std::unique_ptr<Editor> editor_;  // null: no libedit
};

}  // namespace hydrant::cli
