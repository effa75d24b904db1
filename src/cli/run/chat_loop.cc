// SPDX-License-Identifier: Apache-2.0
#include "cli/run/chat_loop.h"

#include <fmt/core.h>

#include "cli/run/chat.h"
#include "cli/run/chat_history.h"
#include "cli/terminal/errors.h"
#include "cli/terminal/line_editor.h"
#include "cli/terminal/terminal.h"

namespace hydrant::cli {
namespace {

// What was typed in earlier chats; written back at the end. A file that is no history is named and left as it is.
class KeptHistory {
 public:
  KeptHistory() : path_(HistoryPath()) {
    try {
      if (!path_.empty()) entries_ = ReadHistory(path_);
    } catch (const UserError& e) {
      PrintWarnings({std::string(e.what()) + "; what you type is not kept there"});
      path_.clear();
    }
  }
  const std::vector<std::string>& entries() const { return entries_; }
  void Write(const LineEditor& editor) const {
    if (path_.empty() || !editor.edits() || editor.history() == entries_) return;
    try {
      WriteHistory(path_, editor.history());
    } catch (const UserError& e) {
      PrintWarnings({e.what()});
    }
  }

 private:
  std::string path_;
  std::vector<std::string> entries_;
};

// Returns the exit code.
int Talk(Chat& chat, LineEditor& editor) {
  std::string line;
  while (true) {
    ClearInterrupt();
    if (Interrupted()) return InterruptedExit();
    const LineEnd end = editor.Next(&line);
    if (end == LineEnd::kInterrupted && InterruptedExit() == kExitInterrupted) Print("\n(/quit or Ctrl-D leaves)\n");
    if (end == LineEnd::kInterrupted || InterruptedExit() == kExitHangUp) continue;
    if (end == LineEnd::kEndOfInput) break;
    if (line.find_first_not_of(" \t\n") == std::string::npos) continue;
    // A pasted text may begin with a slash too.
    if (!line.starts_with("/") || line.find('\n') != std::string::npos) {
      chat.Say(line.starts_with(" /") ? line.substr(1) : line);
    } else if (!chat.Obey(line)) {
      return kExitOk;
    }
  }
  Print("\n");
  return kExitOk;
}

}  // namespace

int RunChat(Engine& engine, const RunOptions& options, const std::string& resolved_template) {
  Print(resolved_template == "none"
            ? "Without a chat template every line is continued on its own. /help lists the commands.\n"
            : fmt::format("Chat with template {}. /help lists the commands.\n", resolved_template));
  Chat chat(engine, options, resolved_template);
  const KeptHistory history;
  LineEditor editor("> ", history.entries());
  const int code = Talk(chat, editor);
  history.Write(editor);
  return code;
}

}  // namespace hydrant::cli
