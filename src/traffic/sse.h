// SPDX-License-Identifier: Apache-2.0
// Server-sent events out of the bytes of a stream (WHATWG HTML, "Parsing an event stream"); only their data matter
// here.
#pragma once

#include <cstddef>
#include <functional>
#include <string>
#include <string_view>

namespace hydrant::traffic {

// Most bytes of one event.
inline constexpr size_t kMaxEventBytes = size_t{16} << 20;

class EventReader {
 public:
  // Calls `on_data` with the data of each event that the bytes end; lines of several data fields are joined by '\n'.
  // Bytes may be cut anywhere. False where an event is longer than kMaxEventBytes: nothing further is read.
  bool Add(std::string_view bytes, const std::function<void(std::string_view data)>& on_data);

 private:
  void EndLine(const std::function<void(std::string_view data)>& on_data);

  std::string line_, data_;
  bool has_data_ = false;
  bool ended_by_cr_ = false;  // a '\n' that follows belongs to that line end
};

}  // namespace hydrant::traffic
