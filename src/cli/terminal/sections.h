// SPDX-License-Identifier: Apache-2.0
// Facts with a title, kept in order: printed as aligned lines for people or as a JSON object for programs.
#pragma once

#include <span>
#include <string>
#include <utility>
#include <vector>

#include "base/json.h"

namespace hydrant::cli {

struct Section {
  std::string name;  // the JSON key, and the title
  std::vector<std::pair<std::string, base::Json>> facts;

  void Add(const std::string& key, base::Json value) { facts.emplace_back(key, std::move(value)); }
};

std::string SectionsText(std::span<const Section> sections);
base::Json SectionsJson(std::span<const Section> sections);

// "29.9 MB".
std::string ByteText(uint64_t bytes);

}  // namespace hydrant::cli
