// SPDX-License-Identifier: Apache-2.0
#include "cli/chat_loop.h"

#include <fmt/core.h>

#include <algorithm>
#include <array>
#include <string_view>
#include <vector>

#include "base/nearest.h"
#include "cli/errors.h"
#include "cli/prompt.h"
#include "cli/report.h"
#include "cli/standard_input.h"
#include "cli/stream.h"
#include "cli/terminal.h"

namespace hydrant::cli {
namespace {

constexpr std::array<std::string_view, 4> kWords = {"/help", "/reset", "/stats", "/quit"};
constexpr const char* kHelp =
    "/help   this list\n"
    "/reset  forget the conversation\n"
    "/stats  tokens per step, acceptance by depth and times of the last reply\n"
    "/quit   leave (Ctrl-D too); Ctrl-C ends a reply\n";

class Chat {
 public:
  Chat(Engine& engine, const RunOptions& options, const std::string& resolved_template)
      : engine_(engine), options_(options), template_(resolved_template), request_(options.request) {
    Reset();
  }

  void Reset() {
    messages_.clear();
    if (options_.system) messages_.push_back({"system", *options_.system});
  }

  void Say(const std::string& line) {
    const std::vector<ChatMessage> before = messages_;
    messages_.push_back({"user", line});
    try {
      request_.prompt_ids = ConversationIds(engine_, messages_, template_);
      last_ = StreamReply(engine_, request_, UseColor(options_));
      last_prompt_ = request_.prompt_ids;
      have_last_ = true;
      // Templates put their own space before a reply.
      const size_t first = last_.text.find_first_not_of(' ');
      messages_.push_back({"assistant", first == std::string::npos ? "" : last_.text.substr(first)});
      // Without a template every line is a prompt of its own.
      if (template_ == "none") messages_ = before;
      Print("\n");
      if (options_.stats) PrintError(StatsText(request_.prompt_ids, last_));
    } catch (const UserError& e) {
      messages_ = before;
      const bool talked = std::ranges::any_of(before, [](const ChatMessage& m) { return m.role == "assistant"; });
      const std::string reset = talked ? "/reset forgets the conversation" : "";
      PrintError(ErrorText(e.what(), e.hint() + (e.hint().empty() || reset.empty() ? "" : "; ") + reset));
    }
  }

  // False when the user leaves.
  bool Obey(const std::string& line) {
    if (line == "/quit") return false;
    if (line == "/help") {
      Print(kHelp);
    } else if (line == "/reset") {
      Reset();
      Print("The conversation is forgotten.\n");
    } else if (line == "/stats") {
      Print(have_last_ ? StatsText(last_prompt_, last_) : "There is no reply yet.\n");
    } else {
      const std::string nearest = base::Nearest(line, kWords);
      PrintError(ErrorText(fmt::format("unknown command '{}'", line),
                           nearest.empty() ? "/help lists the commands" : "did you mean " + nearest + "?"));
    }
    return true;
  }

 private:
  Engine& engine_;
  const RunOptions& options_;
  const std::string& template_;
  GenerationRequest request_;
  std::vector<ChatMessage> messages_;
  GenerationResult last_;
  std::vector<int32_t> last_prompt_;
  bool have_last_ = false;
};

}  // namespace

int RunChat(Engine& engine, const RunOptions& options, const std::string& resolved_template) {
  Print(resolved_template == "none"
            ? "Without a chat template every line is continued on its own. /help lists the commands.\n"
            : fmt::format("Chat with template {}. /help lists the commands.\n", resolved_template));
  Chat chat(engine, options, resolved_template);
  LineReader reader;
  std::string line;
  while (true) {
    Print("> ");
    ClearInterrupt();
    if (Interrupted()) return InterruptedExit();
    const LineEnd end = reader.Next(&line);
    if (end == LineEnd::kEndOfInput) break;
    if (end == LineEnd::kInterrupted) {
      Print("\n(/quit or Ctrl-D leaves)\n");
      continue;
    }
    if (line.empty()) continue;
    if (!line.starts_with("/")) {
      chat.Say(line);
    } else if (!chat.Obey(line)) {
      return 0;
    }
  }
  Print("\n");
  return 0;
}

}  // namespace hydrant::cli
