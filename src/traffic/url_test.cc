// SPDX-License-Identifier: Apache-2.0
#include "traffic/url.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>

#include "hydrant/error.h"

namespace hydrant::traffic::url_test {
namespace {

TEST(ServerUrlTest, SchemeHostPortAndPath) {
  EXPECT_EQ(ParseServerUrl("http://127.0.0.1:8080"), (ServerUrl{false, "127.0.0.1", "8080", ""}));
  EXPECT_EQ(ParseServerUrl("https://api.example.org"), (ServerUrl{true, "api.example.org", "443", ""}));
  EXPECT_EQ(ParseServerUrl("http://h/"), (ServerUrl{false, "h", "80", ""}));
  EXPECT_EQ(ParseServerUrl("http://[::1]:81/a/b//"), (ServerUrl{false, "::1", "81", "/a/b"}));
  EXPECT_EQ(ParseServerUrl("http://[::1]").HostField(), "[::1]");
}

TEST(ServerUrlTest, TheVersionOfOpenAisClientsMakesNoDifference) {
  for (const char* text : {"http://h:1", "http://h:1/", "http://h:1/v1", "http://h:1/v1/"}) {
    EXPECT_EQ(ParseServerUrl(text).Text(), "http://h:1") << text;
  }
  EXPECT_EQ(ParseServerUrl("http://h/proxy/v1").path, "/proxy");
}

TEST(ServerUrlTest, OtherTextsAreRefused) {
  const auto expect_refused = [](const std::string& text, const std::string& part) {
    try {
      static_cast<void>(ParseServerUrl(text));
      ADD_FAILURE() << text;
    } catch (const UserError& error) {
      EXPECT_THAT(error.what(), testing::HasSubstr(part)) << text;
    }
  };
  expect_refused("", "does not begin with http");
  expect_refused("127.0.0.1:8080", "does not begin with http");
  expect_refused("http://", "names no host");
  expect_refused("http://:80", "names no host");
  expect_refused("http://h:0", "has the port '0', expected 1 to 65535");
  expect_refused("http://h:65536", "has the port '65536'");
  expect_refused("http://h:", "has the port ''");
  expect_refused("http://h:8o", "has the port '8o'");
  expect_refused("http://::1", "has several ':'");
  expect_refused("http://[::1", "without ']'");
  expect_refused("http://[::1]x", "more than a port");
  expect_refused("http://user@h", "has a character");
  expect_refused("http://h/\r\nX: y", "has a character");
  expect_refused("http://" + std::string(3000, 'h'), "3007 bytes");
}

}  // namespace
}  // namespace hydrant::traffic::url_test
