// SPDX-License-Identifier: Apache-2.0
// Requests and replies of HTTP/1.1 as handlers see them. Nothing here knows the network library or the engine.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace hydrant::server {

using Headers = std::vector<std::pair<std::string, std::string>>;

struct HttpRequest {
  std::string method;  // "POST"
  std::string path;    // of the target, before '?'
  std::string query;   // behind it
  Headers headers;     // in order, names as sent
  std::string body;
  std::string remote;  // the client's address

  // The first header of that name, upper and lower case alike; empty where there is none.
  std::string_view Header(std::string_view name) const;
};

struct HttpResponse {
  int status = 200;
  std::string content_type = "application/json";
  std::string body = {};
  Headers headers = {};  // beside those that the connection adds
};

// The reply to one request: Send, or Begin, any number of Write, End. Calls may come from any thread, wait for nobody,
// and do nothing once the client is gone. Where the last owner goes without a reply, the client gets status 500, or a
// connection that ends in the middle.
class Exchange {
 public:
  virtual ~Exchange() = default;

  virtual void Send(HttpResponse response) = 0;
  virtual void Begin(HttpResponse head) = 0;  // `body` is the first part
  virtual void Write(std::string part) = 0;
  virtual void End() = 0;

  // Calls `fn` once, from the network's thread, when the client goes away before the reply has ended; at once where it
  // is gone already. One function at most.
  virtual void OnGone(std::function<void()> fn) = 0;
};

using HttpHandler = std::function<void(HttpRequest request, std::shared_ptr<Exchange> exchange)>;

// "Not Found" of 404.
std::string_view StatusText(int status);

}  // namespace hydrant::server
