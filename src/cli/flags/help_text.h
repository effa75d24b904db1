// SPDX-License-Identifier: Apache-2.0
// How the help of a command is laid out: flags under headings, what they do beside them, no line over 100 characters.
#pragma once

#include <string>
#include <string_view>
#include <vector>

namespace hydrant::cli {

inline constexpr size_t kHelpWidth = 100;

struct HelpLine {
  std::string group;  // heading; lines of one heading stand together
  std::string left;   // "--prompt TEXT"
  std::string help;
};

// Words of `text` in lines of at most `width` bytes, longer words alone on theirs. Lines that begin with a space stay.
std::vector<std::string> Wrapped(std::string_view text, size_t width);

// Description, usage, the lines under their headings in the order in which those first appear, the examples.
std::string HelpText(const std::string& description, const std::string& usage, const std::vector<HelpLine>& lines,
                     const std::string& examples);

}  // namespace hydrant::cli
