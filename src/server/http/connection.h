// SPDX-License-Identifier: Apache-2.0
// One client's connection. It reads the next request while the last one is being answered, so that it hears when the
// client goes; requests are answered one by one, in order.
#pragma once

#include <atomic>
#include <boost/asio/io_context.hpp>
#include <boost/asio/ip/tcp.hpp>
#include <boost/asio/ssl/context.hpp>
#include <memory>
#include <mutex>
#include <optional>
#include <set>

#include "server/http/http_server.h"

namespace hydrant::server {

class Connection;

// What all connections of a server share. It outlives them.
struct ConnectionContext {
  boost::asio::io_context io;
  HttpOptions options;
  HttpHandler handler;
  std::optional<boost::asio::ssl::context> tls;
  std::atomic<int64_t> open = 0, accepted = 0, refused = 0, malformed = 0;
  std::atomic<bool> draining = false;

  std::mutex mutex;  // guards what follows
  std::set<Connection*> connections;
};

class Connection {
 public:
  virtual ~Connection() = default;

  // From any thread.
  virtual void Start() = 0;
  virtual void Close() = 0;
  virtual void CloseIfIdle() = 0;
  // Null where it is just ending.
  virtual std::shared_ptr<Connection> Alive() = 0;
};

std::shared_ptr<Connection> MakeConnection(std::shared_ptr<ConnectionContext> context,
                                           boost::asio::ip::tcp::socket socket);

}  // namespace hydrant::server
