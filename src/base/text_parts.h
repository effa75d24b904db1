// SPDX-License-Identifier: Apache-2.0
// Parts of large text files, each read alone: a file of gigabytes is never held twice, and errors have lines.
#pragma once

#include <cstddef>
#include <functional>
#include <string>
#include <string_view>

namespace hydrant::base {

inline constexpr std::string_view kBlank = " \t\r\n";

// Without blanks at both ends.
std::string_view Trimmed(std::string_view text);

// A part of a file, and its place for errors.
struct TextPart {
  std::string_view text;
  size_t line = 1;
};

// Gets a part; false: that is enough.
using OnTextPart = std::function<bool(const TextPart&)>;

// The lines that are not blank, trimmed.
void ForEachLine(std::string_view text, const OnTextPart& on_part);

// The elements, trimmed, of the array of JSON that `text` is. Brackets are only counted here; each element's own parser
// is the judge of it. `name` is the file's, for errors. Throws FileError.
void ForEachElement(std::string_view text, const std::string& name, const OnTextPart& on_part);

// "FILE line 3": the file of an error with a line.
std::string AtLine(const std::string& name, size_t line);

}  // namespace hydrant::base
