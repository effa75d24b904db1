// SPDX-License-Identifier: Apache-2.0
// An HTTP/1.1 server, with TLS where certificates are given (Boost.Beast, Boost.Asio, OpenSSL).
#pragma once

#include <chrono>
#include <cstdint>
#include <memory>
#include <string>

#include "server/http/http.h"

namespace hydrant::server {

struct HttpOptions {
  std::string host = "127.0.0.1";
  uint16_t port = 8080;                     // 0: a free one
  std::string tls_cert = {}, tls_key = {};  // PEM files; both, or none
  int32_t threads = 2;                      // of the network
  int32_t max_connections = 4096;           // further ones are answered with 503
  uint32_t max_header = 32 << 10;           // bytes; beyond: 431
  uint64_t max_body = 16 << 20;             // bytes; beyond: 413
  uint64_t max_unsent = 8 << 20;  // bytes of a reply that its client has not read and to which more come: closed
  std::chrono::milliseconds idle{75'000};   // between requests
  std::chrono::milliseconds read{30'000};   // from a request's first byte to its last; beyond: 408
  std::chrono::milliseconds write{30'000};  // for one part of a reply; beyond: closed
};

// What happened on the network so far.
struct HttpCounts {
  int64_t open = 0;       // connections now
  int64_t accepted = 0;   // connections
  int64_t refused = 0;    // of those: too many, or no file descriptor was left
  int64_t malformed = 0;  // requests that no handler saw: 400, 408, 413, 431
};

class HttpServer {
 public:
  // Takes the address, and answers from Start on. Throws UserError where the address cannot be used, FileError for
  // certificates that cannot.
  HttpServer(const HttpOptions& options, HttpHandler handler);
  ~HttpServer();
  HttpServer(const HttpServer&) = delete;
  HttpServer& operator=(const HttpServer&) = delete;

  uint16_t port() const;
  // Throws UserError where another program has come to listen there.
  void Start();
  HttpCounts counts() const;

  // Takes no further connections, closes idle ones, and says "Connection: close" in replies from now on.
  void Drain();
  // Closes everything and waits for the threads.
  void Stop();

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace hydrant::server
