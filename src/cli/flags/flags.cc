// SPDX-License-Identifier: Apache-2.0
#include "cli/flags/flags.h"

#include <fmt/core.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <array>
#include <filesystem>
#include <string_view>
#include <system_error>
#include <utility>

#include "base/nearest.h"
#include "cli/flags/foreign_words.h"
#include "cli/flags/help_text.h"
#include "cli/terminal/terminal.h"
#include "hydrant/error.h"

namespace hydrant::cli {

FlagSet::FlagSet(std::string command, const std::string& description, const std::string& examples)
    : command_(std::move(command)),
      description_(description),
      examples_(examples),
      app_(std::make_unique<CLI::App>("", command_)) {
  app_->set_help_flag("-h,--help");
  app_->allow_extras();  // collected, then refused with the nearest flag
}

FlagSet::~FlagSet() = default;

FlagSet::Entry& FlagSet::Add(const std::string& name, const std::string& kind, const std::string& help) {
  CLI::Option* option = app_->add_option(name, [](const CLI::results_t&) { return true; });
  option->type_name(kind)->multi_option_policy(CLI::MultiOptionPolicy::TakeAll);
  option->allow_extra_args(false);
  order_.push_back(name);
  Entry& entry = entries_[name];
  entry.option = option;
  entry.group = group_;
  entry.kind = kind;
  entry.help = help;
  return entry;
}

void FlagSet::Value(const std::string& flag, const std::string& kind, Setter set, const std::string& help) {
  Add(flag, kind, help).set = std::move(set);
}

void FlagSet::Text(const std::string& flag, const std::string& kind, std::string* target, const std::string& help) {
  Value(
      flag, kind, [target](const std::string& value) { *target = value; }, help);
}

void FlagSet::Repeated(const std::string& flag, const std::string& kind, Setter set, const std::string& help) {
  Entry& entry = Add(flag, kind, help);
  entry.set = std::move(set);
  entry.repeats = true;
  entry.option->expected(1, CLI::detail::expected_max_vector_size)->allow_extra_args(false);
}

void FlagSet::Switch(const std::string& flag, bool* target, const std::string& help) {
  order_.push_back(flag);
  entries_[flag] = {
      app_->add_flag(flag), false, true, [target](const std::string&) { *target = true; }, group_, "", help};
}

void FlagSet::Positional(const std::string& name, std::string* target, bool required, const std::string& help) {
  Entry& entry = Add(name, "", help);
  entry.set = [target](const std::string& value) { *target = value; };
  entry.option->required(required);
  entry.group = "Words";
}

void FlagSet::First(const std::string& title, std::vector<std::string> flags) {
  first_title_ = title;
  first_ = std::move(flags);
}

// CLI11 would take the next flag as a value, and the word after "--flag=" as its value; both are settled here.
std::vector<std::string> FlagSet::Checked(const std::vector<std::string>& args) const {
  std::vector<std::string> checked;
  const bool wants_help = std::ranges::any_of(args, [](const auto& arg) { return arg == "--help" || arg == "-h"; });
  for (size_t i = 0; i < args.size(); ++i) {
    const size_t equals = args[i].find('=');
    const std::string flag = args[i].substr(0, equals);
    const auto it = entries_.find(flag);
    if (args[i] == "--") {  // what follows is no flag
      checked.insert(checked.end(), args.begin() + static_cast<std::ptrdiff_t>(i), args.end());
      break;
    }
    if (flag == "--" || it == entries_.end() || !flag.starts_with("--")) {
      // CLI11 would take "-hf" for "-h -f", and values of unknown flags for words.
      const bool is_flag = flag.size() > 1 && flag.starts_with("-") && flag != "--help" && flag != "-h";
      if (is_flag && !wants_help) RefuseUnknown(args[i], true);
      checked.push_back(args[i]);
      continue;
    }
    if (!it->second.takes_value && equals != std::string::npos) {
      throw UserError(fmt::format("{} takes no value, found '{}'", flag, args[i]));
    }
    checked.push_back(flag);
    if (!it->second.takes_value) continue;
    const std::string& kind = it->second.kind;
    if (equals != std::string::npos) {
      checked.push_back(args[i].substr(equals + 1));
    } else if (i + 1 == args.size()) {
      throw UserError(fmt::format("{} needs a value ({})", flag, kind));
    } else if (entries_.contains(args[i + 1]) && args[i + 1].starts_with("--")) {
      throw UserError(fmt::format("{} needs a value ({}), found the flag {}", flag, kind, args[i + 1]),
                      fmt::format("if {} is the value, write {}={}", args[i + 1], flag, args[i + 1]));
    } else {
      checked.push_back(args[++i]);
    }
  }
  return checked;
}

void FlagSet::RefuseRemaining() const {
  bool may_be_flag = true;
  for (const std::string& word : app_->remaining()) {
    if (may_be_flag && word == "--") {
      may_be_flag = false;
    } else {
      RefuseUnknown(word, may_be_flag);
    }
  }
}

void FlagSet::RefuseUnknown(const std::string& word, bool may_be_flag) const {
  const std::string flag = word.substr(0, word.find('='));
  const std::string help = fmt::format("'{} --help' lists the flags", command_);
  if (!may_be_flag || !flag.starts_with("-") || flag == "-") {
    const std::string hint = HintForWord(word);
    throw UserError(fmt::format("unexpected argument '{}'", word), hint.empty() ? help : hint);
  }
  std::vector<std::string_view> flags = {"--help"}, known = {"--help"};
  for (const std::string& name : order_) {
    known.emplace_back(name);
    if (name.starts_with("--")) flags.emplace_back(name);
  }
  std::string hint = ForeignFlagHint(flag, known);
  if (hint.empty()) hint = base::Nearest(flag, flags);
  const bool is_nearest = hint.starts_with("--") && hint.find(' ') == std::string::npos;
  throw UserError(fmt::format("unknown flag '{}'", flag), hint.empty() ? help
                                                          : is_nearest ? "did you mean " + hint + "?"
                                                                       : hint);
}

std::string FlagSet::HintForWord(const std::string& word) const {
  const auto open = [&](const char* flag) { return entries_.contains(flag) && !Given(flag); };
  const auto prompt = [&] {
    return std::ranges::none_of(std::array{"--prompt", "--prompt-file", "--prompt-ids", "--text"},
                                [&](const char* flag) { return entries_.contains(flag) && Given(flag); });
  };
  const auto say = [&](std::string_view what, std::string_view flag) {
    return fmt::format("{} follows {}: {} '{}'", what, flag, flag, word);
  };
  std::error_code error;
  const bool exists = std::filesystem::exists(word, error);
  const bool path_like = word.find(' ') == std::string::npos && word.find('/') != std::string::npos;
  if (exists || path_like || word.ends_with(".gguf") || word.ends_with(".safetensors")) {
    if (exists && !std::filesystem::is_directory(word, error) && open("--prompt-file") && prompt() &&
        !open("--model")) {
      return say("a file with the prompt", "--prompt-file");
    }
    if (open("--model")) return say("a model's folder", "--model");
    if (open("--draft")) return say("a folder with heads", "--draft");
    return {};
  }
  if (word.starts_with("[") && prompt()) {
    for (const char* flag : {"--prompt-ids", "--ids"}) {
      if (open(flag)) return say("a list of ids", flag);
    }
  }
  if (open("--prompt") && prompt()) {
    const bool also_model = open("--model") && word.find(' ') == std::string::npos;
    return say("a prompt", "--prompt") + (also_model ? "; a model's folder follows --model" : "");
  }
  if (open("--text") && prompt()) return say("a text", "--text");
  if (open("--model")) return say("a model's folder", "--model");
  return {};
}

bool FlagSet::Parse(const std::vector<std::string>& args) {
  std::vector<std::string> reversed = Checked(args);
  std::reverse(reversed.begin(), reversed.end());  // as CLI11 wants it
  try {
    app_->parse(reversed);
  } catch (const CLI::CallForHelp&) {
    Print(Help());
    return false;
  } catch (const CLI::ParseError& e) {
    RefuseRemaining();
    throw UserError(e.what(), fmt::format("'{} --help' lists the flags", command_));
  }
  RefuseRemaining();
  for (const std::string& name : order_) {
    const Entry& entry = entries_.at(name);
    if (!entry.takes_value) {
      if (entry.option->count() > 0) entry.set("");
      continue;
    }
    if (entry.option->count() > 1 && !entry.repeats) throw UserError(fmt::format("{} is given twice", name));
    for (const std::string& value : entry.option->results()) entry.set(value);
  }
  return true;
}

bool FlagSet::Given(const std::string& flag) const { return entries_.at(flag).option->count() > 0; }

std::string FlagSet::Help() const {
  std::vector<HelpLine> lines;
  std::string words;
  const auto add = [&](const std::string& name, const std::string& group) {
    const Entry& entry = entries_.at(name);
    const std::string left = fmt::format("{}{}{}{}", name, entry.kind.empty() ? "" : " ", entry.kind,
                                         entry.repeats && entry.takes_value ? " ..." : "");
    lines.push_back({group, left, entry.help});
  };
  for (const std::string& name : order_) {
    if (name.starts_with("--")) continue;
    words += entries_.at(name).option->get_required() ? " " + name : " [" + name + "]";
    add(name, "Words");
  }
  for (const std::string& name : first_) add(name, first_title_);
  for (const std::string& name : order_) {
    if (name.starts_with("--") && std::ranges::find(first_, name) == first_.end()) add(name, entries_.at(name).group);
  }
  lines.push_back({lines.empty() ? group_ : lines.back().group, "--help", "This help"});
  return HelpText(description_, command_ + " [FLAGS]" + words, lines, examples_);
}

}  // namespace hydrant::cli
