// SPDX-License-Identifier: Apache-2.0
#include "cli/run/chat.h"

#include <fmt/core.h>

#include <algorithm>
#include <array>
#include <functional>
#include <string_view>
#include <utility>

#include "base/json.h"
#include "base/nearest.h"
#include "cli/flags/sampling_settings.h"
#include "cli/flags/values.h"
#include "cli/run/acceptance.h"
#include "cli/run/chat_file.h"
#include "cli/run/prompt.h"
#include "cli/run/report.h"
#include "cli/terminal/errors.h"
#include "cli/terminal/stream.h"
#include "cli/terminal/terminal.h"

namespace hydrant::cli {
namespace {

constexpr std::array<std::string_view, 9> kWords = {"/help",  "/retry", "/reset", "/system", "/set",
                                                    "/stats", "/save",  "/load",  "/quit"};
constexpr const char* kHelp =
    "/retry               the last message again, with another seed where the text is sampled\n"
    "/reset               forget the conversation\n"
    "/system TEXT         the system message from now on; alone: show it; /system - removes it\n"
    "/set NAME VALUE      change a setting, such as temperature 0.8; /set alone lists them\n"
    "/save FILE           write the conversation to a JSON file; /load FILE goes on with one\n"
    "/stats               tokens per step, accepted drafts and times of the last reply\n"
    "/help                this list\n"
    "/quit                leave (Ctrl-D too); Ctrl-C ends a reply\n"
    "A pasted text of several lines is one message, and so is a line that begins with a space and '/'.\n";

std::string Trimmed(std::string_view text) {
  const size_t first = text.find_first_not_of(" \t");
  if (first == std::string_view::npos) return {};
  return std::string(text.substr(first, text.find_last_not_of(" \t") - first + 1));
}

// "/set top_p=0.9" and "/set --top-p 0.9" are "top-p" and "0.9".
std::pair<std::string, std::string> NameAndValue(const std::string& words) {
  const size_t end = std::min(words.find_first_of(" =\t"), words.size());
  std::string name = words.substr(0, end);
  while (name.starts_with("-")) name.erase(0, 1);
  std::ranges::replace(name, '_', '-');
  return {name, Trimmed(std::string_view(words).substr(std::min(end + 1, words.size())))};
}

std::string Count(size_t number, const std::string& what) {
  return fmt::format("{} {}{}", number, what, number == 1 ? "" : "s");
}

}  // namespace

Chat::Chat(Engine& engine, const RunOptions& options, std::string resolved_template)
    : engine_(engine),
      options_(options),
      template_(std::move(resolved_template)),
      request_(options.request),
      temperature_given_(options.temperature_from == "flag"),
      system_(options.system) {
  request_.cache_scope = "chat";  // a turn computes what is new
}

void Chat::Forget() {
  messages_.clear();
  dropped_ = 0;
  last_question_.reset();
}

std::vector<ChatMessage> Chat::Conversation(size_t dropped, const ChatMessage& question) const {
  std::vector<ChatMessage> all;
  if (system_) all.push_back({"system", *system_});
  all.insert(all.end(), messages_.begin() + static_cast<std::ptrdiff_t>(2 * dropped), messages_.end());
  all.push_back(question);
  return all;
}

// Drops as few of the oldest turns as leave room for a reply: a quarter of the context, or --max-tokens where that is
// less.
Chat::Turn Chat::Fit(const ChatMessage& question) const {
  const auto context = static_cast<size_t>(engine_.info().max_positions);
  const size_t room = context - std::min(static_cast<size_t>(request_.stop.max_tokens), context / 4);
  Turn turn;
  const auto fits = [&](size_t dropped) {
    const std::vector<ChatMessage> all = Conversation(dropped, question);
    size_t bytes = 0;
    for (const ChatMessage& message : all) bytes += message.content.size();
    if (dropped < num_turns() && bytes > context * kMostTokenBytes) return false;  // too much for a tokenizer
    turn = {.prompt_ids = ConversationIds(engine_, all, template_), .dropped = dropped};
    return turn.prompt_ids.size() <= room;
  };
  if (!has_template() || fits(dropped_)) {
    if (!has_template()) turn = {.prompt_ids = ConversationIds(engine_, {&question, 1}, template_), .dropped = 0};
    return turn;
  }
  size_t least = std::min(dropped_ + 1, num_turns()), most = num_turns();
  while (least < most) {
    const size_t half = least + (most - least) / 2;
    if (fits(half)) {
      most = half;
    } else {
      least = half + 1;
    }
  }
  fits(most);
  if (turn.prompt_ids.size() >= context) {
    const ChatMessage alone[] = {question};
    if (system_ && ConversationIds(engine_, alone, template_).size() < context) {
      throw UserError(fmt::format("system message and message come to {} tokens with their template, and the model's "
                                  "context has {}",
                                  turn.prompt_ids.size(), context),
                      "'/system -' removes the system message, '/system TEXT' replaces it");
    }
    throw UserError(fmt::format("the message comes to {} tokens with its template, and the model's context has {}",
                                turn.prompt_ids.size(), context),
                    "shorten it");
  }
  return turn;
}

// False where the turn failed and was taken back.
bool Chat::Reply(const std::string& text) {
  try {
    const ChatMessage question = {"user", text};
    Turn turn = Fit(question);
    if (turn.dropped > dropped_) {
      PrintError(fmt::format("(the context of {} tokens is full: the model no longer sees the {})\n",
                             engine_.info().max_positions, Count(turn.dropped, "oldest turn")));
    }
    request_.prompt_ids = std::move(turn.prompt_ids);
    last_ = StreamReply(engine_, request_, UseColor(options_));
    last_prompt_ = request_.prompt_ids;
    last_question_ = text;
    dropped_ = turn.dropped;
    // Templates put their own space before a reply.
    const size_t first = std::min(last_->text.find_first_not_of(' '), last_->text.size());
    if (has_template()) {  // without one every line is a prompt of its own
      messages_.push_back(question);
      messages_.push_back({"assistant", last_->text.substr(first)});
    }
    Print("\n");
    PrintError(LimitText(*last_, engine_.info(), "/set max-tokens N"));
    WarnOfLowAcceptance();
    if (options_.stats) PrintError(StatsText(last_prompt_, *last_));
    return true;
  } catch (const UserError& e) {
    PrintError(ErrorText(e.what(), e.hint()));
    return false;
  }
}

// Once: later replies would only say it again.
void Chat::WarnOfLowAcceptance() {
  const std::string low = LowAcceptance(*last_);
  if (low.empty() || std::exchange(warned_of_acceptance_, true)) return;
  PrintWarnings({low});
}

void Chat::Say(const std::string& text) { Reply(text); }

void Chat::Retry() {
  if (!last_question_) return Print("There is nothing to try again yet.\n");
  if (request_.sampling.temperature > 0) {
    ++request_.sampling.seed;
    Print(fmt::format("(again, with seed {})\n", request_.sampling.seed));
  } else {
    Print("(again; at temperature 0 the reply is the same: /set temperature 0.8 makes it another)\n");
  }
  std::vector<ChatMessage> before = messages_;
  if (!messages_.empty()) messages_.resize(messages_.size() - 2);
  const size_t dropped = std::exchange(dropped_, std::min(dropped_, num_turns()));
  const std::string question = *last_question_;
  if (Reply(question)) return;
  messages_ = std::move(before);
  dropped_ = dropped;
}

void Chat::SetSystem(const std::string& text) {
  if (!has_template()) {
    throw UserError("/system needs a chat template, and there is none", "start with --template NAME");
  }
  if (text.empty()) {
    return Print(system_ ? fmt::format("system message: {}\n", *system_) : "There is no system message.\n");
  }
  std::optional<std::string> before = std::exchange(system_, text == "-" ? std::nullopt : std::optional(text));
  try {
    std::string prompt;
    engine_.RenderChat(Conversation(dropped_, {"user", "x"}), template_, &prompt);  // some templates know none
  } catch (const UserError&) {
    system_ = std::move(before);
    throw;
  }
  Print(system_ ? "The system message holds from the next message on.\n" : "The system message is removed.\n");
}

void Chat::ListSettings() const {
  std::string text;
  const auto line = [&](std::string_view name, const std::string& value) {
    text += fmt::format("{:20} {}\n", name, value);
  };
  for (const Setting& setting : SamplingSettings()) line(setting.name, setting.get(request_));
  line(MaxTokensSetting().name, MaxTokensSetting().get(request_));
  line("stop", base::DumpJson(request_.stop.stop));
  line("ignore-eos", request_.stop.ignore_eos ? "on" : "off");
  Print(text);
}

void Chat::SetNamed(const std::string& name, const std::string& value) {
  GenerationRequest changed = request_;
  std::string now = value;
  if (name == "stop") {  // replaces those before; without a text there are none
    changed.stop.stop.clear();
    if (!value.empty()) changed.stop.stop.push_back(value);
    now = base::DumpJson(changed.stop.stop);
  } else if (name == "ignore-eos") {
    constexpr std::array<std::string_view, 2> kSwitch = {"on", "off"};
    changed.stop.ignore_eos = ParseChoice(name, value, kSwitch) == "on";
  } else {
    const auto settings = SamplingSettings();
    const auto found = std::ranges::find(settings, name, &Setting::name);
    const Setting& setting = found == settings.end() ? MaxTokensSetting() : *found;
    if (value.empty()) return Print(fmt::format("{} {}\n", name, setting.get(request_)));
    setting.set(name, value, changed);
    if (name == "temperature") temperature_given_ = true;
    if (IsFilter(name) && IsOn(name, changed.sampling) && changed.sampling.temperature <= 0 && !temperature_given_) {
      changed.sampling.temperature = TemperatureOf(options_.engine.model).value;
      Print(fmt::format("temperature {}: at 0 {} means nothing\n", ShortestDouble(changed.sampling.temperature), name));
    }
    now = setting.get(changed);
  }
  changed.prompt_ids.clear();
  ValidateRequest(changed);
  request_ = std::move(changed);
  Print(fmt::format("{} {}\n", name, now));
  if (IsFilter(name) && request_.sampling.temperature <= 0) Print("(at temperature 0 it changes nothing)\n");
}

void Chat::Set(const std::string& words) {
  if (words.empty()) return ListSettings();
  const auto [name, value] = NameAndValue(words);
  std::vector<std::string_view> names = {MaxTokensSetting().name, "stop", "ignore-eos"};
  for (const Setting& setting : SamplingSettings()) names.push_back(setting.name);
  if (std::ranges::find(names, name) != names.end()) return SetNamed(name, value);
  const std::string nearest = base::Nearest(name, names);
  throw UserError(fmt::format("there is no setting '{}'", name),
                  nearest.empty() ? "/set alone lists them" : "did you mean " + nearest + "?");
}

void Chat::Save(const std::string& path) const {
  if (path.empty()) throw UserError("/save needs the name of a file", "/save chat.json");
  if (messages_.empty()) {
    throw UserError(has_template() ? "there is nothing to save yet"
                                   : "without a chat template there is no conversation to save");
  }
  std::vector<ChatMessage> all;
  if (system_) all.push_back({"system", *system_});
  all.insert(all.end(), messages_.begin(), messages_.end());
  const bool replaced = SaveChat(ExpandHome(path), all);
  Print(fmt::format("{} saved to {}{}.\n", Count(num_turns(), "turn"), path,
                    replaced ? ", in place of the chat that was there" : ""));
}

void Chat::Load(const std::string& path) {
  if (path.empty()) throw UserError("/load needs the name of a file", "/load chat.json");
  if (!has_template()) throw UserError("/load needs a chat template, and there is none", "start with --template NAME");
  std::vector<ChatMessage> all = LoadChat(ExpandHome(path));
  Forget();
  system_.reset();
  if (!all.empty() && all.front().role == "system") {
    system_ = all.front().content;
    all.erase(all.begin());
  }
  messages_ = std::move(all);
  if (!messages_.empty()) last_question_ = messages_[messages_.size() - 2].content;
  Print(fmt::format("{} loaded from {}{}.\n", Count(num_turns(), "turn"), path,
                    system_ ? ", with a system message" : ", without a system message"));
}

bool Chat::Obey(const std::string& line) {
  const size_t end = std::min(line.find_first_of(" \t"), line.size());
  const std::string word = line.substr(0, end), rest = Trimmed(std::string_view(line).substr(end));
  const std::array<std::pair<std::string_view, std::function<void()>>, 8> commands = {{
      {"/help", [] { Print(kHelp); }},
      {"/retry", [&] { Retry(); }},
      {"/reset", [&] { Forget(), Print("The conversation is forgotten.\n"); }},
      {"/system", [&] { SetSystem(rest); }},
      {"/set", [&] { Set(rest); }},
      {"/stats", [&] { Print(last_ ? StatsText(last_prompt_, *last_) : "There is no reply yet.\n"); }},
      {"/save", [&] { Save(rest); }},
      {"/load", [&] { Load(rest); }},
  }};
  try {
    if (word == "/quit" || word == "/exit" || word == "/bye") return false;
    const auto found = std::ranges::find(commands, word, &std::pair<std::string_view, std::function<void()>>::first);
    if (found != commands.end()) {
      found->second();
      return true;
    }
    const std::string nearest = base::Nearest(word, kWords);
    throw UserError(fmt::format("unknown command '{}'", word),
                    nearest.empty() ? "/help lists the commands" : "did you mean " + nearest + "?");
  } catch (const UserError& e) {
    PrintError(ErrorText(e.what(), e.hint()));
  }
  return true;
}

}  // namespace hydrant::cli
