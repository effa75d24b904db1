// SPDX-License-Identifier: Apache-2.0
// Text that others wrote, for a terminal: names in files, values, what a model generates. Control characters would move
// the cursor, change colours and titles, or type into the shell.
#pragma once

#include <string>
#include <string_view>

namespace hydrant::cli {

// Control characters (C0 but those in `keep`, DEL, C1) as \x1b or \u009b, bytes that are no UTF-8 as \xff.
std::string Escaped(std::string_view text, std::string_view keep = "");

// The same for names and sentences, where marks that turn the direction of writing could hide what stands there.
std::string EscapedName(std::string_view text, std::string_view keep = "");

}  // namespace hydrant::cli
