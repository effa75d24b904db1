// SPDX-License-Identifier: Apache-2.0
#include "cli/flags/help_text.h"

#include <algorithm>

namespace hydrant::cli {
namespace {

constexpr size_t kColumn = 30;  // where what a flag does begins

void AddWords(std::string_view line, size_t width, std::vector<std::string>& lines, bool goes_on) {
  bool first = !goes_on;
  while (true) {
    line.remove_prefix(std::min(line.find_first_not_of(' '), line.size()));
    if (line.empty()) return;
    const std::string_view word = line.substr(0, line.find(' '));
    line.remove_prefix(word.size());
    if (first || lines.back().size() + 1 + word.size() > width) {
      lines.emplace_back(word);
    } else {
      lines.back().append(" ").append(word);
    }
    first = false;
  }
}

}  // namespace

std::vector<std::string> Wrapped(std::string_view text, size_t width) {
  std::vector<std::string> lines;
  bool goes_on = false;  // a line end inside a paragraph is a space
  while (!text.empty()) {
    const std::string_view line = text.substr(0, text.find('\n'));
    text.remove_prefix(std::min(line.size() + 1, text.size()));
    if (line.starts_with(' ') || line.empty()) {
      lines.emplace_back(line);
      goes_on = false;
    } else {
      AddWords(line, width, lines, goes_on);
      goes_on = true;
    }
  }
  return lines;
}

std::string HelpText(const std::string& description, const std::string& usage, const std::vector<HelpLine>& lines,
                     const std::string& examples) {
  std::string text;
  for (const std::string& line : Wrapped(description, kHelpWidth)) text += line + "\n";
  text += "\nUsage: " + usage + "\n";
  std::vector<std::string> groups;
  for (const HelpLine& line : lines) {
    if (std::ranges::find(groups, line.group) == groups.end()) groups.push_back(line.group);
  }
  for (const std::string& group : groups) {
    text += "\n" + group + ":\n";
    for (const HelpLine& line : lines) {
      if (line.group != group) continue;
      std::string left = "  " + line.left;
      for (const std::string& piece : Wrapped(line.help, kHelpWidth - kColumn)) {
        if (left.size() + 2 > kColumn && left.find_first_not_of(' ') != std::string::npos) {
          text += left + "\n";
          left.clear();
        }
        left.resize(kColumn, ' ');
        text += left + piece + "\n";
        left.clear();
      }
    }
  }
  return examples.empty() ? text : text + "\n" + examples;
}

}  // namespace hydrant::cli
