// SPDX-License-Identifier: Apache-2.0
// "Did you mean ...?" for flags, presets, templates and targets.
#pragma once

#include <span>
#include <string>
#include <string_view>

namespace hydrant::base {

// The candidate that a mistyped `word` most likely means, or empty when none is close. One that starts with `word` (two
// letters at least) wins; else the smallest edit distance (insert, delete, replace, swap of neighbours) within about a
// third of the word. Letter case and '-' against '_' are ignored; the first of equals wins.
std::string Nearest(std::string_view word, std::span<const std::string_view> candidates);

}  // namespace hydrant::base
