// SPDX-License-Identifier: Apache-2.0
#include "cli/terminal/line_editor.h"

#include <histedit.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <clocale>
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <string_view>
#include <utility>

#include "cli/terminal/errors.h"
#include "cli/terminal/terminal.h"
#include "tokenizer/utf8.h"

namespace hydrant::cli {
namespace {

constexpr size_t kMostPasted = size_t{1} << 20;  // characters
constexpr int kMostHistory = 1000;
constexpr wchar_t kReplacement = 0xFFFD;

std::atomic<int> g_terminal_signal = 0;  // SIGWINCH or SIGCONT since it was last looked at

void OnTerminalSignal(int number) { g_terminal_signal = number; }

std::string Utf8(std::wstring_view text) {
  std::string out;
  for (const wchar_t wide : text) tokenizer::AppendUtf8(static_cast<char32_t>(wide), &out);
  return out;
}

std::wstring Wide(std::string_view text) {
  std::wstring wide;
  while (!text.empty()) {
    const tokenizer::Utf8Char next = tokenizer::NextChar(text);
    wide.push_back(static_cast<wchar_t>(next.code));
    text.remove_prefix(next.size);
  }
  return wide;
}

// Reads one character through `next`, which gives bytes; false where there are no more. What is no UTF-8 is U+FFFD.
template <typename Next>
bool ReadWide(Next next, wchar_t* out) {
  unsigned char byte = 0;
  if (!next(&byte)) return false;
  const int more = byte < 0x80 ? 0 : byte < 0xC2 ? -1 : byte < 0xE0 ? 1 : byte < 0xF0 ? 2 : byte < 0xF5 ? 3 : -1;
  *out = more == 0 ? static_cast<wchar_t>(byte) : kReplacement;
  if (more <= 0) return true;
  uint32_t c = byte & (0x3FU >> more);
  for (int i = 0; i < more; ++i) {
    if (!next(&byte)) return false;
    if ((byte & 0xC0U) != 0x80) return true;  // the byte is lost with the broken character
    c = c << 6 | (byte & 0x3FU);
  }
  constexpr uint32_t kLeast[] = {0, 0x80, 0x800, 0x10000};
  if (c >= kLeast[more] && c <= 0x10FFFF && (c < 0xD800 || c >= 0xE000)) *out = static_cast<wchar_t>(c);
  return true;
}

}  // namespace

struct LineEditor::Editor {
  EditLine* el = nullptr;
  HistoryW* history = nullptr;
  std::wstring prompt;
  bool interrupted = false, too_long = false;
  bool marks_pastes = false;  // asked of the terminal for this line

  explicit Editor(const std::string& prompt_text) : prompt(Wide(prompt_text)) {
    if (std::setlocale(LC_CTYPE, "") == nullptr || MB_CUR_MAX == 1) std::setlocale(LC_CTYPE, "C.UTF-8");
    for (const int number : {SIGWINCH, SIGCONT}) {
      struct sigaction action {};
      action.sa_handler = OnTerminalSignal;
      sigemptyset(&action.sa_mask);
      sigaction(number, &action, nullptr);
    }
    el = el_init("hydrant", stdin, stdout, stderr);
    history = history_winit();
    HistEventW event;
    history_w(history, &event, H_SETSIZE, kMostHistory);
    history_w(history, &event, H_SETUNIQUE, 1);
    el_wset(el, EL_CLIENTDATA, this);
    el_wset(el, EL_PROMPT, Prompt);
    el_wset(el, EL_EDITOR, L"emacs");
    el_wset(el, EL_HIST, history_w, history);
    el_wset(el, EL_GETCFN, ReadChar);
    el_source(el, nullptr);  // ~/.editrc
    el_wset(el, EL_ADDFN, L"hydrant-paste", L"Insert a pasted text", Paste);
    el_wset(el, EL_BIND, L"\\e[200~", L"hydrant-paste", nullptr);
    el_wset(el, EL_BIND, L"\\e[3~", L"ed-delete-next-char", nullptr);
    el_wset(el, EL_BIND, L"^R", L"em-inc-search-prev", nullptr);
  }
  ~Editor() {
    history_wend(history);
    el_end(el);
  }
  Editor(const Editor&) = delete;
  Editor& operator=(const Editor&) = delete;

  void Remember(const std::string& line) {
    HistEventW event;
    history_w(history, &event, H_ENTER, Wide(line).c_str());
  }

  static Editor* Of(EditLine* el) {
    void* data = nullptr;
    el_wget(el, EL_CLIENTDATA, &data);
    return static_cast<Editor*>(data);
  }
  static wchar_t* Prompt(EditLine* el) { return Of(el)->prompt.data(); }

  // libedit's own reader goes on after a signal, and would not let Ctrl-C end the line.
  bool ReadByte(unsigned char* byte) {
    if (!std::exchange(marks_pastes, true)) Print("\x1b[?2004h");  // by now the terminal gives every key at once
    while (true) {
      const int signal = g_terminal_signal.exchange(0);
      if (signal == SIGWINCH) el_resize(el);
      if (signal == SIGCONT) {  // the shell has set the terminal as it likes it
        el_wset(el, EL_PREP_TERM, 0);
        el_wset(el, EL_PREP_TERM, 1);
      }
      if (signal != 0) el_wset(el, EL_REFRESH);
      interrupted = Interrupted();
      if (interrupted) return false;
      const ssize_t got = read(STDIN_FILENO, byte, 1);
      if (got > 0) return true;
      if (got < 0 && errno == EINTR) continue;
      // A terminal that was closed ends the read before the signal comes.
      for (int i = 0; got < 0 && errno == EIO && i < 20 && !Interrupted(); ++i) usleep(5000);
      return false;
    }
  }
  static int ReadChar(EditLine* el, wchar_t* out) {
    Editor* const self = Of(el);
    return ReadWide([self](unsigned char* byte) { return self->ReadByte(byte); }, out) ? 1 : -1;
  }

  // What stands between the two marks that a terminal puts around a pasted text. Its line ends come as CR.
  static unsigned char Paste(EditLine* el, wint_t /*key*/) {
    constexpr std::wstring_view kEnd = L"\x1b[201~";
    std::wstring pasted;
    for (wchar_t c = 0; !pasted.ends_with(kEnd);) {
      if (el_wgetc(el, &c) != 1) return CC_EOF;
      if (c == L'\n' && pasted.ends_with(L'\r')) continue;
      pasted.push_back(c);
      if (pasted.size() <= kMostPasted) continue;
      Of(el)->too_long = true;
      pasted.erase(0, pasted.size() - kEnd.size());
    }
    pasted.resize(pasted.size() - kEnd.size());
    std::ranges::replace(pasted, L'\r', L'\n');
    std::erase_if(pasted, [](wchar_t c) { return (c < 0x20 && c != L'\n' && c != L'\t') || c == 0x7F; });
    if (!Of(el)->too_long && el_winsertstr(el, pasted.c_str()) != 0 && !pasted.empty()) Of(el)->too_long = true;
    return CC_REFRESH;
  }
};

LineEditor::LineEditor(std::string prompt, std::vector<std::string> history)
    : prompt_(std::move(prompt)), history_(std::move(history)) {
  const char* const terminal = std::getenv("TERM");
  const std::string_view name = terminal == nullptr ? "" : terminal;
  if (!StdinIsTerminal() || !StdoutIsTerminal() || name.empty() || name == "dumb") return;
  editor_ = std::make_unique<Editor>(prompt_);
  for (const std::string& line : history_) editor_->Remember(line);
}

LineEditor::~LineEditor() = default;

LineEnd LineEditor::Next(std::string* line) {
  line->clear();
  if (!edits()) {
    Print(prompt_);
    return reader_.Next(line);
  }
  Editor& editor = *editor_;
  editor.interrupted = editor.too_long = editor.marks_pastes = false;
  el_resize(editor.el);
  int count = 0;
  const wchar_t* const typed = el_wgets(editor.el, &count);
  if (InterruptedExit() == kExitHangUp) return LineEnd::kInterrupted;  // nobody is there to print for
  Print("\x1b[?2004l");
  if (editor.interrupted) return LineEnd::kInterrupted;
  if (typed == nullptr || count <= 0) return LineEnd::kEndOfInput;
  *line = Utf8(std::wstring_view(typed, static_cast<size_t>(count)));
  while (line->ends_with('\n')) line->pop_back();
  if (editor.too_long) {
    PrintError(ErrorText("the pasted text is longer than a million characters, and was left out", ""));
    line->clear();
  }
  if (!line->empty() && (history_.empty() || history_.back() != *line)) {
    history_.push_back(*line);
    editor.Remember(*line);
  }
  return LineEnd::kLine;
}

}  // namespace hydrant::cli
