// SPDX-License-Identifier: Apache-2.0
#include "cli/flags.h"

#include <fmt/core.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <string_view>
#include <utility>

#include "base/nearest.h"
#include "cli/terminal.h"
#include "hydrant/error.h"

namespace hydrant::cli {

FlagSet::FlagSet(std::string command, const std::string& description, const std::string& examples)
    : command_(std::move(command)), app_(std::make_unique<CLI::App>(description, command_)) {
  app_->set_help_flag("-h,--help", "Print this help and exit");
  app_->allow_extras();  // collected, then refused with the nearest flag
  app_->footer(examples);
  app_->get_formatter()->column_width(34);
}

FlagSet::~FlagSet() = default;

FlagSet::Entry& FlagSet::Add(const std::string& name, const std::string& kind, const std::string& help) {
  CLI::Option* option = app_->add_option(
      name, [](const CLI::results_t&) { return true; }, help);
  option->type_name(kind)->group(group_)->multi_option_policy(CLI::MultiOptionPolicy::TakeAll);
  option->allow_extra_args(false);
  order_.push_back(name);
  Entry& entry = entries_[name];
  entry.option = option;
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
  CLI::Option* option = app_->add_flag(flag)->description(help)->group(group_);
  order_.push_back(flag);
  entries_[flag] = {option, false, true, [target](const std::string&) { *target = true; }};
}

void FlagSet::Positional(const std::string& name, std::string* target, bool required, const std::string& help) {
  Entry& entry = Add(name, "", help);
  entry.set = [target](const std::string& value) { *target = value; };
  entry.option->required(required)->group("Positionals");
}

// CLI11 would take the next flag as a value, and the word after "--flag=" as its value; both are settled here.
std::vector<std::string> FlagSet::Checked(const std::vector<std::string>& args) const {
  std::vector<std::string> checked;
  for (size_t i = 0; i < args.size(); ++i) {
    const size_t equals = args[i].find('=');
    const std::string flag = args[i].substr(0, equals);
    const auto it = entries_.find(flag);
    if (args[i] == "--") {  // what follows is no flag
      checked.insert(checked.end(), args.begin() + static_cast<std::ptrdiff_t>(i), args.end());
      break;
    }
    if (flag == "--" || it == entries_.end() || !flag.starts_with("--")) {
      checked.push_back(args[i]);
      continue;
    }
    if (!it->second.takes_value && equals != std::string::npos) {
      throw UserError(fmt::format("{} takes no value, found '{}'", flag, args[i]));
    }
    checked.push_back(flag);
    if (!it->second.takes_value) continue;
    const std::string kind = it->second.option->get_type_name();
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
  if (!may_be_flag || !flag.starts_with("-") || flag == "-")
    throw UserError(fmt::format("unexpected argument '{}'", word), help);
  std::vector<std::string_view> flags = {"--help"};
  for (const std::string& name : order_) {
    if (name.starts_with("--")) flags.emplace_back(name);
  }
  const std::string nearest = base::Nearest(flag, flags);
  throw UserError(fmt::format("unknown flag '{}'", flag), nearest.empty() ? help : "did you mean " + nearest + "?");
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

std::string FlagSet::Help() const { return app_->help(); }

}  // namespace hydrant::cli
