// SPDX-License-Identifier: Apache-2.0
// Where a server with OpenAI's API is.
#pragma once

#include <string>
#include <string_view>

namespace hydrant::traffic {

struct ServerUrl {
  bool is_tls = false;
  std::string host;  // a name or an address, IPv6 without brackets
  std::string port;  // "8080"
  std::string path;  // what stands before "/v1": empty, or "/" and more without a '/' at the end

  // "host:port" as the header Host has it, without the port where it is the scheme's own.
  std::string HostField() const;
  // "http://127.0.0.1:8080", for messages.
  std::string Text() const;

  bool operator==(const ServerUrl&) const = default;
};

// "http://HOST[:PORT][/PATH]" or "https://..."; a "/v1" at the end, which OpenAI's clients want, makes no difference.
// Throws UserError.
ServerUrl ParseServerUrl(std::string_view text);

}  // namespace hydrant::traffic
