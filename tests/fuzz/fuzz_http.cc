// SPDX-License-Identifier: Apache-2.0
// Any bytes on a connection, in two parts: each request that a handler sees has one meaning, every reply is one that a
// client can read, and the connection ends.
#include <arpa/inet.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <sys/socket.h>
#include <unistd.h>

#include <cerrno>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <memory>
#include <string>
#include <string_view>

#include "server/http/http_server.h"

namespace {

using hydrant::server::Exchange;
using hydrant::server::HttpRequest;
using hydrant::server::HttpServer;

void Check(bool holds, std::string_view what) {
  if (holds) return;
  std::perror(std::string(what).c_str());
  std::abort();
}

void Handle(const HttpRequest& request, const std::shared_ptr<Exchange>& exchange) {
  Check(!request.method.empty() && request.method.find(' ') == std::string::npos, "method");
  Check(request.path.find_first_of(" \r\n?") == std::string::npos, "path");
  Check(request.body.size() <= 4096, "body");
  Check(request.Header("transfer-encoding").empty() || request.Header("content-length").empty(), "length");
  for (const auto& [name, value] : request.headers) {
    Check(name.find_first_of(" :\r\n") == std::string::npos && value.find_first_of("\r\n") == std::string::npos,
          "header");
  }
  if (request.path.ends_with("s")) {  // as a stream
    exchange->Begin({.body = "a"});
    exchange->Write(request.body);
    return exchange->End();
  }
  if (!request.path.ends_with("n")) exchange->Send({.body = request.body});  // else none: 500
}

uint16_t Port() {
  using namespace std::chrono_literals;
  static HttpServer* const server = [] {
    auto* made = new HttpServer(
        {.port = 0, .threads = 1, .max_header = 2048, .max_body = 4096, .idle = 100ms, .read = 100ms, .write = 100ms},
        Handle);
    made->Start();
    return made;
  }();
  return server->port();
}

void Send(int fd, std::string_view bytes) {
  while (!bytes.empty()) {
    const ssize_t sent = send(fd, bytes.data(), bytes.size(), MSG_NOSIGNAL);
    if (sent <= 0) return;  // refused in the middle
    bytes.remove_prefix(static_cast<size_t>(sent));
  }
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const std::string_view bytes(reinterpret_cast<const char*>(data), size);
  const int fd = socket(AF_INET, SOCK_STREAM, 0);
  sockaddr_in address{};
  address.sin_family = AF_INET;
  address.sin_port = htons(Port());
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  if (connect(fd, reinterpret_cast<const sockaddr*>(&address), sizeof address) != 0) {
    Check(errno == EINTR, "connect");  // by the fuzzer's own alarm
    close(fd);
    return 0;
  }
  const int on = 1;
  setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &on, sizeof on);
  const linger at_once{1, 0};  // no port waits for late packets: thousands of connections a second
  setsockopt(fd, SOL_SOCKET, SO_LINGER, &at_once, sizeof at_once);
  const size_t middle = size == 0 ? 0 : data[0] % size;
  Send(fd, bytes.substr(0, middle));
  Send(fd, bytes.substr(middle));
  Send(fd, "\r\n\r\nGET /last HTTP/1.1\r\nHost: t\r\nConnection: close\r\n\r\n");
  shutdown(fd, SHUT_WR);
  std::string reply;
  char part[4096];
  for (ssize_t count = 0; (count = recv(fd, part, sizeof part, 0)) > 0;) reply.append(part, static_cast<size_t>(count));
  Check(reply.empty() || reply.starts_with("HTTP/1."), reply);
  close(fd);
  return 0;
}
