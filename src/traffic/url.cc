// SPDX-License-Identifier: Apache-2.0
#include "traffic/url.h"

#include <fmt/format.h>

#include <algorithm>
#include <cctype>
#include <charconv>
#include <cstdint>

#include "hydrant/error.h"

namespace hydrant::traffic {
namespace {

constexpr size_t kMostBytes = 2000;

[[noreturn]] void Refuse(std::string_view text, const std::string& problem) {
  throw UserError(fmt::format("the URL '{}' {}", text.substr(0, 200), problem), "an example is http://127.0.0.1:8080");
}

// Nothing that could end the line of the request, or begin another part of a URL.
bool IsPlain(std::string_view text) {
  return std::ranges::all_of(text, [](unsigned char c) { return std::isgraph(c) != 0; }) &&
         text.find_first_of("?#@\\") == std::string_view::npos;
}

std::string PortOf(std::string_view text, std::string_view digits) {
  uint32_t port = 0;
  const auto [end, error] = std::from_chars(digits.data(), digits.data() + digits.size(), port);
  if (error != std::errc() || end != digits.data() + digits.size() || port == 0 || port > 65535) {
    Refuse(text, fmt::format("has the port '{}', expected 1 to 65535", digits));
  }
  return std::to_string(port);
}

void SplitAddress(std::string_view text, std::string_view address, ServerUrl& url) {
  std::string_view port;
  if (address.starts_with('[')) {
    const size_t end = address.find(']');
    if (end == std::string_view::npos) Refuse(text, "has a '[' without ']'");
    url.host = address.substr(1, end - 1);
    if (address.size() > end + 1 && address[end + 1] != ':') Refuse(text, "has more than a port behind ']'");
    port = address.substr(std::min(end + 1, address.size()));
  } else {
    const size_t colon = address.find(':');
    url.host = address.substr(0, colon);
    if (colon != std::string_view::npos) port = address.substr(colon);
    if (port.find(':', 1) != std::string_view::npos) Refuse(text, "has several ':', expected an IPv6 address in [ ]");
  }
  if (url.host.empty()) Refuse(text, "names no host");
  url.port = port.empty() ? (url.is_tls ? "443" : "80") : PortOf(text, port.substr(1));
}

}  // namespace

std::string ServerUrl::HostField() const {
  const std::string name = host.find(':') == std::string::npos ? host : "[" + host + "]";
  return port == (is_tls ? "443" : "80") ? name : name + ":" + port;
}

std::string ServerUrl::Text() const { return (is_tls ? "https://" : "http://") + HostField() + path; }

ServerUrl ParseServerUrl(std::string_view text) {
  ServerUrl url;
  if (text.size() > kMostBytes) Refuse(text, fmt::format("has {} bytes, at most {} are read", text.size(), kMostBytes));
  std::string_view rest = text;
  if (rest.starts_with("https://")) {
    url.is_tls = true;
    rest.remove_prefix(8);
  } else if (rest.starts_with("http://")) {
    rest.remove_prefix(7);
  } else {
    Refuse(text, "does not begin with http:// or https://");
  }
  if (!IsPlain(rest)) Refuse(text, "has a character that hosts and paths do not have here");
  const size_t slash = std::min(rest.find('/'), rest.size());
  SplitAddress(text, rest.substr(0, slash), url);
  std::string_view path = rest.substr(slash);
  while (path.ends_with('/')) path.remove_suffix(1);
  if (path.ends_with("/v1")) path.remove_suffix(3);
  while (path.ends_with('/')) path.remove_suffix(1);
  url.path = path;
  return url;
}

}  // namespace hydrant::traffic
