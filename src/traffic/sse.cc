// SPDX-License-Identifier: Apache-2.0
#include "traffic/sse.h"

#include <algorithm>

namespace hydrant::traffic {

bool EventReader::Add(std::string_view bytes, const std::function<void(std::string_view data)>& on_data) {
  while (!bytes.empty()) {
    if (ended_by_cr_ && bytes.front() == '\n') bytes.remove_prefix(1);
    ended_by_cr_ = false;
    const size_t end = std::min(bytes.find_first_of("\r\n"), bytes.size());
    if (line_.size() + data_.size() + end > kMaxEventBytes) return false;
    line_ += bytes.substr(0, end);
    if (end == bytes.size()) break;
    ended_by_cr_ = bytes[end] == '\r';
    bytes.remove_prefix(end + 1);
    EndLine(on_data);
  }
  return true;
}

void EventReader::EndLine(const std::function<void(std::string_view data)>& on_data) {
  constexpr std::string_view kField = "data";
  if (line_.empty()) {
    if (has_data_) on_data(data_);
    data_.clear();
    has_data_ = false;
    return;
  }
  const std::string_view line = line_;
  const size_t colon = std::min(line.find(':'), line.size());
  if (line.substr(0, colon) == kField) {
    std::string_view value = line.substr(std::min(colon + 1, line.size()));
    if (value.starts_with(' ')) value.remove_prefix(1);
    if (has_data_) data_ += '\n';
    data_ += value;
    has_data_ = true;
  }
  line_.clear();
}

}  // namespace hydrant::traffic
