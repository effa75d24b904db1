// SPDX-License-Identifier: Apache-2.0
// Requests to one server over HTTP/1.1, with TLS where its URL says so. All of a client runs on its io_context's
// thread.
#pragma once

#include <boost/asio/awaitable.hpp>
#include <boost/asio/io_context.hpp>
#include <functional>
#include <memory>
#include <string>
#include <string_view>

#include "traffic/reply.h"
#include "traffic/server.h"

namespace hydrant::traffic {

struct HttpCall {
  std::string path;  // behind that of the server's URL
  std::string body;  // JSON; empty: GET, else POST
  // Parts of the reply's body as they come, of any status. False: nothing further is wanted.
  std::function<bool(int status, std::string_view bytes)> on_body;
};

struct HttpOutcome {
  Failure failure = Failure::kNone;  // of the connection; a status is none
  int status = 0;                    // 0: no reply began
  std::string problem = {};
};

class HttpClient {
 public:
  // Looks the host's addresses up. Throws UserError where it has none, or where there are no certificates to trust.
  HttpClient(boost::asio::io_context& io, const Server& server);
  ~HttpClient();
  HttpClient(const HttpClient&) = delete;
  HttpClient& operator=(const HttpClient&) = delete;

  // Over a connection that was left open, or else a new one. What goes wrong with connections is in the outcome.
  boost::asio::awaitable<HttpOutcome> Send(HttpCall call);

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace hydrant::traffic
