// SPDX-License-Identifier: Apache-2.0
// The flags of one command, on top of CLI11: unknown flags are refused with the nearest one or what it is
// called here, a flag given twice or
// without its value is refused, and every value is read by a setter that knows the flag's name.
#pragma once

#include <functional>
#include <map>
#include <memory>
#include <string>
#include <vector>

namespace CLI {
class App;
class Option;
}  // namespace CLI

namespace hydrant::cli {

class FlagSet {
 public:
  // `command` as the user types it ("hydrant run"); `examples` ends the help.
  FlagSet(std::string command, const std::string& description, const std::string& examples);
  ~FlagSet();
  FlagSet(const FlagSet&) = delete;
  FlagSet& operator=(const FlagSet&) = delete;

  using Setter = std::function<void(const std::string& value)>;

  // These stand before all others in the help, under this heading, and not in their groups.
  void First(const std::string& title, std::vector<std::string> flags);
  // Following flags stand under this heading in the help.
  void Group(const std::string& title) { group_ = title; }
  // A flag with one value. `kind` is the placeholder in the help ("DIR", "N").
  void Value(const std::string& flag, const std::string& kind, Setter set, const std::string& help);
  void Text(const std::string& flag, const std::string& kind, std::string* target, const std::string& help);
  // May be given several times; the setter is called once for each.
  void Repeated(const std::string& flag, const std::string& kind, Setter set, const std::string& help);
  void Switch(const std::string& flag, bool* target, const std::string& help);
  // A word without a flag, in the order of these calls.
  void Positional(const std::string& name, std::string* target, bool required, const std::string& help);

  // Reads `args` and calls the setters in the order in which the flags were declared. Returns false when help was asked
  // for and has been printed. Throws UserError.
  bool Parse(const std::vector<std::string>& args);

  // Was the flag on the command line?
  bool Given(const std::string& flag) const;

  std::string Help() const;

 private:
  struct Entry {
    CLI::Option* option = nullptr;
    bool takes_value = true;
    bool repeats = false;
    Setter set;
    std::string group, kind, help;
  };

  Entry& Add(const std::string& name, const std::string& kind, const std::string& help);
  std::vector<std::string> Checked(const std::vector<std::string>& args) const;
  void RefuseRemaining() const;
  [[noreturn]] void RefuseUnknown(const std::string& word, bool may_be_flag) const;
  // Where a word without a flag was meant to go; empty where nothing can be said.
  std::string HintForWord(const std::string& word) const;

  std::string command_, description_, examples_;
  std::string first_title_;
  std::vector<std::string> first_;
  std::string group_ = "Options";
  std::unique_ptr<CLI::App> app_;
  std::vector<std::string> order_;
  std::map<std::string, Entry> entries_;  // by "--flag", or by the positional's name
};

}  // namespace hydrant::cli
