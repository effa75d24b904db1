// SPDX-License-Identifier: Apache-2.0
#include "traffic/sse.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>
#include <vector>

namespace hydrant::traffic::sse_test {
namespace {

using testing::ElementsAre;

// Fed in parts of `size` bytes.
std::vector<std::string> EventsIn(const std::string& bytes, size_t size) {
  EventReader reader;
  std::vector<std::string> events;
  for (size_t at = 0; at < bytes.size(); at += size) {
    EXPECT_TRUE(reader.Add(std::string_view(bytes).substr(at, size),
                           [&events](std::string_view data) { events.emplace_back(data); }));
  }
  return events;
}

TEST(EventReaderTest, EventsAreTheSameWhereverTheBytesAreCut) {
  const std::string bytes =
      "data: {\"a\": 1}\n\n: a comment\n\nevent: x\ndata:no space\r\ndata: more\r\n\r\ndata: one\rdata: two\r\rid: "
      "7\n\ndata\n\n"
      "data: [DONE]\n\ndata: unfinished";
  for (size_t size = 1; size <= bytes.size(); ++size) {
    EXPECT_THAT(EventsIn(bytes, size), ElementsAre("{\"a\": 1}", "no space\nmore", "one\ntwo", "", "[DONE]")) << size;
  }
}

TEST(EventReaderTest, AnEventWithoutEndIsRefused) {
  EventReader reader;
  const std::string part(1 << 20, 'x');
  bool is_taken = reader.Add("data: ", [](std::string_view) {});
  for (int i = 0; i < 17 && is_taken; ++i) is_taken = reader.Add(part, [](std::string_view) {});
  EXPECT_FALSE(is_taken);
  EventReader lines;
  is_taken = true;
  for (int i = 0; i < 17 && is_taken; ++i) is_taken = lines.Add("data: " + part + "\n", [](std::string_view) {});
  EXPECT_FALSE(is_taken);
}

}  // namespace
}  // namespace hydrant::traffic::sse_test
